"""What the worker says of rows: keys as buckets go by them, ranges of ids; and what comes of it."""

from collections.abc import Callable

import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from laketx import ConflictError, Lake, Table
from protos.laketx.v1 import common_pb2
from tests.spark.stored import live, stored_rows
from worker.arrow.scan.inlined_rows import rows_in
from worker.arrow.write.staged_rows import key_sets
from worker.files.delete_sets import ranges_of

Names = Callable[[], str]
SCHEMA = "id bigint, amount bigint, day string"


def make(lake: Lake, spark: SparkSession, name: str, *, keyed: bool) -> Table:
    key = ["id"] if keyed else []
    buckets = 2 if keyed else None
    table = lake.create_table(
        name,
        SCHEMA,
        primary_key=key,
        buckets=buckets,
        partition_by=["day"],
        key_scope="partition" if keyed else None,
        profile="row_level",
    )
    table.insert(spark.createDataFrame([(i, i * 10, "mon") for i in range(20)], SCHEMA))
    return table


def amounts(table: Table) -> dict[int, int]:
    return {row["id"]: row["amount"] for row in stored_rows(table)}


@pytest.mark.parametrize("keyed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_updates_of_different_rows_of_one_file_both_commit(
    lake: Lake, spark: SparkSession, new_name: Names, keyed: bool
) -> None:
    table = make(lake, spark, new_name(), keyed=keyed)
    with lake.transaction() as txn:
        txn.table(table.name).update({"amount": "amount + 1"}, where="id = 2")
        table.update({"amount": "amount + 1"}, where="id = 4")
    assert amounts(table) == {i: i * 10 + (i in (2, 4)) for i in range(20)}
    with pytest.raises(ConflictError) as lost, lake.transaction() as txn:  # noqa: PT012
        txn.table(table.name).update({"amount": "amount + 1"}, where="id = 6")
        table.delete("id = 6")
    assert lost.value.conflict.rule == common_pb2.CONFLICT_RULE_CONCURRENT_ROW_CHANGE
    assert 6 not in amounts(table)


def test_a_delete_by_key_brings_no_new_rows(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    """Nobody can tell from statistics which ids are even."""
    table = make(lake, spark, new_name(), keyed=True)
    with lake.transaction() as txn:
        txn.table(table.name).update({"amount": "amount + 1"}, where="id % 2 = 0")
        table.delete("id = 5")
    assert amounts(table) == {i: i * 10 + (i % 2 == 0) for i in range(20) if i != 5}
    [(tombstones, rows)] = [(e.file.tombstones, e.file.rows) for e in live(table) if e.added_version == 2]
    assert (tombstones, rows) == (1, 1)


def test_what_a_transaction_read_must_still_be_there(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = make(lake, spark, new_name(), keyed=False)
    with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012
        mine = txn.table(table.name)
        counted = mine.read(where="id < 5").count()
        mine.insert(spark.createDataFrame([(100, counted, "tue")], SCHEMA))
        table.delete("id = 3")
    with lake.transaction() as txn:
        mine = txn.table(table.name)
        counted = mine.read(where="id < 5").count()
        mine.insert(spark.createDataFrame([(100, counted, "tue")], SCHEMA))
        table.insert(spark.createDataFrame([(200, 0, "wed")], SCHEMA))
    assert amounts(table)[100] == 4


def test_the_hashes_of_keys_are_those_that_buckets_go_by(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = make(lake, spark, new_name(), keyed=True)
    files = [entry.file for entry in lake.client.list_files(table.table_id)]
    parts = [rows_in(one.content) if one.content else pq.read_table(f"{table.folder}/{one.path}") for one in files]
    sets = key_sets(table.meta, files, parts)
    assert sorted((one.bucket, len(one.hashes)) for one in sets) == sorted((file.bucket, file.rows) for file in files)
    assert all(hash_ % 2 == one.bucket for one in sets for hash_ in one.hashes)


def test_ranges_hold_every_id_and_are_cut_where_the_gaps_are_widest() -> None:
    ids = BitMap64([1, 2, 3, 10, 11, 1_000, 2**40])
    assert [(one.first, one.last) for one in ranges_of(ids)] == [(1, 3), (10, 11), (1_000, 1_000), (2**40, 2**40)]
    assert [(one.first, one.last) for one in ranges_of(ids, most=2)] == [(1, 1_000), (2**40, 2**40)]
    assert [(one.first, one.last) for one in ranges_of(ids, most=1)] == [(1, 2**40)]
    assert [(one.first, one.last) for one in ranges_of(BitMap64([7]))] == [(7, 7)]
