"""INSERT, INSERT OVERWRITE and TRUNCATE through the Spark catalog, against stored rows and what Python reads."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import Lake, Table
from metaservice.client import rename_column
from protos.laketx.v1 import common_pb2
from tests.spark.sql import SqlReads
from tests.spark.stored import live, staged_folders, stored_rows
from tests.spark.typed_rows import SCHEMA, frame, row_of, texts

Names = Callable[[], str]
COLUMNS = "id bigint, amount double, day string"


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


def make(lake: Lake, name: str, *, keyed: bool, parted: bool, columns: str = COLUMNS) -> Table:
    return lake.create_table(
        name,
        columns,
        primary_key=["id"] if keyed else [],
        buckets=3 if keyed else None,
        partition_by=["day"] if parted else [],
        key_scope="partition" if keyed and parted else None,
    )


def files_of(table: Table) -> list[common_pb2.DataFile]:
    return [entry.file for entry in live(table) if entry.HasField("file")]


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """What is stored, once Spark and Python agree on it."""
    found = [tuple(row.values()) for row in stored_rows(table)]
    read = [tuple(row.asDict(recursive=True).values()) for row in table.refresh().read().collect()]
    assert sorted(map(repr, read)) == sorted(map(repr, found))
    return sorted(found, key=repr)


def head(table: Table) -> int:
    return table.lake.client.get_table(table_id=table.table_id).head_version


ROWS: list[tuple[Any, ...]] = [(at, at * 1.5, ("mon", "tue", None)[at % 3]) for at in range(40)]


@pytest.mark.parametrize(
    ("keyed", "parted"),
    [
        (True, True),
        *(pytest.param(*one, marks=pytest.mark.long) for one in [(False, True), (True, False), (False, False)]),
    ],
)
def test_rows_lie_as_python_would_have_put_them(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, keyed: bool, parted: bool
) -> None:
    """The same partitions and buckets with the same rows, order and statistics, and field ids in the files."""
    ours, theirs = (
        make(lake, new_name(), keyed=keyed, parted=parted),
        make(lake, new_name(), keyed=keyed, parted=parted),
    )
    rows = spark.createDataFrame(ROWS, COLUMNS).repartition(3)
    rows.createOrReplaceTempView("rows_in")
    sql(f"INSERT INTO {{lake}}.{ours.name} SELECT * FROM rows_in")
    theirs.insert(rows)
    assert rows_of(ours) == sorted(ROWS, key=repr)
    if keyed:

        def places(table: Table) -> list[Any]:
            return sorted(
                (
                    file.partition.SerializeToString(deterministic=True),
                    file.bucket,
                    file.kind,
                    file.rows,
                    file.tombstones,
                    file.schema_version,
                    sorted(one.SerializeToString(deterministic=True) for one in file.stats),
                )
                for file in files_of(table)
            )

        assert places(ours) == places(theirs)
    by_part = {file.partition.SerializeToString() for file in files_of(ours)}
    assert by_part == {file.partition.SerializeToString() for file in files_of(theirs)}
    schemas = []
    for table in (ours, theirs):
        path = f"{table.folder}/{files_of(table)[0].path}"
        schemas.append(str(pq.read_schema(path)))
    assert schemas[0] == schemas[1]
    rows.selectExpr("id + 100 as id", "amount", "day").writeTo(f"{sql.name}.{ours.name}").append()
    assert len(rows_of(ours)) == 80
    sql(f"INSERT INTO {{lake}}.{ours.name} (day, id) VALUES ('wed', 1000)")
    assert (1000, None, "wed") in rows_of(ours)


def test_an_insert_by_key_is_an_upsert(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = make(lake, new_name(), keyed=True, parted=False)
    sql(f"INSERT INTO {{lake}}.{table.name} VALUES (1, 1.0, 'a'), (2, 2.0, 'b')")
    sql(f"INSERT INTO {{lake}}.{table.name} VALUES (2, 9.0, 'c'), (3, 3.0, NULL)")
    assert rows_of(table) == [(1, 1.0, "a"), (2, 9.0, "c"), (3, 3.0, None)]
    assert sql.rows(f"SELECT * FROM {{lake}}.{table.name}") == rows_of(table)


def test_a_key_twice_is_refused(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = make(lake, new_name(), keyed=True, parted=False)
    before = head(table)
    with pytest.raises(PySparkException, match=r"KEY_TWICE: the key id=7 stands twice in what is written to"):
        sql(f"INSERT INTO {{lake}}.{table.name} VALUES (7, 1.0, 'a'), (8, 1.0, 'a'), (7, 2.0, 'b')")
    assert head(table) == before
    assert not staged_folders(table)
    assert not list(lake.client.list_transactions(table_id=table.table_id))  # it had not begun


def test_a_key_twice_is_named_as_people_write_it(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(new_name(), "day date, at timestamp_ntz", primary_key=["day", "at"])
    row = "(date'1969-12-31', timestamp_ntz'1969-12-31 23:59:59.25')"
    with pytest.raises(PySparkException, match=r"the key day=1969-12-31, at=1969-12-31T23:59:59\.250 stands twice"):
        sql(f"INSERT INTO {{lake}}.{table.name} VALUES {row}, {row}")


def test_no_null_where_the_table_takes_none(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint not null, s struct<a:int not null> not null, t string")
    for row in ("NULL, named_struct('a', 1), 'x'", "1, NULL, 'x'", "1, named_struct('a', cast(NULL AS int)), 'x'"):
        with pytest.raises(PySparkException, match=r"NULL"):
            sql(f"INSERT INTO {{lake}}.{table.name} VALUES ({row})")
    assert not staged_folders(table)
    sql(f"INSERT INTO {{lake}}.{table.name} VALUES (1, named_struct('a', 1), NULL)")
    assert rows_of(table) == [(1, {"a": 1}, None)]


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_type_is_written(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    how: dict[str, Any] = {"primary_key": ["id"] if keyed else [], "properties": {"write.inline.rows": "0"}}
    ours, theirs = (lake.create_table(new_name(), SCHEMA, **how) for _ in range(2))
    rows = frame(spark, [row_of(at, at) for at in range(5)])
    theirs.insert(rows)
    theirs.read().createOrReplaceTempView("every_type")
    sql(f"INSERT INTO {{lake}}.{ours.name} SELECT * FROM every_type")
    assert texts(ours.refresh().read().toArrow().to_pylist()) == texts(theirs.read().toArrow().to_pylist())

    def stats(table: Table) -> list[str]:
        merged: dict[int, list[str]] = {}
        for file in files_of(table):
            for one in file.stats:
                merged.setdefault(one.column_id, []).append(f"{one}")
        return [f"{at} {sorted(merged[at])}" for at in sorted(merged)]

    if keyed:
        assert stats(ours) == stats(theirs)


def test_no_bounds_where_a_float_may_be_nan(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = make(lake, new_name(), keyed=False, parted=False)
    sql(
        f"INSERT INTO {{lake}}.{table.name} SELECT /*+ COALESCE(1) */ * "
        f"FROM VALUES (1, double('NaN'), 'a'), (2, 5.0, NULL)"
    )
    sql(
        f"INSERT INTO {{lake}}.{table.name} SELECT /*+ COALESCE(1) */ * "
        f"FROM VALUES (3, -0.0D, '{'ä' * 70}'), (4, 0.0D, 'b')"
    )
    real = [one for file in files_of(table) for one in file.stats if one.column_id == table.meta.columns[1].column_id]
    assert any(not one.HasField("min") and not one.HasField("max") and one.nulls == 0 for one in real)
    assert any(
        math.copysign(1, one.min.real) < 0 < math.copysign(1, one.max.real) for one in real if one.HasField("min")
    )
    text = [one for file in files_of(table) for one in file.stats if one.column_id == table.meta.columns[2].column_id]
    assert {(one.min.text, one.max.text, one.truncated, one.nulls) for one in text} == {
        ("a", "a", False, 1),
        ("b", "ä" * 63 + "å", True, 0),
    }
    assert {row[0] for row in sql.rows(f"SELECT id FROM {{lake}}.{table.name} WHERE amount > 4")} == {1, 2}


@pytest.mark.long
def test_partitions_of_odd_values(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(
        new_name(),
        "v int, d double, t timestamp, c decimal(10,2), s string, b binary",
        partition_by=["d", "t", "c", "s", "b"],
    )
    rows = [
        (1, -0.0, datetime(2026, 11, 1, 2, tzinfo=UTC), Decimal("1.50"), "", b""),
        (2, 0.0, datetime(2026, 11, 1, 2, tzinfo=UTC), Decimal("1.50"), "", b""),
        (3, None, None, None, None, None),
        (4, -1.5, datetime(1, 1, 1, tzinfo=UTC), Decimal("-0.05"), "a/b=ü", b"\x00\xff"),
    ]
    spark.createDataFrame(rows, "v int, d double, t timestamp, c decimal(10,2), s string, b binary").coalesce(
        1
    ).createOrReplaceTempView("odd")
    sql(f"INSERT INTO {{lake}}.{table.name} SELECT * FROM odd")
    assert len(files_of(table)) == 3
    for at, count in ((1, 2), (3, 1), (4, 1)):
        same = " AND ".join(f"x.{name} <=> y.{name}" for name in "dtcsb")
        joined = f"SELECT count(*) FROM {{lake}}.{table.name} x JOIN odd y ON {same} WHERE y.v = {at}"
        assert sql.rows(joined) == [(count,)]
    theirs = lake.create_table(
        new_name(),
        "v int, d double, t timestamp, c decimal(10,2), s string, b binary",
        partition_by=["d", "t", "c", "s", "b"],
    )
    theirs.insert(spark.table("odd"))
    assert {str(file.partition) for file in files_of(table)} == {str(file.partition) for file in files_of(theirs)}
    with pytest.raises(PySparkException, match="NaN"):
        sql(f"INSERT INTO {{lake}}.{table.name} SELECT 9, double('NaN'), NULL, NULL, NULL, NULL")


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_overwrites(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    table = make(lake, new_name(), keyed=keyed, parted=True)
    name = f"{{lake}}.{table.name}"

    def put(*rows: tuple[Any, ...]) -> DataFrame:
        made = spark.createDataFrame(list(rows), COLUMNS)
        made.createOrReplaceTempView("put")
        return made

    put((1, 1.0, "mon"), (2, 2.0, "tue"), (3, 3.0, None))
    sql(f"INSERT INTO {name} SELECT * FROM put")
    sql(f"INSERT OVERWRITE {name} PARTITION (day = 'tue') VALUES (4, 4.0)")
    assert rows_of(table) == [(1, 1.0, "mon"), (3, 3.0, None), (4, 4.0, "tue")]
    sql(f"INSERT OVERWRITE {name} PARTITION (day = NULL) VALUES (5, 5.0), (6, 6.0)")
    assert rows_of(table) == [(1, 1.0, "mon"), (4, 4.0, "tue"), (5, 5.0, None), (6, 6.0, None)]
    put((7, 7.0, "mon"), (8, 8.0, "wed")).writeTo(f"{sql.name}.{table.name}").overwritePartitions()
    kept = [(4, 4.0, "tue"), (5, 5.0, None), (6, 6.0, None), (7, 7.0, "mon"), (8, 8.0, "wed")]
    assert rows_of(table) == kept
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        sql(f"INSERT OVERWRITE {name} SELECT 9, 9.0, 'wed'")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert rows_of(table) == [*kept[:-1], (9, 9.0, "wed")]
    put((10, 1.0, "mon")).writeTo(f"{sql.name}.{table.name}").overwrite(sf.col("day") == "mon")
    assert (10, 1.0, "mon") in rows_of(table)
    assert len(rows_of(table)) == 5
    with pytest.raises(PySparkException, match="ROW_OUTSIDE_PARTITION"):
        put((11, 1.0, "tue")).writeTo(f"{sql.name}.{table.name}").overwrite(sf.col("day") == "mon")
    with pytest.raises(PySparkException, match="PARTITION_INVALID"):
        put((11, 1.0, "tue")).writeTo(f"{sql.name}.{table.name}").overwrite(sf.col("id") == 1)
    sql(f"INSERT OVERWRITE {name} SELECT 12, 12.0, 'thu'")
    assert rows_of(table) == [(12, 12.0, "thu")]
    assert {file.kind for file in files_of(table)} == {common_pb2.FILE_KIND_BASE if keyed else 0}
    sql(f"TRUNCATE TABLE {name}")
    assert rows_of(table) == []
    if keyed:
        with pytest.raises(PySparkException, match="KEY_TWICE"):
            sql(f"INSERT OVERWRITE {name} VALUES (1, 1.0, 'x'), (1, 2.0, 'x')")


def test_a_table_with_other_columns_by_now(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    """Files say by ids which column is which: names may have moved."""
    table = lake.create_table(new_name(), "id bigint, a int, b int")
    sql(f"INSERT INTO {{lake}}.{table.name} VALUES (1, 10, 100)")
    lake.client.alter_columns(table.table_id, rename_column("a", "x"), rename_column("b", "a"), rename_column("x", "b"))
    table.refresh().add_columns("c string")
    sql(f"INSERT INTO {{lake}}.{table.name} BY NAME SELECT 2L AS id, 20 AS b, 200 AS a, 'two' AS c")
    assert sql.rows(f"SELECT id, a, b, c FROM {{lake}}.{table.name}") == [(1, 100, 10, None), (2, 200, 20, "two")]
    assert sorted(map(tuple, table.refresh().read().select("id", "a", "b", "c").collect())) == [
        (1, 100, 10, None),
        (2, 200, 20, "two"),
    ]


def test_a_statement_that_fails_leaves_nothing(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = make(lake, new_name(), keyed=False, parted=False)
    sql(f"INSERT INTO {{lake}}.{table.name} VALUES (0, 0.0, 'a')")
    before, folders = head(table), staged_folders(table)
    with pytest.raises(PySparkException, match="halt"):
        sql(
            f"INSERT INTO {{lake}}.{table.name} "
            "SELECT id, if(id = 900, cast(raise_error('halt') AS double), 1.0), 'x' FROM range(0, 1000, 1, 2)"
        )
    assert head(table) == before
    assert staged_folders(table) == folders


def test_days_of_long_ago(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id int, d date, t timestamp_ntz")
    sql(f"INSERT INTO {{lake}}.{table.name} VALUES (1, DATE'1500-03-01', TIMESTAMP_NTZ'1500-03-01 00:00:00')")
    old = date(1500, 3, 1)
    assert rows_of(table) == [(1, old, datetime(1500, 3, 1))]  # noqa: DTZ001 - it has no zone
    assert files_of(table)[0].stats[1].min.date == (old - date(1970, 1, 1)).days


def test_more_buckets_than_tasks(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    """A file for each bucket, though a task writes many."""
    table = lake.create_table(new_name(), "id bigint, v int", primary_key=["id"], buckets=150)
    spark.range(1000).selectExpr("id", "1 as v").createOrReplaceTempView("many")
    sql(f"INSERT INTO {{lake}}.{table.name} SELECT * FROM many")
    buckets = [file.bucket for file in files_of(table)]
    assert len(set(buckets)) == len(buckets) > 100
    assert len(rows_of(table)) == 1000
    assert Path(table.folder).is_dir()
