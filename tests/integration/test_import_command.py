"""`laketx import`: files become a table's where they are, and no Spark starts for it."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

from metaservice.cli import command_line
from metaservice.cli.failures import Exit
from tests.integration.terminal import Ended
from tests.integration.warehouse import Warehouse, warehouse

Run = Callable[[Sequence[str]], Ended]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as found:
        yield found


@pytest.fixture
def run(lake: Warehouse, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(words: Sequence[str]) -> Ended:
        capfd.readouterr()
        environment = {"LAKETX_SERVER": lake.client_address, "LAKETX_WAREHOUSE": str(lake.folder)}
        code = command_line.run(["import", *map(os.fspath, words)], environment)
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


@pytest.fixture
def arrivals(tmp_path: Path) -> Path:
    for day in (1, 2):
        (tmp_path / "arrivals" / f"day=2026-11-0{day}").mkdir(parents=True)
        rows = pa.table({"id": [day, day + 10], "name": ["a", None]})
        pq.write_table(rows, tmp_path / "arrivals" / f"day=2026-11-0{day}" / "rows.parquet")
    return tmp_path / "arrivals"


def test_files_become_a_tables_and_no_spark_starts(lake: Warehouse, run: Run, arrivals: Path) -> None:
    running = SparkContext._active_spark_context
    ended = run([str(arrivals), "shop.orders", "-o", "json"])
    assert json.loads(ended.out) == {"table": "shop.orders", "version": 1, "rows": 4}
    table = lake.client.get_table("shop.orders")
    assert [(one.name, one.type) for one in table.columns] == [("id", "bigint"), ("name", "string"), ("day", "date")]
    assert {entry.file.path for entry in lake.client.list_files(table.table_id)} == {
        str(path) for path in arrivals.rglob("*.parquet")
    }
    assert SparkContext._active_spark_context is running


def test_what_is_there_already_is_refused(lake: Warehouse, run: Run, arrivals: Path, tmp_path: Path) -> None:
    assert run([str(arrivals), "shop.orders", "-m", "first"]).out == "imported 4 rows into shop.orders, version 1\n"
    again = run([str(arrivals), "shop.orders"])
    assert (again.code, "PATH_LIVE" in again.err) == (Exit.REFUSED, True)
    nothing = run([str(tmp_path / "nothing"), "shop.other", "-o", "json"])
    assert (nothing.code, json.loads(nothing.err)["error"]["reason"]) == (Exit.REFUSED, "PATH_UNKNOWN")
    assert [one.name for one in lake.client.list_tables(namespace="shop")] == ["shop.orders"]
    [first, _] = lake.client.list_versions(lake.client.get_table("shop.orders").table_id)
    assert first.commit_message == "first"
