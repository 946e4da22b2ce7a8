"""A real service in a process of its own, with a fresh store; it never outlives the block that started it."""

import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.forked_programs import ForkedProgram

ROOT = Path(__file__).resolve().parents[2]
READY = "listening on "
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
ERROR_TEXT_MAX = 4000


class ServerError(Exception):
    """The service didn't come up."""


@contextmanager
def running_server() -> Iterator[str]:
    """Gives the address of a service that runs as long as the block."""
    with tempfile.TemporaryDirectory(prefix="laketx-conformance-") as folder:
        errors = Path(folder) / "stderr.txt"
        words = ("--listen", "127.0.0.1:0", "--data", str(Path(folder) / "db"))
        with errors.open("wb") as stderr:
            server = ForkedProgram("metaservice", words, stderr=stderr)
        try:
            yield wait_for_address(server, errors)
        finally:
            stop(server)


def wait_for_address(server: subprocess.Popen[str], errors: Path) -> str:
    assert server.stdout is not None
    found: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=drain, args=(server.stdout, found), daemon=True).start()
    try:
        address = found.get(timeout=START_TIMEOUT_S)
    except queue.Empty:
        raise ServerError(f"the service wasn't ready within {START_TIMEOUT_S:.0f} s") from None
    if address is None:
        said = errors.read_text(encoding="utf-8", errors="replace")[-ERROR_TEXT_MAX:].strip()
        raise ServerError(f"the service ended before it was ready: {said}")
    return address


def drain(stdout: IO[str], found: "queue.Queue[str | None]") -> None:
    """Reads to the end, so that the service never waits for a reader."""
    for line in stdout:
        if line.startswith(READY):
            found.put(line.removeprefix(READY).strip())
    found.put(None)


def stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
