"""UPDATE, DELETE and MERGE on both kinds of table, against a plain dict of rows."""

import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from laketx import InputError, Lake, Table
from tests.spark.stored import live, row_ids, staged_folders, stored_rows

Names = Callable[[], str]
SCHEMA = "id bigint, amount bigint, day string"
MANY = 3_000_000  # of which more are hidden than an entry has room for
DAYS = ("mon", "tue", None)
Rows = dict[int, tuple[int | None, str | None]]


def frame(spark: SparkSession, rows: Rows) -> DataFrame:
    return spark.createDataFrame([(key, *values) for key, values in rows.items()], SCHEMA)


def make(lake: Lake, name: str, *, keyed: bool, parted: bool) -> Table:
    return lake.create_table(
        name,
        SCHEMA,
        primary_key=["id"] if keyed else [],
        buckets=2 if keyed else None,
        partition_by=["day"] if parted else [],
        key_scope="partition" if keyed else None,
    )


def content(table: Table, version: int | None = None) -> Rows:
    rows = stored_rows(table, version)
    found = {row["id"]: (row["amount"], row["day"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("parted", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_history_of_changes(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool, parted: bool) -> None:
    table = make(lake, new_name(), keyed=keyed, parted=parted)
    rows: Rows = {i: (i * 10, DAYS[i % 3]) for i in range(30)}
    table.insert(frame(spark, rows))
    versions = [dict(rows)]

    table.delete("id % 5 = 0")
    rows = {key: value for key, value in rows.items() if key % 5}
    versions.append(dict(rows))

    before = row_ids(table, "id") if not keyed else {}
    table.update({"amount": "amount + id"}, where="day = 'mon' or id > 25")
    rows = {k: (a + k if (d == "mon" or k > 25) and a is not None else a, d) for k, (a, d) in rows.items()}
    versions.append(dict(rows))
    if not keyed:  # an image keeps the id of its row
        after = row_ids(table, "id")
        assert {key: after[key] for key in rows} == {key: before[key] for key in rows}

    table.update({"day": "'tue'"}, where="id < 8")
    rows = {k: (a, "tue" if k < 8 else d) for k, (a, d) in rows.items()}
    versions.append(dict(rows))

    source = frame(spark, {1: (111, "mon"), 2: (None, "tue"), 50: (5, None), 51: (6, "mon")})
    (
        table.merge(source, on="id")
        .when_matched_delete(condition="source.amount is null")
        .when_matched_update({"amount": "source.amount + target.amount"})
        .when_not_matched_insert(condition="source.id <> 51")
        .when_not_matched_by_source_update({"amount": "-1"}, condition="target.id = 3")
        .when_not_matched_by_source_delete(condition="target.id >= 28")
        .execute()
    )
    rows[1] = (111 + (rows[1][0] or 0), rows[1][1])
    del rows[2]
    rows[50] = (5, None)
    rows[3] = (-1, rows[3][1])
    rows = {k: v for k, v in rows.items() if k == 50 or k < 28}
    versions.append(dict(rows))

    for version, expected in enumerate(versions, start=1):
        assert content(table, version) == expected
    assert table.refresh().meta.head_version == len(versions)


def test_a_row_that_changes_partition_has_a_new_id(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = make(lake, new_name(), keyed=False, parted=True)
    table.insert(frame(spark, {1: (1, "mon"), 2: (2, "mon")}))
    before = row_ids(table, "id")
    table.update({"day": "case when id = 1 then 'tue' else day end", "amount": "9"})
    after = row_ids(table, "id")
    assert (after[1] != before[1], after[2]) == (True, before[2])
    assert content(table) == {1: (9, "tue"), 2: (9, "mon")}


def test_a_key_that_leaves_its_partition_leaves_a_tombstone(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = make(lake, new_name(), keyed=True, parted=True)
    table.insert(frame(spark, {1: (1, "mon"), 2: (2, "tue")}))
    table.update({"day": "'tue'"}, where="day = 'mon'")
    assert content(table) == {1: (1, "tue"), 2: (2, "tue")}


def test_nothing_matched_is_a_commit_that_hides_nothing(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    for keyed in (False, True):
        table = make(lake, new_name(), keyed=keyed, parted=False)
        table.insert(frame(spark, {1: (1, "mon")}))
        files = len(live(table))
        table.delete("id = 99")
        table.update({"amount": "0"}, where="id = 99")
        assert (len(live(table)), content(table)) == (files, {1: (1, "mon")})


def test_bad_changes_are_refused_before_a_job(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = make(lake, new_name(), keyed=True, parted=False)
    table.insert(frame(spark, {1: (1, "mon"), 2: (1, "mon")}))
    folders, source = staged_folders(table), frame(spark, {1: (1, "mon")})
    bad: list[tuple[Callable[[], Any], str]] = [
        (lambda: table.delete("nothing = 1"), "CONDITION_INVALID"),
        (lambda: table.update({"nothing": "1"}), "COLUMN_UNKNOWN"),
        (lambda: table.update({"id": "1"}), "KEY_SET"),
        (lambda: table.update({"amount": "'x'"}), "VALUE_INVALID"),
        (lambda: table.update({}), "SETTINGS_EMPTY"),
        (lambda: table.merge(source, on="id").execute(), "MERGE_EMPTY"),
        (lambda: table.merge(source, on="target.no = 1").when_matched_delete().execute(), "CONDITION_INVALID"),
        (
            lambda: table.merge(source, on="id").when_not_matched_insert({"amount": "1"}).execute(),
            "COLUMN_MISSING",
        ),
    ]
    for change, reason in bad:
        with pytest.raises(InputError, match=reason):
            change()
    twice = spark.createDataFrame([(1, 5, "mon"), (1, 6, "mon")], SCHEMA)
    with pytest.raises(InputError, match="MERGE_AMBIGUOUS"):
        table.merge(twice, on="id").when_matched_update().execute()
    assert (staged_folders(table), table.refresh().meta.head_version) == (folders, 1)


@pytest.mark.long
def test_a_large_delete_set_is_kept_in_a_file(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint")
    table.insert(spark.range(MANY, numPartitions=2))
    table.delete("id % 7 = 3 or hash(id) % 3 = 0")
    [found] = [entry.delete_set for entry in live(table) if entry.HasField("delete_set")]
    assert (found.bitmap, len(found.touches)) == (b"", 2)
    assert found.bytes == (Path(table.folder) / found.path).stat().st_size
    kept = len(stored_rows(table))
    assert kept == MANY - found.rows
    assert kept == spark.range(MANY).where("not (id % 7 = 3 or hash(id) % 3 = 0)").count()
    assert table.read().count() == kept


def test_an_update_over_two_tables(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    one, two = (make(lake, new_name(), keyed=keyed, parted=False) for keyed in (False, True))
    for table in (one, two):
        table.insert(frame(spark, {1: (100, "mon"), 2: (0, "mon")}))
    with lake.transaction() as txn:
        txn.table(one.name).update({"amount": "amount - 10"}, where="id = 1")
        txn.table(two.name).update({"amount": "amount + 10"}, where="id = 2")
    assert (content(one)[1], content(two)[2]) == ((90, "mon"), (10, "mon"))


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
def test_random_changes(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    chance = random.Random(7 if keyed else 8)
    table = make(lake, new_name(), keyed=keyed, parted=True)
    rows: Rows = {}
    for step in range(6):
        low, high = sorted((chance.randrange(20), chance.randrange(20)))
        day = chance.choice(("mon", "tue"))
        match chance.choice(("insert", "insert", "update", "move", "delete", "overwrite")):
            case "insert":
                new: Rows = {key: (step, day) for key in range(low, high + 1) if key not in rows}
                rows |= new
                table.insert(frame(spark, new))
            case "update":
                rows = {k: (a if a is None else a * 2, d) if low <= k <= high else (a, d) for k, (a, d) in rows.items()}
                table.update({"amount": "amount * 2"}, where=f"id between {low} and {high}")
            case "move":
                rows = {k: (a, day) if low <= k <= high else (a, d) for k, (a, d) in rows.items()}
                table.update({"day": f"'{day}'"}, where=f"id between {low} and {high}")
            case "delete":
                rows = {k: v for k, v in rows.items() if not (low <= k <= high and v[1] == day)}
                table.delete(f"id between {low} and {high} and day = '{day}'")
            case _:
                rows = {k: v for k, v in rows.items() if v[1] != day}
                fresh: Rows = dict.fromkeys(range(100 + 10 * step, 103 + 10 * step), (-step, day))
                rows |= fresh
                table.overwrite(frame(spark, fresh), partition={"day": day})
        assert content(table) == rows


def test_dates_and_strings_as_partitions_of_a_delete(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    schema = "id bigint, day date, word string"
    table = lake.create_table(new_name(), schema, partition_by=["day", "word"])
    rows = [(1, date(1969, 1, 1), ""), (2, None, None), (3, date(2026, 1, 1), "a/b"), (4, None, "")]
    table.insert(spark.createDataFrame(rows, schema))
    table.delete("id in (1, 2)")
    assert sorted(row["id"] for row in stored_rows(table)) == [3, 4]
