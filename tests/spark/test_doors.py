"""One story on every door to Spark SQL: a cluster, Spark Connect, the Thrift server. The classic session is in
test_statements.py.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.integration.service import service
from tests.spark.doors import Jdbc, connect_address, connect_server, tell, thrift_server
from tests.spark.processes import Cluster
from worker.spark.catalog_jar import catalog_settings

TIMEOUT_S = 900.0


class Lake:
    """A service, and where its tables lie."""

    def __init__(self, address: str, folder: Path) -> None:
        self.uri = f"laketx://{address}"
        self.warehouse = str(folder / "files")
        self.settings = catalog_settings("lake", self.uri, self.warehouse, "ana")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with service(tmp_path / "store") as (running, _):
        yield Lake(running.address, tmp_path)


def told(where: str, lake: Lake, folder: Path) -> str:
    """What a process of its own says of the story."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.doors", where, lake.uri, lake.warehouse, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout.strip() or done.stderr[-4_000:]


@pytest.mark.long
def test_a_cluster_with_executors_on_two_addresses(lake: Lake, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        assert told(cluster.address, lake, tmp_path) == "told"
    finally:
        cluster.kill()


@pytest.mark.long
def test_a_spark_connect_server(lake: Lake, tmp_path: Path) -> None:
    with connect_server(lake.settings, tmp_path) as server:
        assert told(connect_address(server), lake, tmp_path) == "told"


@pytest.mark.long
def test_the_thrift_server(lake: Lake, tmp_path: Path) -> None:
    """By JDBC, as tools for reports do it. Streams have no SQL."""
    server, url = thrift_server(lake.settings, tmp_path)
    with server, Jdbc() as java:
        server.wait_for("HiveThriftServer2 started")
        assert tell(java.connect(url), java.connect(url)) == []
