"""Few rows that change are written by the driver, more by Spark: the files say the same."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import InputError, Lake
from protos.laketx.v1 import common_pb2
from tests.spark.stored import live, stored_rows
from worker.dataframes import small_writes

Names = Callable[[], str]
SCHEMA = (
    "id string not null, at timestamp not null, day date, n decimal(20,3), f double, b binary, local timestamp_ntz, "
    "s struct<x:int not null,y:array<struct<z:string>>>, m map<string,struct<w:bigint>>, amount bigint not null"
)


@pytest.mark.parametrize("parted", [pytest.param(False, marks=pytest.mark.long), True])
def test_whoever_writes(
    lake: Lake, spark: SparkSession, new_name: Names, monkeypatch: pytest.MonkeyPatch, parted: bool
) -> None:
    rows = spark.range(20).selectExpr(
        "if(id = 3, 'ä', cast(id as string)) as id",
        "timestamp_seconds(id * 0.25) as at",
        "if(id % 3 = 0, null, date_add(date'1500-01-01', cast(id % 3 as int))) as day",
        "cast(id * 1.5 as decimal(20,3)) as n",
        "case id when 4 then double('nan') when 5 then -0.0D when 6 then null else id end as f",
        "unhex(hex(id)) as b",
        "timestamp_ntz'1600-01-01 00:00:00' as local",
        "if(id = 7, null, struct(cast(id as int) as x, array(struct('z' as z), null) as y)) as s",
        "if(id = 8, null, map('k', struct(id as w))) as m",
        "id as amount",
    )
    found: list[Any] = []
    for most in (0, 2, 20_000):  # Spark, Spark after the driver had too many, the driver
        monkeypatch.setattr(small_writes, "ROWS_MAX", most)
        table = lake.create_table(
            new_name(),
            SCHEMA,
            primary_key=["id", "at"],
            buckets=3,
            partition_by=["day"] if parted else [],
            key_scope="partition",
        )
        table.insert(rows)
        before = {entry.file.path for entry in live(table)}
        table.update({"amount": "amount + 100", "f": "-f"}, where="amount % 2 = 0")
        table.delete("amount = 5 or amount > 115")
        if parted:
            table.update({"day": "date'2026-01-01'"}, where="amount = 7")
        with pytest.raises(InputError, match="NULL_NOT_ALLOWED"):
            table.update({"s": "struct(cast(null as int) as x, s.y as y)"}, where="amount = 1")
        with pytest.raises(InputError, match="NULL_NOT_ALLOWED"):
            table.update({"amount": "null"}, where="amount = 1")
        shown = sorted(map(repr, table.read().collect()))
        stored = sorted(map(repr, stored_rows(table)))
        files = sorted(
            repr((file.bucket, file.partition, file.kind, file.rows, [s for s in file.stats if s.column_id != 5]))
            for file in (entry.file for entry in live(table))
            if file.path not in before
        )
        found.append((shown, stored, files))
    assert found[0] == found[1]
    assert found[0] == found[2]
    assert len(found[0][0]) == 20 - 3


def test_how_many_are_few() -> None:
    def of(rows: int, size: int) -> int:
        return small_writes.few_of([common_pb2.DataFile(rows=rows, bytes=size)])

    assert of(1_000_000, 80_000_000) == small_writes.ROWS_MAX
    assert of(1_000, 1_000 << 20) == 8
    assert of(1, 1 << 30) == 0
    assert small_writes.few_of([]) == small_writes.ROWS_MAX
