"""Spark and tables whose images set single columns: it refuses what it would misread, and reads what is folded."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import Lake
from tests.spark.sql import SqlReads

Names = Callable[[], str]


def test_spark_refuses_images_that_set_single_columns_until_they_are_folded(
    lake: Lake, spark: SparkSession, new_name: Names
) -> None:
    name, sql = new_name(), SqlReads(lake)
    table = lake.create_table(
        name, "id bigint, a int, b int", primary_key=["id"], buckets=1, properties={"merge.engine": "partial"}
    )
    table.upsert([{"id": 1, "a": 1, "b": 1}])
    table.upsert([{"id": 1, "b": None}])
    rows = spark.createDataFrame([(1, 9)], "id bigint, a int")
    doors: dict[str, Callable[[], Any]] = {
        "read": lambda: table.read().collect(),
        "changes": lambda: table.changes(since=0).collect(),
        "insert": lambda: table.insert(rows),
        "overwrite": lambda: table.overwrite(rows),
        "merge": lambda: table.merge(rows, on="id").when_matched_update().execute(),
        "SELECT": lambda: sql(f"SELECT * FROM {{lake}}.{name}").collect(),
        "INSERT": lambda: sql(f"INSERT INTO {{lake}}.{name} VALUES (1, 2, 3)"),
        "UPDATE": lambda: sql(f"UPDATE {{lake}}.{name} SET a = 2"),
        "DELETE": lambda: sql(f"DELETE FROM {{lake}}.{name} WHERE a + 1 = 2"),
        "transaction": lambda: _in_transaction(lake, name, rows),
    }
    said = {door: _refusal(call) for door, call in doors.items()}
    assert {door for door, text in said.items() if "PARTIAL_IMAGES" not in text} == set(), said
    table.update({"a": "a + 1"}, where="id = 1")  # not by Spark, although it runs
    table.compact("major")
    assert [tuple(row) for row in table.read().collect()] == [(1, 2, None)]
    with pytest.raises(Exception, match="PARTIAL_IMAGES"):
        table.insert(rows)


def _refusal(call: Callable[[], Any]) -> str:
    try:
        return f"it passed: {call()}"
    except Exception as error:  # noqa: BLE001 - of whatever kind Spark makes of it
        return str(error)


def _in_transaction(lake: Lake, name: str, rows: Any) -> None:
    with lake.transaction() as txn:
        txn.table(name).insert(rows)
