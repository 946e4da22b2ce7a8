"""A service of a release, and clients of both."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laketx import Lake, connect
from tests.upgrade.releases import Release, ReleasedService

ROWS = [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]
NO_DELAY = ("--purge-delay-ms", "0")


@contextmanager
def serving(release: Release, data: Path, *flags: str) -> Iterator[ReleasedService]:
    running = release.service(data, "127.0.0.1:0", *NO_DELAY, *flags)
    try:
        running.start()
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.kill()


def conduct(release: Release, address: str, call: str, table: str) -> tuple[str, Any]:
    said, what = json.loads(release.run("conduct.py", address, call, table))
    return said, what


@contextmanager
def lake_at(address: str, folder: Path) -> Iterator[Lake]:
    with connect(f"laketx://{address}", warehouse=str(folder)) as lake:
        yield lake
