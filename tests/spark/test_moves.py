"""Keys that are unique within a partition: rows that move, and merges by partitions that are NULL."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from laketx import ConflictError, InputError, Lake, Table
from metaservice.client import InvalidError, key_scope
from tests.spark.sql import SqlReads
from tests.spark.stored import staged_folders, stored_rows

Names = Callable[[], str]
SCHEMA = "id bigint, v bigint, day string"
Row = tuple[int, int | None, str | None]


def frame(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def content(table: Table) -> list[Row]:
    return sorted(((row["id"], row["v"], row["day"]) for row in stored_rows(table)), key=repr)


def make(lake: Lake, name: str, *rows: Row, profile: str = "") -> Table:
    table = lake.create_table(
        name, SCHEMA, primary_key=["id"], buckets=2, partition_by=["day"], key_scope="partition", profile=profile
    )
    table.insert(frame(lake.spark, *rows))
    return table


def test_a_key_without_the_partition_is_refused_unless_asked_for(lake: Lake, new_name: Names) -> None:
    name = new_name()
    with pytest.raises(InvalidError, match="KEY_LACKS_PARTITION"):
        lake.create_table(name, SCHEMA, primary_key=["id"], partition_by=["day"])
    within = lake.create_table(name, SCHEMA, primary_key=["id"], partition_by=["day"], key_scope="partition")
    whole = lake.create_table(new_name(), SCHEMA, primary_key=["day", "id"], partition_by=["day"])
    assert [key_scope(one.meta) for one in (within, whole)] == ["partition", "table"]
    with pytest.raises(InputError, match="KEY_SET"):
        whole.update({"day": "'tue'"})


@pytest.mark.long
def test_no_row_moves_onto_a_key_that_is_there(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    rows: list[Row] = [(1, 1, "mon"), (1, 7, "tue"), (2, 2, "mon"), (3, 3, "mon"), (3, 3, None)]
    table = make(lake, new_name(), *rows)
    source = frame(spark, (1, 100, "tue"), (2, 200, "tue"))
    matched = "target.id = source.id and target.day = 'mon'"
    moves: list[Callable[[], Any]] = [
        lambda: table.update({"day": "'tue'"}, where="day = 'mon'"),
        lambda: table.update({"DAY": "null"}, where="v = 3 and day = 'mon'"),
        lambda: table.merge(source, on=matched).when_matched_update({"Day": "source.day"}).execute(),
        lambda: table.merge(source, on=matched).when_not_matched_by_source_update({"day": "null"}).execute(),
    ]
    for move in moves:
        folders = staged_folders(table)
        with pytest.raises(InputError) as refused:
            move()
        assert refused.value.reason == "KEY_EXISTS"
        assert (content(table), staged_folders(table)) == (sorted(rows, key=repr), folders)


def test_no_two_rows_move_onto_one_key(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    rows: list[Row] = [(1, 1, "mon"), (1, 2, "tue"), (2, 3, "mon")]
    table = make(lake, new_name(), *rows)
    moves: list[Callable[[], Any]] = [
        lambda: table.update({"day": "'wed'"}),
        lambda: table.merge(frame(spark, (1, 9, "wed")), on="id").when_matched_update().execute(),
    ]
    for move in moves:
        with pytest.raises(InputError) as refused:
            move()
        assert refused.value.reason == "KEY_EXISTS"
        assert content(table) == rows


@pytest.mark.long
def test_rows_move_to_keys_that_are_free_or_left(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = make(lake, new_name(), (1, 1, "mon"), (1, 2, "tue"), (2, 3, "mon"), (4, 4, None))
    table.update({"day": "if(day = 'mon', 'tue', 'mon')"}, where="id = 1")  # they swap
    assert content(table) == [(1, 1, "tue"), (1, 2, "mon"), (2, 3, "mon"), (4, 4, None)]
    table.delete("id = 1 and day = 'tue'")
    table.update({"day": "'tue'"}, where="id < 3")  # the key of a row that is gone is free
    assert content(table) == [(1, 2, "tue"), (2, 3, "tue"), (4, 4, None)]
    moved = frame(spark, (1, 5, "wed"), (4, 6, "wed"), (5, 7, "wed"))
    table.merge(moved, on="id").when_matched_update().when_not_matched_insert().execute()
    assert content(table) == [(1, 5, "wed"), (2, 3, "tue"), (4, 6, "wed"), (5, 7, "wed")]
    table.update({"day": "cast(null as string)", "v": "v + cast(rand() * 0 as bigint)"}, where="day = 'wed'")
    assert content(table) == [(1, 5, None), (2, 3, "tue"), (4, 6, None), (5, 7, None)]


@pytest.mark.parametrize("profile", ["delta_write_serializable", "row_level"])
def test_a_key_that_comes_meanwhile_where_a_row_moves_to_is_a_conflict(
    lake: Lake, spark: SparkSession, new_name: Names, profile: str
) -> None:
    table = make(lake, new_name(), (1, 1, "mon"), profile=profile)
    txn = lake.transaction()
    txn.table(table.name).update({"day": "'tue'"}, where="day = 'mon'")
    table.insert(frame(spark, (1, 2, "tue")))
    with pytest.raises(ConflictError):
        txn.__exit__(None, None, None)
    assert content(table) == [(1, 1, "mon"), (1, 2, "tue")]


@pytest.mark.parametrize("upsert", [False, True])
def test_merges_by_partition_match_null_with_null(
    lake: Lake, spark: SparkSession, new_name: Names, upsert: bool
) -> None:
    table = make(lake, new_name(), (1, 1, None), (1, 1, "mon"), (2, 2, None), (3, 3, "mon"))
    source = frame(spark, (1, 10, None), (3, 30, "mon"), (4, 40, None), (3, 31, None))
    merge = table.merge(source, on=["day", "id"])
    if upsert:
        merge.when_matched_update().when_not_matched_insert().execute()
    else:
        merge = merge.when_matched_update({"v": "target.v + source.v"}).when_not_matched_insert()
        merge.when_not_matched_by_source_delete(condition="target.id = 2").execute()
    plus = 0 if upsert else 1
    rest: list[Row] = [(2, 2, None)] if upsert else []
    wanted: list[Row] = [(1, 1, "mon"), (1, 10 + plus, None), (3, 30 + 3 * plus, "mon"), (3, 31, None), (4, 40, None)]
    assert content(table) == sorted(wanted + rest, key=repr)
    table.merge(frame(spark, (4, 0, None)), on=["id", "day"]).when_matched_delete().execute()
    assert content(table) == sorted([one for one in wanted + rest if one[0] != 4], key=repr)


def test_spark_writes_no_keys_that_are_unique_across_partitions(
    lake: Lake, spark: SparkSession, new_name: Names
) -> None:
    name = new_name()
    table = lake.create_table(name, SCHEMA, primary_key=["id"], partition_by=["day"], key_scope="table")
    table.upsert([{"id": 1, "v": 1, "day": "mon"}])
    rows = frame(spark, (1, 2, "tue"))
    sql = SqlReads(lake)
    writes: list[Callable[[], Any]] = [
        lambda: table.insert(rows),
        lambda: table.overwrite(rows),
        lambda: table.merge(rows, on="id").when_matched_update().execute(),
        lambda: sql(f"INSERT INTO {{lake}}.{name} VALUES (1, 2, 'tue')"),
        lambda: sql(f"UPDATE {{lake}}.{name} SET v = 2"),
        lambda: sql(f"DELETE FROM {{lake}}.{name} WHERE v > 0 AND id + 1 = 2"),
        lambda: _in_transaction(lake, name, rows),
    ]
    for write in writes:
        with pytest.raises(Exception, match="KEYS_NOT_LOOKED_UP"):
            write()
    assert content(table) == [(1, 1, "mon")]
    table.update({"day": "'wed'"}, where="id = 1")  # not by Spark, although it runs
    assert content(table) == [(1, 1, "wed")]
    assert [row["day"] for row in table.read().collect()] == ["wed"]


def _in_transaction(lake: Lake, name: str, rows: DataFrame) -> None:
    with lake.transaction() as txn:
        txn.table(name).insert(rows)
