"""A service of its own for a benchmark."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.frame import ROOT

PEAK = "VmHWM"


class Served(NamedTuple):
    """A running service."""

    address: str
    pid: int


@contextmanager
def server(folder: Path, *flags: str) -> Iterator[Served]:
    """A service over a data folder; what it logs stands beside that."""
    command = [sys.executable, "-m", "metaservice", "--listen", "127.0.0.1:0", "--data", str(folder), *flags]
    with (
        (folder.parent / f"{folder.name}.log").open("wb") as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as running,
    ):
        assert running.stdout is not None
        try:
            yield Served(running.stdout.readline().removeprefix("listening on ").strip(), running.pid)
        finally:
            running.terminate()
            running.wait(60)


def processor_seconds(pid: int) -> float:
    """What a process has used of the processors until now. Raises OSError if it has ended."""
    return time.clock_gettime(~pid << 3 | 2)  # the number of another process's clock


def memory(service: Served, kind: str = "VmRSS") -> float:
    """MiB of the service's process: now, or at most until now."""
    text = Path(f"/proc/{service.pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{kind}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
