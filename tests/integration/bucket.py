"""A server of S3 with conditional PUT for stores: versitygw on a folder; and services whose store is in it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.integration.service import TIMEOUT_S, free_address
from tools.deploy_tools import VERSITYGW, NotCheckedError, go_tool

BUCKET: Final = "lake"
USER, SECRET, REGION = "operator", "operator-secret", "us-east-1"


@contextmanager
def bucket(folder: Path) -> Iterator[dict[str, str]]:
    """The variables with which a process finds it."""
    try:
        versitygw = go_tool(VERSITYGW)
    except NotCheckedError as error:
        pytest.skip(f"there is no versitygw here: {error}")
    (folder / "objects" / BUCKET).mkdir(parents=True)
    address = free_address()
    command = [str(versitygw), "--access", USER, "--secret", SECRET, "--region", REGION, "--port", address, "--quiet"]
    with (folder / "versitygw.txt").open("wb") as out:
        running = subprocess.Popen([*command, "posix", str(folder / "objects")], stdout=out, stderr=out)
        try:
            wait_for_port(address, running)
            yield {
                "AWS_ENDPOINT_URL": f"http://{address}",
                "AWS_ACCESS_KEY_ID": USER,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        finally:
            running.terminate()
            running.wait(TIMEOUT_S)


def wait_for_port(address: str, running: subprocess.Popen[bytes]) -> None:
    import socket  # noqa: PLC0415

    host, _, port = address.rpartition(":")
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return


def known_to(variables: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **variables}
