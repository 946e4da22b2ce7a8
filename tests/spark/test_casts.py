"""What a cast loses: nothing in a key, ever; elsewhere what Spark's store assignment does, unless it is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from laketx import InputError, Lake
from tests.spark.stored import staged_folders

Names = Callable[[], str]


def one(spark: SparkSession, *columns: str) -> DataFrame:
    return spark.range(1).selectExpr(*columns)


# A key's type, what is given for it, and why it is refused; or the key that is there then.
KEYS: list[tuple[str, str, Any]] = [
    ("int", "1.9D", "CAST_LOSSY"),
    ("int", "double('NaN')", "CAST_LOSSY"),
    ("int", "'1'", "SCHEMA_MISMATCH"),
    ("decimal(5,1)", "1.25BD", "CAST_LOSSY"),
    ("decimal(5,1)", "99999BD", "CAST_LOSSY"),
    ("date", "timestamp'2026-11-22 00:00:00'", "CAST_LOSSY"),
    ("date", "timestamp_ntz'2026-11-22 10:00:00'", "CAST_LOSSY"),
    ("string", "X'ff'", "CAST_LOSSY"),
]


@pytest.mark.parametrize(("kind", "value", "reason"), KEYS)
def test_a_key_loses_nothing_in_an_insert(
    lake: Lake, spark: SparkSession, new_name: Names, kind: str, value: str, reason: str
) -> None:
    table = lake.create_table(new_name(), f"id {kind}", primary_key=["id"], buckets=1)
    with pytest.raises(InputError, match=reason):
        table.insert(one(spark, f"{value} as id"))
    assert staged_folders(table) == set()


def test_a_key_of_another_type_that_loses_nothing(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "a int, b decimal(5,1), c string", primary_key=["a", "b", "c"], buckets=1)
    table.insert(one(spark, "1.0D as a", "1.20BD as b", "7 as c"))
    assert [[str(value) for value in row] for row in table.read().collect()] == [["1", "1.2", "7"]]


@pytest.mark.parametrize("kind", ["string", "timestamp_ntz"])
def test_an_hour_that_comes_twice_is_no_key(lake: Lake, spark: SparkSession, new_name: Names, kind: str) -> None:
    table = lake.create_table(new_name(), f"id {kind}", primary_key=["id"], buckets=1)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        table.insert(one(spark, "timestamp_seconds(1792888200 + id) as id"))
        with pytest.raises(InputError, match="CAST_LOSSY"):
            table.insert(one(spark, "timestamp_seconds(1792891800 + id) as id"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert table.refresh().meta.head_version == 1


def test_a_key_loses_nothing_in_any_write(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id int, v int", primary_key=["id"], buckets=1)
    table.insert(one(spark, "1 as id", "1 as v"))
    near, far = one(spark, "1.9D as id", "2 as v"), one(spark, "5000000000L as id", "2 as v")
    writes: list[Callable[[], Any]] = [
        lambda: table.overwrite(near),
        lambda: table.insert(far, order_by="v"),
        lambda: table.merge(near, on="id").when_matched_update().when_not_matched_insert().execute(),
        lambda: table.merge(far, on="id").when_not_matched_insert({"id": "source.id"}).execute(),
    ]
    for write in writes:
        with pytest.raises(InputError, match="CAST_LOSSY"):
            write()
    table.merge(near, on="id").when_matched_delete().execute()  # 1.9 is no key of the table: nothing goes
    assert [tuple(row) for row in table.read().collect()] == [(1, 1)]


def test_other_columns_lose_what_spark_lets_them_unless_casts_are_strict(
    lake: Lake, spark: SparkSession, new_name: Names
) -> None:
    schema = "id int, n int, d date, f float, c decimal(5,1), s struct<a:int>"
    lossy = ["1.9D as n", "timestamp'2026-11-22 10:00:00' as d", "0.1D as f", "1.25BD as c", "struct(1.9D as a) as s"]
    exact = ["2.0D as n", "date'2026-11-22' as d", "0.5D as f", "1.50BD as c", "struct(1 as a) as s"]
    table = lake.create_table(new_name(), schema, primary_key=["id"], buckets=1)
    table.insert(one(spark, "1 as id", *lossy))
    row = table.read().collect()[0]
    assert (row["n"], row["d"], str(row["c"]), row["s"]["a"]) == (1, date(2026, 11, 22), "1.3", 1)
    table.set_properties(**{"write.strict_casts": "true"})
    for value in lossy:
        name = value.rpartition(" ")[2]
        with pytest.raises(InputError, match="CAST_LOSSY"):
            table.insert(one(spark, "1 as id", value))
        with pytest.raises(InputError, match="CAST_LOSSY"):
            table.update({name: value.rpartition(" as ")[0]})
    table.insert(one(spark, "1 as id", *exact))
    table.update({"n": "3.0D", "f": None}, where="c = 1.5")
    assert [row["n"] for row in table.read().collect()] == [3]


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_overflows_and_bad_values_are_input_errors(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path, keyed: bool
) -> None:
    table = lake.create_table(new_name(), "id int, v tinyint", primary_key=["id"] if keyed else [])
    table.insert(one(spark, "1 as id", "100Y as v"))
    folders = staged_folders(table)
    bad: list[Callable[[], Any]] = [
        lambda: table.insert(one(spark, "2 as id", "1000 as v")),
        lambda: table.update({"v": "v + 100Y"}),
        lambda: table.delete("1 / (id - 1) > 0"),
    ]
    if keyed:
        bad = [
            lambda: table.update({"v": "raise_error('no')"}),
            lambda: table.delete("id = 'abc'"),
            lambda: table.merge(one(spark, "'abc' as id"), on="id").when_matched_delete().execute(),
        ]
    for write in bad:
        with pytest.raises(InputError, match="VALUE_INVALID"):
            write()
    with pytest.raises(InputError, match="VALUE_INVALID"):
        table.export(tmp_path / "out", where="1 / (id - 1) > 0")
    with pytest.raises(InputError, match="COLUMN_UNKNOWN"):
        table.insert(one(spark, "2 as id"), order_by="unknown")
    assert staged_folders(table) == folders
    for condition in ("unknown = 1", "id +", "sum(id) > 1"):
        with pytest.raises(InputError, match="CONDITION_INVALID"):
            table.read(where=condition)


def test_values_of_partitions_lose_nothing(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id int, n int, day date, c decimal(3,1)", partition_by=["n", "day", "c"])
    good = {"n": 1, "day": date(999, 1, 1), "c": "1.5"}
    table.overwrite(one(spark, "1 as id"), partition=good)
    for bad in ({"n": 1.9}, {"n": True}, {"c": "1.55"}, {"day": "2026-11-22 10:00:00"}):
        with pytest.raises(InputError, match="VALUE_INVALID"):
            table.truncate(partition={**good, **bad})
    assert table.read(where="day = '0999-01-01'").count() == 1


def test_days_before_the_year_1000_in_a_merge(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id int, day date, v int", primary_key=["id", "day"], partition_by=["day"])
    table.insert(one(spark, "1 as id", "date'0001-01-01' as day", "1 as v"))
    source = one(spark, "1 as id", "date'0001-01-01' as day", "2 as v")
    table.merge(source, on=["id", "day"]).when_matched_update({"v": "source.v"}).execute()
    assert [row["v"] for row in table.read().collect()] == [2]


# Words for a type that no column has, an expression of it, and what to do instead.
TYPES: list[tuple[str, str, str]] = [
    ("char(3)", "", "use string"),
    ("varchar(3)", "", "use string"),
    ("array<char(3)>", "", "use string"),
    ("interval day to second", "interval '1' day", "bigint of microseconds"),
    ("interval year to month", "interval '1' month", "int of months"),
    ("interval", "make_interval(1, 2, 3)", "string"),
    ("time", "time'10:00:00'", "string"),
    ("variant", "parse_json('1')", "to_json"),
    ("struct<a:variant>", "struct(parse_json('1') as a)", "to_json"),
    ("geography(4326)", "st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')", "binary"),
    ("geometry(4326)", "", "binary"),
    ("void", "", "NULL alone has no type"),
    ("string collate utf8_lcase", "'a' collate utf8_lcase", "by bytes"),
    ("map<string collate unicode_ci, int>", "map('a' collate unicode_ci, 1)", "by bytes"),
]


@pytest.mark.parametrize(("words", "value", "instead"), TYPES)
def test_types_that_no_column_has(
    lake: Lake, spark: SparkSession, new_name: Names, words: str, value: str, instead: str
) -> None:
    table = lake.create_table(new_name(), "id int, c string")
    calls: list[Callable[[], Any]] = [
        lambda: lake.create_table(new_name(), f"id int, c {words}"),
        lambda: table.add_columns(f"d {words}"),
    ]
    if value:
        rows = one(spark, "1 as id", f"{value} as c")
        calls += [
            lambda: lake.create_table(new_name(), rows.schema),
            lambda: table.insert(rows),
            lambda: table.insert(rows.withColumnRenamed("c", "d"), merge_schema=True),
            lambda: table.update({"c": value}),
            lambda: table.merge(rows, on="id").when_not_matched_insert().execute(),
        ]
    for call in calls:
        with pytest.raises(InputError, match="TYPE_NOT_SUPPORTED") as caught:
            call()
        assert instead in str(caught.value)
    assert table.refresh().meta.head_version == 0


def test_types_of_imported_files(lake: Lake, new_name: Names, tmp_path: Path) -> None:
    """Dictionaries are how values are stored; what a table has no type for is refused."""
    words = pa.array(["a", "b", None, "a"]).dictionary_encode()
    inner = pa.struct([("w", pa.dictionary(pa.int8(), pa.string()))])
    deep = pa.array([{"w": "x"}, None, {"w": None}, {"w": "y"}], inner)
    table = pa.table({"w": words, "n.n": pa.array([1, 2, 3, 4]).dictionary_encode(), "s": deep})
    pq.write_table(table, tmp_path / "good.parquet")
    found = lake.import_parquet(tmp_path / "good.parquet", new_name())
    assert [column.type for column in found.meta.columns] == ["string", "bigint", "struct<w:string>"]
    assert [row["n.n"] for row in found.read(where="w = 'a' and `n.n` > 1").collect()] == [4]
    odd = {
        "time": pa.array([1], pa.time64("us")),
        "interval": pa.array([1], pa.duration("us")),
        "half": pa.array([1.0], pa.float16()),
        "unsigned": pa.array([1], pa.uint32()),
        "fixed": pa.array([b"12"], pa.binary(2)),
    }
    for name, values in odd.items():
        pq.write_table(pa.table({"x": values}), tmp_path / f"{name}.parquet")
        with pytest.raises(InputError, match="TYPE_NOT_SUPPORTED"):
            lake.import_parquet(tmp_path / f"{name}.parquet", new_name())


def test_a_column_that_takes_no_null_can_not_be_added(lake: Lake, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id int, s struct<a:int>")
    with pytest.raises(InputError, match=r"COLUMN_NOT_NULLABLE.*update\(\)"):
        table.add_columns("k int not null")
