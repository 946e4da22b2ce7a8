"""What is wrong is said clearly, before any Spark job and with nothing begun or staged, at every call of the front."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import InputError, Lake, Table, connect
from metaservice.client import LakeTXError, MetaServiceError
from protos.laketx.v1 import transaction_pb2
from tests.spark.stored import live, staged_folders, stored_rows

SCHEMA = "id bigint, name string not null, amount decimal(5,2), day date, at struct<zip:string>"
_groups = count()

Call = Callable[[Table, DataFrame], Any]


@pytest.fixture(scope="module")
def tables(lake: Lake, spark: SparkSession) -> list[Table]:
    """Of both kinds; with one row each."""
    found = []
    for keys in ([], ["id"]):
        name = "bad.keyed" if keys else "bad.append"
        scope = {"key.scope": "partition"} if keys else {}
        found.append(lake.create_table(name, SCHEMA, primary_key=keys, partition_by=["day"], properties=scope))
        found[-1].insert(one_row(spark))
    return found


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return one_row(spark)


def one_row(spark: SparkSession, *changed: str) -> DataFrame:
    """A good row, with some columns made in another way."""
    names = {text.rpartition(" as ")[2] for text in changed}
    good = {
        "id": "1L as id",
        "name": "'a' as name",
        "amount": "1.50BD as amount",
        "day": "DATE '2026-11-01' as day",
        "at": "named_struct('zip', 'z') as at",
    }
    return spark.range(1).selectExpr(*[text for name, text in good.items() if name not in names], *changed)


@contextmanager
def nothing_happens(table: Table, *, jobs: bool = False) -> Iterator[None]:
    """No job runs (unless rows have to be looked at), no version is made, no folder stays, no transaction is open."""
    client, context, group = table.lake.client, table.lake.spark.sparkContext, f"bad-{next(_groups)}"

    def state() -> tuple[Any, ...]:
        meta = table.refresh().meta
        return staged_folders(table), meta.head_version, meta.schema_version

    def latest() -> transaction_pb2.Transaction:
        return next(client.list_transactions(table_id=table.table_id, page_size=1))

    before, begun = state(), latest()
    context.setJobGroup(group, group)
    try:
        yield
    finally:
        context.setJobGroup("", "")
    if not jobs:
        assert list(context.statusTracker().getJobIdsForGroup(group)) == []
        assert latest() == begun
    assert latest().state != transaction_pb2.TRANSACTION_STATE_OPEN
    assert state() == before


def expect_refusal(table: Table, work: Callable[[], Any], reason: str, *, jobs: bool = False) -> None:
    with nothing_happens(table, jobs=jobs), pytest.raises(LakeTXError) as caught:
        work()
    error = caught.value
    assert isinstance(error, (InputError, MetaServiceError)), repr(error)
    assert error.reason == reason, str(error)
    assert len(str(error)) > len(reason) + 5  # a reason alone helps nobody
    if isinstance(error, MetaServiceError):
        assert all(value in str(error) for value in error.facts.values())


# What the shape of the rows tells: the changed columns of a row, and why no write takes it.
SHAPES: list[tuple[list[str], str]] = [
    (["'x' as id"], "SCHEMA_MISMATCH"),
    (["array(1) as id"], "SCHEMA_MISMATCH"),
    (["named_struct('zip', 'z', 'more', 1) as at"], "COLUMN_UNKNOWN"),
    (["'z' as at"], "SCHEMA_MISMATCH"),
    (["'2026-11-01' as day"], "SCHEMA_MISMATCH"),
    (["1 as unknown"], "COLUMN_UNKNOWN"),
    (["1 as ID", "2L as id"], "COLUMN_TWICE"),
    (["0 as _op"], "COLUMN_UNKNOWN"),
    (["0L as _row_id"], "COLUMN_UNKNOWN"),
]


@pytest.mark.parametrize(
    "write", ["insert", *(pytest.param(one, marks=pytest.mark.long) for one in ("overwrite", "dynamic"))]
)
def test_rows_of_another_shape(spark: SparkSession, tables: list[Table], write: str) -> None:
    table = tables[write == "insert"]

    def attempt(rows: DataFrame) -> Any:
        if write == "insert":
            return table.insert(rows)
        return table.overwrite(rows, partition="dynamic" if write == "dynamic" else "all")

    for changed, reason in SHAPES:
        expect_refusal(table, partial(attempt, one_row(spark, *changed)), reason)
    for name in ("name", "day", *table.meta.primary_key):
        expect_refusal(table, partial(attempt, one_row(spark).drop(name)), "COLUMN_MISSING")


BAD_CALLS: dict[str, tuple[Call, str]] = {
    # conditions
    "delete where": (lambda t, _: t.delete("unknown = 1"), "CONDITION_INVALID"),
    "delete no condition": (lambda t, _: t.delete("id +"), "CONDITION_INVALID"),
    "delete no boolean": (lambda t, _: t.delete("name"), "CONDITION_INVALID"),
    "delete with a window": (lambda t, _: t.delete("row_number() over (order by id) = 1"), "CONDITION_INVALID"),
    "delete with an aggregate": (lambda t, _: t.delete("id = max(id)"), "CONDITION_INVALID"),
    "update where": (lambda t, _: t.update({"name": "'b'"}, where="unknown = 1"), "CONDITION_INVALID"),
    "update field": (lambda t, _: t.update({"name": "'b'"}, where="at.city = 'x'"), "CONDITION_INVALID"),
    # what is set
    "set nothing": (lambda t, _: t.update({}), "SETTINGS_EMPTY"),
    "set unknown": (lambda t, _: t.update({"unknown": "1"}), "COLUMN_UNKNOWN"),
    "set twice": (lambda t, _: t.update({"name": "'a'", "NAME": "'b'"}), "COLUMN_TWICE"),
    "set another type": (lambda t, _: t.update({"amount": "'x'"}), "VALUE_INVALID"),
    "set another shape": (lambda t, _: t.update({"at": "named_struct('zip', '', 'more', 1)"}), "COLUMN_UNKNOWN"),
    "set from unknown": (lambda t, _: t.update({"name": "unknown"}), "VALUE_INVALID"),
    "set no expression": (lambda t, _: t.update({"name": "'a"}), "VALUE_INVALID"),
    # partitions
    "overwrite elsewhere": (lambda t, df: t.overwrite(df, partition={"hour": 1}), "PARTITION_INVALID"),
    "overwrite no date": (lambda t, df: t.overwrite(df, partition={"day": "today"}), "VALUE_INVALID"),
    "overwrite nothing": (lambda t, df: t.overwrite(df, partition=[]), "PARTITION_INVALID"),
    "overwrite a word": (lambda t, df: t.overwrite(df, partition="day"), "PARTITION_INVALID"),  # type: ignore[arg-type]
    "truncate elsewhere": (lambda t, _: t.truncate(partition={"hour": 1}), "PARTITION_INVALID"),
    "truncate dynamic": (lambda t, _: t.truncate(partition="dynamic"), "PARTITION_INVALID"),
    "restore dynamic": (lambda t, _: t.restore(version=1, partition="dynamic"), "PARTITION_INVALID"),
    "restore elsewhere": (lambda t, _: t.restore(version=1, partition={"day": 1.5}), "VALUE_INVALID"),
    # versions
    "restore the future": (lambda t, _: t.restore(version=99), "VERSION_IN_FUTURE"),
    "restore nothing": (lambda t, _: t.restore(), "VERSION_INVALID"),
    "restore two": (lambda t, _: t.restore(version=1, commits_ago=1), "VERSION_INVALID"),
    "restore below 0": (lambda t, _: t.restore(version=-1), "VERSION_INVALID"),
    "read the future": (lambda t, _: t.read(version=99), "VERSION_IN_FUTURE"),
    "read two": (lambda t, _: t.read(version=1, commits_ago=0), "VERSION_AMBIGUOUS"),
    "read below 0": (lambda t, _: t.read(version=-1), "VERSION_INVALID"),
    "read no time": (lambda t, _: t.read(timestamp="yesterday"), "TIMESTAMP_INVALID"),
    "read before it was": (lambda t, _: t.read(timestamp="1999-01-01"), "VERSION_RETIRED"),
    "read too far back": (lambda t, _: t.read(commits_ago=99), "VERSION_RETIRED"),
    "changes of no mode": (lambda t, _: t.changes(since=0, mode="all"), "MODE_INVALID"),
    "changes backwards": (lambda t, _: t.changes(since=1, until=0), "RANGE_INVALID"),
    "changes of the future": (lambda t, _: t.changes(since=0, until=99), "VERSION_IN_FUTURE"),
    "changes since what": (lambda t, _: t.changes(since=1.5), "POINT_INVALID"),  # type: ignore[arg-type]
    # policies
    "insert policy": (lambda t, df: t.insert(df, on_conflict="try"), "POLICY_INVALID"),  # type: ignore[arg-type]
    "update policy": (lambda t, _: t.update({"name": "'b'"}, on_conflict="resubmit"), "POLICY_INVALID"),
    # merges
    "merge nothing": (lambda t, df: t.merge(df, on="id").execute(), "MERGE_EMPTY"),
    "merge on unknown": (lambda t, df: t.merge(df, on="unknown").when_matched_delete().execute(), "CONDITION_INVALID"),
    "merge on a list": (
        lambda t, df: t.merge(df, on=["id", "unknown"]).when_matched_delete().execute(),
        "CONDITION_INVALID",
    ),
    "merge condition": (
        lambda t, df: t.merge(df, on="id").when_matched_delete(condition="source.unknown > 1").execute(),
        "CONDITION_INVALID",
    ),
    "merge sets unknown": (
        lambda t, df: t.merge(df, on="id").when_matched_update({"unknown": "1"}).execute(),
        "COLUMN_UNKNOWN",
    ),
    "merge sets from unknown": (
        lambda t, df: t.merge(df, on="id").when_matched_update({"name": "source.unknown"}).execute(),
        "VALUE_INVALID",
    ),
    "merge inserts another type": (
        lambda t, df: t.merge(df, on="id").when_not_matched_insert({"id": "1", "name": "array(1)"}).execute(),
        "VALUE_INVALID",
    ),
    # columns
    "add again": (lambda t, _: t.add_columns("name string"), "COLUMN_EXISTS"),
    "add reserved": (lambda t, _: t.add_columns("_op int"), "COLUMN_RESERVED"),
    "add reserved by the worker": (lambda t, _: t.add_columns("_laketx_path string"), "COLUMN_RESERVED"),
    "add what": (lambda t, _: t.add_columns("x nothing"), "COLUMNS_INVALID"),
    "add an interval": (lambda t, _: t.add_columns("x interval day to second"), "TYPE_NOT_SUPPORTED"),
    "rename unknown": (lambda t, _: t.rename_column("unknown", "x"), "COLUMN_UNKNOWN"),
    "rename onto another": (lambda t, _: t.rename_column("name", "amount"), "COLUMN_EXISTS"),
    "rename to reserved": (lambda t, _: t.rename_column("name", "_LakeTX_at"), "COLUMN_RESERVED"),
    "rename oddly": (lambda t, _: t.rename_column("name", "my\tname"), "NAME_INVALID"),
    "drop unknown": (lambda t, _: t.drop_column("unknown"), "COLUMN_UNKNOWN"),
    "drop a partition": (lambda t, _: t.drop_column("day"), "COLUMN_FIXED"),
    "narrow": (lambda t, _: t.widen_column("amount", "decimal(4,2)"), "TYPE_NOT_WIDER"),
    "property": (lambda t, _: t.set_properties(**{"write.nothing": "1"}), "PROPERTY_UNKNOWN"),
    "property value": (lambda t, _: t.set_properties(**{"write.on_conflict": "try"}), "PROPERTY_INVALID"),
    "merged schema of other rows": (
        lambda t, df: t.insert(df.selectExpr("* except (id)", "'x' as id", "1 as fresh"), merge_schema=True),
        "SCHEMA_MISMATCH",
    ),
    "merged schema": (lambda t, df: t.insert(df.withColumn("_op", sf.lit(1)), merge_schema=True), "COLUMN_RESERVED"),
}


WRITES = ("insert", "overwrite", "truncate", "restore", "update", "delete", "set", "merge")


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_call(lake: Lake, tables: list[Table], rows: DataFrame, name: str) -> None:
    """On one kind of table; on the other in a transaction, where it is said when it is asked for."""
    call, reason = BAD_CALLS[name]
    first, second = tables if len(name) % 2 else tables[::-1]
    expect_refusal(first, partial(call, first, rows), reason)
    if name.split()[0] in WRITES:
        with lake.transaction() as txn:
            expect_refusal(second, partial(call, txn.table(second.name), rows), reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["unknown = 1", "id = = 1", "at.city = 'x'", "name"])
def test_a_read_of_a_bad_condition(tables: list[Table], where: str) -> None:
    for table in tables:
        expect_refusal(table, partial(table.read, where=where), "CONDITION_INVALID")


KEYED_CALLS: dict[str, tuple[Call, str]] = {
    "set a key": (lambda t, _: t.update({"id": "1"}), "KEY_SET"),
    "merge sets a key": (lambda t, df: t.merge(df, on="id").when_matched_update({"id": "1"}).execute(), "KEY_SET"),
    "merge inserts no key": (
        lambda t, df: t.merge(df, on="id").when_not_matched_insert({"name": "'x'"}).execute(),
        "COLUMN_MISSING",
    ),
    "order by unknown": (lambda t, df: t.insert(df, order_by="unknown"), "COLUMN_UNKNOWN"),
    "drop a key": (lambda t, _: t.drop_column("id"), "COLUMN_FIXED"),
    "widen a key": (lambda t, _: t.widen_column("id", "decimal(20,0)"), "COLUMN_FIXED"),
}


def test_bad_calls_on_keys(tables: list[Table], rows: DataFrame) -> None:
    for call, reason in KEYED_CALLS.values():
        expect_refusal(tables[1], partial(call, tables[1], rows), reason)


def test_what_only_rows_tell_leaves_nothing_either(spark: SparkSession, tables: list[Table], rows: DataFrame) -> None:
    no_name, no_id = one_row(spark, "cast(null as string) as name"), one_row(spark, "cast(null as bigint) as id")
    both: list[tuple[Call, str]] = [
        (lambda t, _: t.insert(no_name), "NULL_NOT_ALLOWED"),
        (lambda t, _: t.update({"name": "nullif(name, 'a')"}), "NULL_NOT_ALLOWED"),
        (lambda t, df: t.overwrite(df, partition={"day": "1999-01-01"}), "ROW_OUTSIDE_PARTITION"),
        (lambda t, df: t.merge(df.union(df), on="id").when_matched_update().execute(), "MERGE_AMBIGUOUS"),
    ]
    keyed: list[tuple[Call, str]] = [
        (lambda t, _: t.insert(no_id), "NULL_NOT_ALLOWED"),
        (lambda t, df: t.insert(df.union(df)), "KEY_TWICE"),
    ]
    for at, (call, reason) in enumerate(both):
        expect_refusal(tables[at % 2], partial(call, tables[at % 2], rows), reason, jobs=True)
    for call, reason in keyed:
        expect_refusal(tables[1], partial(call, tables[1], rows), reason, jobs=True)
    assert [[row["id"] for row in stored_rows(table)] for table in tables] == [[1], [1]]


LAKE_CALLS: dict[str, tuple[Callable[[Lake], Any], str]] = {
    "table": (lambda lake: lake.table("bad.none"), "TABLE_UNKNOWN"),
    "table of no name": (lambda lake: lake.table("no name"), "TABLE_UNKNOWN"),
    "drop": (lambda lake: lake.drop_table("bad.none"), "TABLE_UNKNOWN"),
    "undrop": (lambda lake: lake.undrop_table("bad.none"), "TABLE_UNKNOWN"),
    "create twice": (lambda lake: lake.create_table("bad.append", "id int"), "TABLE_EXISTS"),
    "create without columns": (lambda lake: lake.create_table("bad.new", ""), "COLUMNS_INVALID"),
    "create oddly": (lambda lake: lake.create_table("bad.new", "`my\x7fid` int"), "NAME_INVALID"),
    "create a name": (lambda lake: lake.create_table("a.b.c", "id int"), "NAME_INVALID"),
    "create a type": (lambda lake: lake.create_table("bad.new", "id variant"), "TYPE_NOT_SUPPORTED"),
    "create twins": (lambda lake: lake.create_table("bad.new", "id int, ID int"), "COLUMN_TWICE"),
    "create a key": (lambda lake: lake.create_table("bad.new", "id int", primary_key=["no"]), "COLUMN_UNKNOWN"),
    "create a key in a word": (
        lambda lake: lake.create_table("bad.new", "id int", primary_key="id"),
        "COLUMNS_INVALID",
    ),
    "create a partition": (
        lambda lake: lake.create_table("bad.new", "id int", partition_by=["no"]),
        "COLUMN_UNKNOWN",
    ),
    "create no bucket": (
        lambda lake: lake.create_table("bad.new", "id int", primary_key=["id"], buckets=0),
        "BUCKETS_INVALID",
    ),
    "create buckets alone": (lambda lake: lake.create_table("bad.new", "id int", buckets=2), "BUCKETS_INVALID"),
    "create a profile": (lambda lake: lake.create_table("bad.new", "id int", profile="fast"), "PROFILE_UNKNOWN"),
    "create a nested key": (
        lambda lake: lake.create_table("bad.new", "id array<int>", primary_key=["id"]),
        "TYPE_NOT_ALLOWED",
    ),
    "create a real key": (
        lambda lake: lake.create_table("bad.new", "id double", primary_key=["id"]),
        "TYPE_NOT_ALLOWED",
    ),
    "transaction": (lambda lake: lake.transaction().table("bad.none"), "TABLE_UNKNOWN"),
    "import nothing": (lambda lake: lake.import_parquet("/nowhere/at/all", "bad.new"), "PATH_UNKNOWN"),
    "import from nowhere": (lambda lake: lake.import_parquet("gopher://x/y", "bad.new"), "PATH_INVALID"),
}


@pytest.mark.parametrize("name", LAKE_CALLS)
def test_a_bad_call_of_the_lake(lake: Lake, tables: list[Table], name: str) -> None:
    call, reason = LAKE_CALLS[name]
    expect_refusal(tables[0], partial(call, lake), reason)
    assert "bad.new" not in lake.tables("bad")


def test_files_that_are_none(lake: Lake, tables: list[Table], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    expect_refusal(tables[0], lambda: lake.import_parquet(tmp_path / "empty", "bad.new"), "FILES_MISSING")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "a.parquet").write_bytes(b"PAR1 and then nothing")
    expect_refusal(tables[0], lambda: lake.import_parquet(tmp_path / "torn", "bad.new"), "FILE_UNREADABLE")
    assert "bad.new" not in lake.tables("bad")


def test_places_that_are_none(tables: list[Table], spark: SparkSession) -> None:
    expect_refusal(tables[0], lambda: connect("laketx://127.0.0.1:1", spark), "WAREHOUSE_MISSING")
    expect_refusal(tables[0], lambda: connect("http://127.0.0.1", spark), "ADDRESS_INVALID")


def test_a_warehouse_that_takes_no_files(lake_folder: Path, spark: SparkSession, tmp_path: Path) -> None:
    """Spark says why, and no transaction is left."""
    (tmp_path / "taken").write_text("a file")
    with connect(lake_folder, spark, warehouse=str(tmp_path / "taken")) as elsewhere:
        table = elsewhere.create_table("bad.elsewhere", "id bigint")
        with pytest.raises(Exception, match=r"taken|Not a directory|Mkdirs"):
            table.insert(spark.range(1))
        assert list(elsewhere.client.list_transactions(table_id=table.table_id)) == []  # it begins with its commit
        assert table.refresh().meta.head_version == 0


def test_a_file_that_is_gone(lake: Lake, spark: SparkSession) -> None:
    """A read says which file is missing; a change that has to read it does nothing."""
    table = lake.create_table("bad.gone", "id bigint")
    table.insert(spark.range(3))
    [found] = [Path(table.folder) / one.file.path for one in live(table)][:1]
    found.unlink()
    with pytest.raises(Exception, match=found.name):
        table.read().collect()
    with pytest.raises(Exception, match=found.name):
        table.update({"id": "id + 1"})
    assert table.refresh().meta.head_version == 1
    state = transaction_pb2.TRANSACTION_STATE_OPEN
    assert list(lake.client.list_transactions(state=state, table_id=table.table_id)) == []
