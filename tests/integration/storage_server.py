"""MinIO, a server of S3 with a token service that keeps to session policies; built by Go."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.integration.service import TIMEOUT_S, free_address
from tools.deploy_tools import GoTool, NotCheckedError, go_tool

MINIO: Final = GoTool("github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c", "make test-long")
USER, SECRET, REGION = "operator", "operator-secret", "us-east-1"


@contextmanager
def storage_server(folder: Path, *buckets: str) -> Iterator[str]:
    """Its URL."""
    try:
        minio = go_tool(MINIO)
    except NotCheckedError as error:
        pytest.skip(f"there is no MinIO here: {error}")
    for bucket in buckets:
        (folder / "objects" / bucket).mkdir(parents=True)
    address = free_address()
    known = {**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": SECRET}
    command = [str(minio), "server", "--quiet", "--address", address, "--console-address", free_address()]
    with (folder / "minio.txt").open("wb") as out:
        running = subprocess.Popen([*command, str(folder / "objects")], stdout=out, stderr=out, env=known)
        try:
            wait_for(f"http://{address}/minio/health/ready", running)
            yield f"http://{address}"
        finally:
            running.terminate()
            running.wait(TIMEOUT_S)


def wait_for(url: str, running: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=TIMEOUT_S).close()
        except (urllib.error.URLError, ConnectionError):
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return
