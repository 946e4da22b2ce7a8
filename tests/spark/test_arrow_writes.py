"""What one of Spark and Arrow writes, the other reads and changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laketx import Lake, Table
from worker.files.bucket_hash import row_hashes

Names = Callable[[], str]
SCHEMA = "id bigint, day date, amount double, note string, tags array<string>, s struct<a:int,b:decimal(38,10)>"
STEPS = 6


def some_rows(chance: random.Random, keyed: bool) -> list[dict[str, Any]]:
    ids = chance.sample(range(12), 4) if keyed else [chance.randint(0, 12) for _ in range(4)]
    return [
        {
            "id": number,
            "day": chance.choice([date(2026, 11, 1), date(1900, 1, 1)]),
            "amount": chance.choice([0.5, float("nan"), None]),
            "note": chance.choice(["", "ünï", None]),
            "tags": chance.choice([None, [], ["x", None]]),
            "s": chance.choice([None, {"a": 1, "b": Decimal("1234567890123456789012345678.0123456789")}]),
        }
        for number in ids
    ]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 4))])
def test_writes_of_both_cross(lake: Lake, spark: SparkSession, new_name: Names, seed: int) -> None:
    chance, keyed = random.Random(seed), bool(seed % 2)
    key: dict[str, Any] = {"primary_key": ["id"], "buckets": 2} if keyed else {}
    table = lake.create_table(new_name(), SCHEMA, partition_by=[] if keyed else ["day"], **key)
    held: dict[Any, dict[str, Any]] = {}
    for step in range(STEPS):
        rows = some_rows(chance, keyed)
        arrow = pa.Table.from_pylist(rows, table.to_arrow().schema)
        number = chance.randint(0, 12)
        match chance.choice(["spark", "arrow", "arrow", "delete by spark", "delete by arrow"]):
            case "spark":
                table.insert(spark.createDataFrame(arrow))
                held |= {row["id"] if keyed else (step, at): row for at, row in enumerate(rows)}
            case "arrow":
                (table.upsert if keyed else table.append)(arrow)
                held |= {row["id"] if keyed else (step, at): row for at, row in enumerate(rows)}
            case "delete by spark":
                table.delete(f"id = {number} or note is null")
                held = {key: row for key, row in held.items() if row["id"] != number and row["note"] is not None}
            case _ if keyed:
                table.delete(keys=[number])
                held.pop(number, None)
            case _:
                table.append([])
        check(table, list(held.values()))


def test_both_write_a_key_into_one_bucket(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    """Of three, since of two a negative hash falls into that of its absolute value."""
    table = lake.create_table(new_name(), "id bigint, v int", primary_key=["id"], buckets=3)
    table.insert(spark.range(20).selectExpr("id", "0 as v"))
    table.upsert([{"id": number, "v": 1} for number in range(20)])
    assert table.to_arrow().sort_by("id").to_pylist() == [{"id": number, "v": 1} for number in range(20)]


def check(table: Table, rows: list[dict[str, Any]]) -> None:
    wanted = Counter(map(text_of, rows))
    assert Counter(map(text_of, table.to_arrow().to_pylist())) == wanted
    assert Counter(text_of(row.asDict(recursive=True)) for row in table.read().collect()) == wanted


def text_of(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def test_hashes_are_those_of_spark(spark: SparkSession) -> None:
    rows = pa.table(
        {
            "b": pa.array([True, False]),
            "i8": pa.array([-1, 127], pa.int8()),
            "i16": pa.array([-1, 1 << 14], pa.int16()),
            "i32": pa.array([-1, 1 << 30], pa.int32()),
            "i64": pa.array([-1, 1 << 62], pa.int64()),
            "f": pa.array([-0.0, float("nan")], pa.float32()),
            "d": pa.array([-0.0, 1e300], pa.float64()),
            "s": pa.array(["", "ünï and a text of more than thirty-two bytes"]),
            "x": pa.array([b"", b"\0\xff"]),
            "day": pa.array([date(1900, 1, 1), date(2026, 11, 1)]),
            "t": pa.array(
                [datetime(1960, 1, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")
            ),
            "small": pa.array([Decimal("-1.25"), Decimal("7.00")], pa.decimal128(10, 2)),
            "large": pa.array([Decimal("-1.25"), Decimal("12345678901234567890123456.78")], pa.decimal128(38, 2)),
        }
    )
    frame = spark.createDataFrame(rows)
    for name in rows.column_names:
        wanted = [row[0] for row in frame.selectExpr(f"xxhash64({name})").collect()]
        assert row_hashes([rows.column(name)]).tolist() == wanted, name
    wanted = [row[0] for row in frame.selectExpr("xxhash64(i32, s, large)").collect()]
    assert row_hashes([rows.column(name) for name in ("i32", "s", "large")]).tolist() == wanted
