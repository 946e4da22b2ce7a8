"""Orders inside files, columns that change meanwhile, what a MERGE says it read, and NULL inside of structs."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import ConflictError, InputError, Lake, Table
from tests.spark.held import Held
from tests.spark.stored import file_rows, live, staged_folders, stored_rows

Names = Callable[[], str]
DAYS = ("mon", "tue", "wed")


def test_order_by_holds_within_every_file(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, day string", partition_by=["day"])
    numbers = list(range(300))
    random.Random(5).shuffle(numbers)
    rows = spark.createDataFrame([(number, DAYS[number % 3]) for number in numbers], "id bigint, day string")
    table.insert(rows, order_by=sf.col("id").desc())
    table.overwrite(rows.where("day = 'tue'"), partition={"day": "tue"}, order_by=[rows["id"]])
    for entry in live(table):
        ids = [row["id"] for row in file_rows(table, entry.file)]
        assert ids == sorted(ids, reverse=entry.added_version == 1)
    assert len(stored_rows(table)) == 300
    assert {len({row["day"] for row in file_rows(table, entry.file)}) for entry in live(table)} == {1}


def test_columns_that_change_while_an_insert_runs(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    table = lake.create_table(new_name(), "id bigint, note string")
    other = Table(lake, table.meta)
    held = Held(spark, tmp_path, "waits")
    rows = spark.range(3).selectExpr("waits(id) as id")
    assert held.run(lambda: table.insert(rows), lambda: other.add_columns("more int")) is None
    assert [row["more"] for row in stored_rows(table)] == [None] * 3
    assert len(staged_folders(table)) == 1, "of the attempt that committed"
    lost = held.run(lambda: table.insert(rows, on_conflict="fail"), lambda: other.drop_column("note"))
    assert getattr(lost, "reason", None) == "SCHEMA_VERSION_MISMATCH", lost
    assert (len(stored_rows(table)), len(staged_folders(table))) == (3, 1)


@pytest.mark.parametrize("write", ["insert", "overwrite"])
def test_a_table_that_says_fail_stops_a_write_whose_columns_changed(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path, write: str
) -> None:
    properties = {"write.on_conflict": "fail"}
    table = lake.create_table(new_name(), "id bigint, note string", properties=properties)
    other = Table(lake, table.meta)
    held = Held(spark, tmp_path, f"fails_{write}")
    rows = spark.range(3).selectExpr(f"fails_{write}(id) as id")
    lost = held.run(lambda: getattr(table, write)(rows), lambda: other.drop_column("note"))
    assert getattr(lost, "reason", None) == "SCHEMA_VERSION_MISMATCH", lost
    assert stored_rows(table) == []
    assert (
        held.run(lambda: getattr(table, write)(rows, on_conflict="rerun"), lambda: other.add_columns("more int"))
        is None
    )
    assert len(stored_rows(table)) == 3


SCHEMA = "id bigint, amount bigint, day string"


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


@pytest.mark.parametrize(
    ("on", "elsewhere"),
    [
        (["id", "day"], True),
        pytest.param("target.id = source.id and target.day = 'mon'", True, marks=pytest.mark.long),
        ("id", False),
    ],
)
def test_a_merge_has_read_where_its_rows_may_match(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path, on: Any, elsewhere: bool
) -> None:
    table = lake.create_table(new_name(), SCHEMA, partition_by=["day"], profile="delta_serializable")
    table.insert(frame(spark, (1, 1, "mon"), (2, 2, "tue")))
    held, other = Held(spark, tmp_path, "merging"), Table(lake, table.meta)
    source = frame(spark, (1, 10, "mon"), (3, 30, "mon"))

    def merge() -> None:
        merging = table.merge(source, on).when_matched_update({"amount": "merging(source.amount)"})
        merging.when_not_matched_insert().execute()

    lost = held.run(merge, lambda: other.insert(frame(spark, (9, 9, "tue"))))
    if not elsewhere:
        assert isinstance(lost, ConflictError)
        return
    assert lost is None
    assert {row["id"]: row["amount"] for row in stored_rows(table)} == {1: 10, 2: 2, 3: 30, 9: 9}
    assert isinstance(held.run(merge, lambda: other.insert(frame(spark, (8, 8, "mon")))), ConflictError)


def test_a_merge_by_what_the_source_lacks_reads_everything(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    table = lake.create_table(new_name(), SCHEMA, partition_by=["day"], profile="delta_serializable")
    table.insert(frame(spark, (1, 1, "mon"), (2, 2, "tue")))
    held, other = Held(spark, tmp_path, "lacking"), Table(lake, table.meta)
    merging = table.merge(frame(spark, (1, 10, "mon")), ["id", "day"])
    merging = merging.when_not_matched_by_source_delete(condition="lacking(target.id) = 2")
    lost = held.run(merging.execute, lambda: other.insert(frame(spark, (9, 9, "tue"))))
    assert isinstance(lost, ConflictError)


def test_a_merge_without_rows_or_with_null_partitions(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), SCHEMA, partition_by=["day"])
    table.insert(frame(spark, (1, 1, "mon"), (2, 2, None)))
    table.merge(frame(spark), ["id", "day"]).when_matched_delete().execute()
    merging = table.merge(frame(spark, (2, 20, None), (1, 10, "mon")), ["id", "day"])
    merging.when_matched_update().when_not_matched_insert().execute()
    found = sorted((row["id"], row["amount"]) for row in stored_rows(table))
    assert found == [(1, 10), (2, 2), (2, 20)]  # NULL equals nothing


@pytest.mark.long
def test_null_inside_of_structs(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    inner = "struct<x:int not null,y:int>"
    schema = f"id bigint, s {inner}, l array<{inner}>, m map<string,{inner}>, q array<int> not null"
    good = [
        "1L, named_struct('x', 1, 'y', null), array(), map(), array(null)",
        f"2L, cast(null as {inner}), null, null, array()",
        "3L, named_struct('x', 1, 'y', 2), array(named_struct('x', 1, 'y', 1), null), map('k', null), array(1)",
    ]
    bad = [
        "4L, named_struct('x', cast(null as int), 'y', 1), null, null, array()",
        "4L, null, array(named_struct('x', 1, 'y', 1), named_struct('x', cast(null as int), 'y', 1)), null, array()",
        "4L, null, null, map('k', named_struct('x', cast(null as int), 'y', 1)), array()",
        "4L, null, null, null, null",
    ]

    def row(text: str) -> DataFrame:
        return spark.sql(f"select {text}").toDF("id", "s", "l", "m", "q")

    table = lake.create_table(new_name(), schema, primary_key=["id"], buckets=2)
    for text in good:
        table.insert(row(text))
    for text in bad:
        with pytest.raises(InputError, match="NULL_NOT_ALLOWED"):
            table.insert(row(text))
    with pytest.raises(InputError, match="NULL_NOT_ALLOWED"):
        table.update({"q": "null"}, where="id = 1")
    with pytest.raises(InputError, match="NULL_NOT_ALLOWED"):
        table.update({"s": "struct(cast(null as int) as x, s.y as y)"}, where="id = 1")
    table.delete("id = 2")
    assert sorted(one["id"] for one in stored_rows(table)) == [1, 3]
