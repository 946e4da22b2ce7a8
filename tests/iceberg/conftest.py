"""A lake with a catalog, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laketx import Lake, connect
from tests.arrow.tables import open_lake
from tests.iceberg.servers import Server, served_folder
from tests.iceberg.writers import Ducks, attached
from tests.spark.reading import LabLake


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iceberg")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with connect(folder) as made:
        made.client.create_namespace("shop")
        yield made


@pytest.fixture(scope="module")
def lab(folder: Path, lake: Lake) -> Iterator[LabLake]:
    """The same lake, for tables that know what they must show."""
    with open_lake(folder) as made:
        yield made


@pytest.fixture(scope="module")
def snapshots() -> int:
    """How many the catalog shows before the newest; a module may say another number."""
    return 10


@pytest.fixture(scope="module")
def server(folder: Path, lake: Lake, snapshots: int) -> Iterator[Server]:
    with served_folder(folder, "--snapshots", str(snapshots)) as found:
        yield found


@pytest.fixture(scope="module")
def ducks(server: Server) -> Iterator[Ducks]:
    with attached(server, 2) as second, attached(server, 3) as third:
        yield {2: second, 3: third}
