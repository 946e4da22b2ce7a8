"""Writes that read nothing, on both kinds of table, against what the files hold."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from laketx import Commit, ConflictError, InputError, Lake, Table, connect
from metaservice.client import MetaServiceError
from tests.spark.held import Held
from tests.spark.stored import by, file_rows, live, staged_folders, stored_rows
from worker.spark.column_types import FIELD_ID

Names = Callable[[], str]


def frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


def test_create_makes_the_namespace_and_the_table(lake: Lake) -> None:
    table = lake.create_table("fresh_ns.orders", "id bigint, amount double, day date", primary_key=["id"], buckets=3)
    assert [(c.name, c.type, c.nullable) for c in table.meta.columns] == [
        ("id", "bigint", False),
        ("amount", "double", True),
        ("day", "date", True),
    ]
    assert (table.meta.buckets, lake.tables("fresh_ns")) == (3, ["fresh_ns.orders"])
    again = lake.create_table("fresh_ns.orders", "id int", if_not_exists=True)
    assert again.table_id == table.table_id
    lake.drop_table("fresh_ns.orders")
    assert lake.tables("fresh_ns") == []
    assert lake.undrop_table("fresh_ns.orders").table_id == table.table_id


def test_append_keeps_rows_ids_types_and_statistics(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, price decimal(10,2), at timestamp, note string, x double")
    before_1970 = datetime(1960, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    later = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
    df = frame(
        spark,
        "note string, at timestamp, price decimal(10,2), id bigint, x double",
        ("ä" * 100, before_1970, Decimal("-1.50"), 1, float("nan")),
        (None, later, None, 2, 2.0),
    ).coalesce(1)
    commit = table.insert(df, message="first")
    assert (commit.version, commit.rows_staged, commit.rebased_over) == (1, 2, 0)
    [entry] = live(table)
    stats = {one.column_id: one for one in entry.file.stats}
    ids = {column.name: column.column_id for column in table.meta.columns}
    assert (stats[ids["id"]].min.integer, stats[ids["id"]].max.integer, stats[ids["id"]].nulls) == (1, 2, 0)
    assert (stats[ids["price"]].min.decimal, stats[ids["price"]].nulls) == ("-1.50", 1)
    assert stats[ids["at"]].min.timestamp_us == -315619199999995
    assert stats[ids["note"]].truncated
    assert stats[ids["note"]].min.text == "ä" * 64
    assert not stats[ids["x"]].HasField("min")  # NaN
    path = Path(table.folder) / entry.file.path
    assert entry.file.bytes == path.stat().st_size
    assert (oct(path.stat().st_mode), [each.name for each in path.parent.iterdir()]) == ("0o100644", [path.name])
    schema = pq.read_schema(path)
    assert {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in schema} == ids
    assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"
    assert [row["id"] for row in stored_rows(table)] == [1, 2]
    assert [row["at"] for row in stored_rows(table)] == [before_1970, later]


def test_an_upsert_is_bucketed_sorted_and_hides_the_older_image(
    lake: Lake, spark: SparkSession, new_name: Names
) -> None:
    table = lake.create_table(new_name(), "id bigint, amount double", primary_key=["id"], buckets=4)
    table.insert(spark.range(100).select("id", (sf.col("id") * 1.0).alias("amount")))
    table.insert(frame(spark, "id bigint, amount double", (7, -7.0), (100, 100.0)))
    expected = {i: float(i) for i in range(101)} | {7: -7.0}
    assert {row["id"]: row["amount"] for row in stored_rows(table)} == expected
    buckets = {}
    for entry in live(table):
        rows = file_rows(table, entry.file)
        assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
        assert {row["_op"] for row in rows} == {0}
        buckets.update({row["id"]: entry.file.bucket for row in rows})
    hashed = spark.range(101).select("id", sf.pmod(sf.xxhash64("id"), sf.lit(4)).alias("b")).collect()
    assert buckets == {row["id"]: row["b"] for row in hashed}
    assert len([e for e in live(table) if e.added_version == 1]) == 4


def test_a_key_twice_is_an_error_unless_there_is_an_order(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, name string, n int", primary_key=["id", "name"], buckets=2)
    twice = frame(spark, "id bigint, name string, n int", (1, "a", 1), (1, "a", 3), (1, "b", 1), (1, "a", 2))
    with pytest.raises(InputError, match="KEY_TWICE"):
        table.insert(twice)
    assert (staged_folders(table), table.history(1)[0].version) == (set(), 0)
    table.insert(twice, order_by="n")
    assert by(stored_rows(table), "name") == [{"id": 1, "name": "a", "n": 3}, {"id": 1, "name": "b", "n": 1}]


def test_partitions_with_awkward_values(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, region string, day date", partition_by=["region", "day"])
    days = [date(1969, 12, 31), date(2026, 11, 1), None]
    regions = ["", None, "a/b=c %", "ünï", "x" * 300]
    rows = [(number, region, day) for number, (region, day) in enumerate((r, d) for r in regions for d in days)]
    table.insert(frame(spark, "id bigint, region string, day date", *rows))
    found = {}
    for entry in live(table):
        values = {one.column: one.value for one in entry.file.partition.values}
        for row in file_rows(table, entry.file):
            found[row["id"]] = (values["region"], values["day"])
            assert (row["region"] is None) == (values["region"].WhichOneof("kind") == "null")
            assert row["region"] is None or values["region"].text == row["region"]
            assert row["day"] is None or values["day"].date == (row["day"] - date(1970, 1, 1)).days
    assert len(found) == len(rows)
    assert len({str(value) for value in found.values()}) == len(rows)


def test_overwrite_named_dynamic_and_all(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    schema = "id bigint, day date"
    for keyed in (False, True):
        table = lake.create_table(
            new_name(),
            schema,
            partition_by=["day"],
            primary_key=["id"] if keyed else [],
            buckets=2 if keyed else None,
            key_scope="partition" if keyed else None,
        )
        one, two, three = date(2026, 11, 1), date(2026, 11, 2), date(2026, 11, 3)
        table.insert(frame(spark, schema, (1, one), (2, two)))
        table.overwrite(spark.range(10, 12), partition={"day": "2026-11-01"})
        assert {(r["id"], r["day"]) for r in stored_rows(table)} == {(10, one), (11, one), (2, two)}
        table.overwrite(frame(spark, schema, (20, two), (30, three)), partition="dynamic")
        assert {r["id"] for r in stored_rows(table)} == {10, 11, 20, 30}
        with pytest.raises(InputError, match="ROW_OUTSIDE_PARTITION"):
            table.overwrite(frame(spark, schema, (1, two)), partition={"day": one})
        table.truncate(partition=[{"day": two}, {"day": three}])
        assert {r["id"] for r in stored_rows(table)} == {10, 11}
        table.overwrite(frame(spark, schema, (5, one)))
        assert {r["id"] for r in stored_rows(table)} == {5}
        table.restore(version=1)
        assert {r["id"] for r in stored_rows(table)} == {1, 2}
        table.truncate()
        assert stored_rows(table) == []
        assert [one.operation for one in table.history(3)] == ["TRUNCATE", "RESTORE", "OVERWRITE"]


def test_columns_change(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, amount double")
    table.insert(frame(spark, "id bigint, amount double", (1, 1.0)))
    table.add_columns("note string, address struct<zip:string,city:string>").rename_column("amount", "total")
    table.drop_column("note")
    with pytest.raises(InputError, match=r"COLUMN_UNKNOWN.*extra"):
        table.insert(frame(spark, "id bigint, extra int", (2, 2)))
    table.insert(frame(spark, "id bigint, extra int", (2, 2)), merge_schema=True)
    assert [column.name for column in table.refresh().meta.columns] == ["id", "total", "address", "extra"]
    newest = max(live(table), key=lambda entry: entry.data_version)
    assert file_rows(table, newest.file) == [{"id": 2, "total": None, "address": None, "extra": 2}]
    assert newest.file.schema_version == table.meta.schema_version
    nested = pq.read_schema(Path(table.folder) / newest.file.path).field("address").type
    ids = {one.path: one.field_id for one in table.meta.columns[2].nested}
    assert {nested.field(i).name: int(nested.field(i).metadata[b"PARQUET:field_id"]) for i in range(2)} == ids
    assert table.schema.to_spark()["address"].dataType.fields[0].metadata == {FIELD_ID: ids["zip"]}  # type: ignore[attr-defined]


def test_bad_input_is_refused_before_a_job_and_leaves_nothing(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(
        new_name(),
        "id bigint, name string not null, day date",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="partition",
    )
    bad: list[tuple[DataFrame, str]] = [
        (frame(spark, "id bigint, name string", (1, "a")), "COLUMN_MISSING"),
        (frame(spark, "id string, name string, day date", ("x", "a", None)), "SCHEMA_MISMATCH"),
        (frame(spark, "id bigint, name string, day date, z int", (1, "a", None, 1)), "COLUMN_UNKNOWN"),
        (frame(spark, "id bigint, name string, day date", (None, "a", None)), "NULL_NOT_ALLOWED"),
        (frame(spark, "id bigint, name string, day date", (1, None, None)), "NULL_NOT_ALLOWED"),
    ]
    for df, reason in bad:
        with pytest.raises(InputError, match=reason):
            table.insert(df)
    with pytest.raises(InputError, match="PARTITION_INVALID"):
        table.truncate(partition={"hour": 1})
    with pytest.raises(InputError, match="POLICY_INVALID"):
        table.truncate(on_conflict="resubmit")
    with pytest.raises(InputError, match="TYPE_NOT_SUPPORTED"):
        lake.create_table(new_name(), "v variant")
    with pytest.raises(InputError, match="COLUMNS_INVALID"):
        lake.create_table(new_name(), "id nonsense")
    with pytest.raises(InputError, match="COLUMN_RESERVED"):
        lake.create_table(new_name(), "_row_id bigint")
    with pytest.raises(MetaServiceError, match="TABLE_UNKNOWN"):
        lake.table("tests.nothing_here")
    with pytest.raises(InputError, match="WAREHOUSE_MISSING"):
        connect("laketx://127.0.0.1:1")
    assert (staged_folders(table), table.refresh().meta.head_version) == (set(), 0)


def test_a_failing_job_leaves_nothing(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint")
    failing = spark.range(10, numPartitions=2).select(
        sf.when(sf.col("id") == 7, sf.raise_error(sf.lit("boom")).cast("bigint")).otherwise(sf.col("id")).alias("id")
    )
    with pytest.raises(Exception, match="boom"):
        table.insert(failing)
    assert (staged_folders(table), table.refresh().meta.head_version) == (set(), 0)
    assert list(lake.client.list_transactions(table_id=table.table_id)) == []  # it begins with its commit


def test_an_empty_insert_is_a_commit_without_files(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    for key in ([], ["id"]):
        table = lake.create_table(new_name(), "id bigint", primary_key=key)
        assert table.insert(spark.range(0)).version == 1
        assert live(table) == []


class Race:
    """An insert that another one overtakes while its rows are computed."""

    def __init__(self, spark: SparkSession, folder: Path, table: Table) -> None:
        self._held = Held(spark, folder, "waits")
        self._spark, self._table = spark, table
        self.commit: Commit | None = None

    def lose(self, **how: Any) -> Exception | None:
        def insert() -> None:
            self.commit = self._table.insert(self._spark.range(1).selectExpr("waits(id) as id"), **how)

        other = Table(self._table.lake, self._table.meta)
        return self._held.run(insert, lambda: other.insert(self._spark.range(100, 101), message="the winner"))


def test_a_lost_race_says_who_won_and_what_to_do(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    table = lake.create_table(new_name(), "id bigint")
    lost = Race(spark, tmp_path, table).lose(on_conflict="fail")
    assert isinstance(lost, ConflictError), lost
    text = str(lost)
    assert "winner: INSERT by tests, version 1" in text
    assert "OUTCOME TABLE" in text
    assert "on_conflict='resubmit'" in text
    assert (lost.table, lost.conflict.winner_version) == (table.name, 1)
    assert [row["id"] for row in stored_rows(table)] == [100]


@pytest.mark.parametrize("policy", [None, "rerun"])
def test_a_blind_insert_that_lost_writes_no_byte_again(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path, policy: str | None
) -> None:
    table = lake.create_table(new_name(), "id bigint", primary_key=["id"], buckets=2)
    if policy is not None:
        table.set_properties(**{"write.on_conflict": policy})
    race = Race(spark, tmp_path, table)
    assert race.lose() is None
    assert race.commit is not None
    assert race.commit.attempts == 2
    assert sorted(row["id"] for row in stored_rows(table)) == [0, 100]
    [mine] = [entry.file.path for entry in live(table) if entry.added_version == race.commit.version]
    assert not mine.startswith(race.commit.txn_id)
    assert race.commit.txn_id not in staged_folders(table)


def test_several_tables_all_or_nothing(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    one, two = (lake.create_table(new_name(), "id bigint") for _ in range(2))
    with lake.transaction("both") as txn:
        txn.table(one.name).insert(spark.range(1))
        txn.table(two.name).insert(spark.range(2))
        with pytest.raises(InputError, match="CHANGE_TWICE"):
            txn.table(one.name).truncate()
    assert [commit.version for commit in txn.commits] == [1, 1]
    assert len({commit.time for commit in txn.commits}) == 1
    assert (len(stored_rows(one)), len(stored_rows(two))) == (1, 2)
    with pytest.raises(ZeroDivisionError), lake.transaction() as txn:  # noqa: PT012
        txn.table(one.name).insert(spark.range(1))
        _ = 1 // 0
    with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012
        txn.table(one.name).insert(spark.range(1))
        txn.table(two.name).delete("id = 7")
        two.insert(spark.range(1))
    assert (len(stored_rows(one)), len(stored_rows(two))) == (1, 3)


def test_all_types_come_back(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    schema = (
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(38,10), i string, j binary, "
        "k date, l timestamp, m timestamp_ntz, n array<int>, o map<string,int>, p struct<x:int,y:array<string>>"
    )
    row = (
        True, -128, -32768, -(2**31), -(2**63), 1.5, -0.0, Decimal("12345678901234567890.0123456789"), "ü",
        b"\x00\xff", date(1, 1, 1), datetime(1900, 1, 1, tzinfo=UTC),
        datetime.fromisoformat("2026-01-01T00:00:00.000001"), [1, None],
        {"k": None}, Row(x=1, y=["s", None]),
    )  # fmt: skip
    table = lake.create_table(new_name(), schema)
    table.insert(frame(spark, schema, row, tuple([None] * 16)).coalesce(1))
    full, empty = stored_rows(table)
    assert [full[name] for name in "abcdefghijklm"] == list(row[:13])
    assert (full["n"], full["o"], full["p"]) == ([1, None], [("k", None)], {"x": 1, "y": ["s", None]})
    assert set(empty.values()) == {None}
    assert pa.types.is_timestamp(pq.read_schema(Path(table.folder) / live(table)[0].file.path).field("l").type)
