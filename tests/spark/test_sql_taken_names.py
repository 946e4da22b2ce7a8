"""CREATE TABLE AS SELECT, where another one makes the table while the query runs: as if it had come after that."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import Lake, Table
from tests.integration.service import service
from tests.races.courses import session_with
from tests.races.doors import connect_without_spark
from tests.races.gate import Boundary, Gate, Hold
from tests.spark.held import Held
from tests.spark.held_races import HOLDS, Names, rows
from tests.spark.sql import SqlReads

QUERY: Final = f"SELECT 5L AS id, {HOLDS} AS v"
THEIRS: Final = [{"id": 1, "v": 10}]


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    lake.client.create_namespace("tests", if_not_exists=True)
    return SqlReads(lake)


def race(sql: SqlReads, lake: Lake, name: str, folder: Path, statement: Callable[[], Any]) -> tuple[Table, str]:
    """The table that another one makes while the query waits, and what the statement says."""
    made: list[Table] = []

    def creates() -> None:
        made.append(lake.create_table(name, "id bigint, v bigint"))
        made[0].append(THEIRS)

    lost = Held(sql.spark, folder, "held").run(statement, creates)
    assert lost is None or isinstance(lost, PySparkException), lost
    return made[0].refresh(), "" if lost is None else str(lost)


def files_beside(lake_folder: Path, table: Table | None) -> set[Path]:
    found = set(lake_folder.rglob("*.parquet"))
    return found if table is None else {one for one in found if not one.is_relative_to(table.folder)}


@pytest.mark.parametrize("door", ["text", "frame"])
def test_if_not_exists_leaves_the_table_of_another(
    lake: Lake, sql: SqlReads, lake_folder: Path, tmp_path: Path, new_name: Names, door: str
) -> None:
    name = new_name()
    before = files_beside(lake_folder, None)

    def statement() -> None:
        if door == "text":
            sql(f"CREATE TABLE IF NOT EXISTS {{lake}}.{name} AS {QUERY}")
        else:
            sql(QUERY).write.mode("ignore").saveAsTable(f"{sql.name}.{name}")

    table, said = race(sql, lake, name, tmp_path, statement)
    assert said == ""
    assert rows(table) == [(1, 10)]
    assert files_beside(lake_folder, table) == before
    assert sql.rows("SHOW TABLES IN {lake}.tests LIKE '_new*'") == []


@pytest.mark.parametrize("door", ["text", "frame"])
def test_or_replace_replaces_the_table_of_another(
    lake: Lake, sql: SqlReads, lake_folder: Path, tmp_path: Path, new_name: Names, door: str
) -> None:
    name = new_name()
    before = files_beside(lake_folder, None)

    def statement() -> None:
        if door == "text":
            sql(f"CREATE OR REPLACE TABLE {{lake}}.{name} AS {QUERY}")
        else:
            sql(QUERY).writeTo(f"{sql.name}.{name}").createOrReplace()

    table, said = race(sql, lake, name, tmp_path, statement)
    assert said == ""
    assert rows(table) == [(5, 1)]
    found = sql.rows(f"SELECT operation, rows_added, rows_removed FROM {{lake}}.{name}.history ORDER BY version")
    assert found == [("create", 0, 0), ("insert", 1, 0), ("overwrite", 1, 1)]
    assert files_beside(lake_folder, table) == before


def test_without_either_the_statement_fails(lake: Lake, sql: SqlReads, tmp_path: Path, new_name: Names) -> None:
    name = new_name()
    table, said = race(sql, lake, name, tmp_path, lambda: sql(f"CREATE TABLE {{lake}}.{name} AS {QUERY}"))
    assert "TABLE_EXISTS" in said
    assert rows(table) == [(1, 10)]


# -- between Spark's look at the name and the catalog's own


class HeldCreation(Gate):
    """Holds the first creation of a table, real or tried."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.creation = Hold(Boundary.BEGIN)

    def pause(self, method: str, *, is_answered: bool) -> None:
        if method == "CreateTable" and not is_answered and not self.creation.reached.is_set():
            self.creation.wait()


@pytest.mark.long
@pytest.mark.parametrize(("words", "left"), [("TABLE IF NOT EXISTS", [(1, 10)]), ("OR REPLACE TABLE", [(5, 6)])])
def test_a_table_made_since_spark_looked(
    spark: SparkSession, tmp_path: Path, words: str, left: list[tuple[int, int]]
) -> None:
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    with service(tmp_path / "service") as (running, _), HeldCreation(running.address) as gate, ThreadPool(1) as pool:
        session = session_with(spark, "gated", f"laketx://{gate.address}", str(warehouse))
        with connect_without_spark(f"laketx://{running.address}", str(warehouse)) as other:
            other.client.create_namespace("shop")
            lost = pool.apply_async(session.sql, (f"CREATE {words} gated.shop.t AS SELECT 5L AS id, 6L AS v",))
            assert gate.creation.reached.wait(60)
            table = other.create_table("shop.t", "id bigint, v bigint")
            table.append(THEIRS)
            gate.creation.released.set()
            lost.get(60)
            assert rows(table) == left
