"""`laketx worker` as a process: it serves, and ends when it is told to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.service import Service
from tests.spark.processes import ROOT, WAIT_S


def test_it_ends_when_told_to(tmp_path: Path) -> None:
    service = Service(tmp_path / "store")
    command = [
        sys.executable,
        "-m",
        "laketx.commands.worker",
        "--server",
        service.start(),
        "--warehouse",
        str(tmp_path / "files"),
    ]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    assert worker.stdout is not None
    try:
        assert worker.stdout.readline() == "worker: ready\n"
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
        worker.stdout.close()
        service.kill()
