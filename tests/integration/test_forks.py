"""Processes that are started beside an open connection, as Spark's is, come up."""

import signal
import subprocess
import sys
from pathlib import Path

from metaservice.client import MetaClient
from tests.integration.service import Service

CHILDREN = 150


def ignore_interrupts() -> None:
    """In the child, between fork and exec: what makes Python fork at all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def start_children(address: str) -> list[int]:
    """What they ended with that is not 0."""
    ended = []
    for _ in range(CHILDREN // 5):
        with MetaClient(address) as client:
            client.ping()
            children = [subprocess.Popen(["true"], preexec_fn=ignore_interrupts) for _ in range(5)]  # noqa: PLW1509
            ended += [child.wait() for child in children]
    return [code for code in ended if code]


def test_children_of_a_client_start(tmp_path: Path) -> None:
    service = Service(tmp_path / "store")
    code = f"from tests.integration.test_forks import start_children; print(start_children({service.start()!r}))"
    try:
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
        assert said.stdout == "[]\n"
    finally:
        service.kill()
