"""Rows that leave their partition by SQL, in tables whose keys are unique within a partition."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import Lake, Table
from tests.spark.held import Held
from tests.spark.sql import SqlReads
from tests.spark.stored import staged_folders, stored_rows

Names = Callable[[], str]
Row = tuple[int, int | None, str | None]
SCHEMA = "id bigint, v bigint, day string"


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


def make(lake: Lake, name: str, *rows: Row, profile: str = "") -> Table:
    table = lake.create_table(
        name, SCHEMA, primary_key=["id"], buckets=1, partition_by=["day"], key_scope="partition", profile=profile
    )
    table.insert(lake.spark.createDataFrame(list(rows), SCHEMA))
    return table


def content(table: Table) -> list[Row]:
    return sorted(((row["id"], row["v"], row["day"]) for row in stored_rows(table)), key=repr)


def test_a_row_moves_where_its_key_is_free_alone(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    rows: list[Row] = [(1, 1, "mon"), (1, 7, "tue"), (2, 2, "mon"), (3, 3, "mon"), (3, 4, None)]
    table = make(lake, new_name(), *rows)
    moves = [
        "UPDATE {name} SET day = 'tue' WHERE day = 'mon'",
        "UPDATE {name} SET day = NULL WHERE v = 3",
        "UPDATE {name} SET day = 'wed'",
        (
            "MERGE INTO {name} t USING (SELECT 1L AS id, 'tue' AS day) s ON t.id = s.id AND t.day = 'mon' "
            "WHEN MATCHED THEN UPDATE SET day = s.day"
        ),
    ]
    folders = staged_folders(table)
    for move in moves:
        with pytest.raises(PySparkException, match="KEY_EXISTS: no row of"):
            sql(move.format(name=f"{{lake}}.{table.name}"))
        assert (content(table), staged_folders(table)) == (sorted(rows, key=repr), folders)
    sql(f"UPDATE {{lake}}.{table.name} SET day = CASE day WHEN 'mon' THEN 'tue' ELSE 'mon' END WHERE id = 1")
    assert content(table) == [(1, 1, "tue"), (1, 7, "mon"), (2, 2, "mon"), (3, 3, "mon"), (3, 4, None)]
    sql(
        f"MERGE INTO {{lake}}.{table.name} t USING (SELECT 3L AS id) s ON t.id = s.id AND t.day IS NULL "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN UPDATE SET day = NULL"
    )  # one goes, the other takes its place
    assert content(table) == [(1, 1, "tue"), (1, 7, "mon"), (2, 2, "mon"), (3, 3, None)]


@pytest.mark.parametrize(
    "profile",
    ["delta_write_serializable", *(pytest.param(one, marks=pytest.mark.long) for one in ("maxcompute", "row_level"))],
)
def test_a_key_that_comes_meanwhile_where_a_row_moves_to_wins(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path, profile: str
) -> None:
    table = make(lake, new_name(), (1, 1, "mon"), profile=profile)
    held = Held(spark, tmp_path, f"moves_{profile}")
    statement = f"UPDATE {{lake}}.{table.name} SET day = 'tue', v = moves_{profile}(v) WHERE day = 'mon'"
    other = spark.createDataFrame([(1, 2, "tue")], SCHEMA)
    error = held.run(lambda: sql(statement), lambda: lake.table(table.name).insert(other))
    assert "LOST_RACE" in str(error)
    assert content(table) == [(1, 1, "mon"), (1, 2, "tue")]
