"""A lake with a catalog, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laketx import Lake, connect
from tests.iceberg.servers import Server, served_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iceberg")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with connect(folder) as made:
        made.client.create_namespace("shop")
        yield made


@pytest.fixture(scope="module")
def server(folder: Path, lake: Lake) -> Iterator[Server]:
    with served_folder(folder) as found:
        yield found
