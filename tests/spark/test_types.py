"""Every type and every awkward value, in and out by all ways, on both kinds of table, against plain rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import InputError, Lake, Table
from metaservice.client import KeyScope, MetaServiceError
from tests.spark.reading import union
from tests.spark.stored import staged_folders
from tests.spark.typed_rows import BEFORE, EARLY, JULIAN, LATE, NAN, SCHEMA, TYPES, frame, row_of, texts

Names = Callable[[], str]
Row = dict[str, Any]


def rounded(row: Row) -> Row:
    """A float is what 32 bits hold of it."""
    return row | {"f32": None if row["f32"] is None else pa.scalar(row["f32"], pa.float32()).as_py()}


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_every_type_by_every_way(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    table = lake.create_table(new_name(), SCHEMA, primary_key=["id"] if keyed else [], buckets=2 if keyed else None)
    rows = {number: row_of(number, number) for number in range(5)}
    at = [{}, dict(rows)]
    table.insert(frame(spark, rows.values()))

    table.update({"mark": "mark + 1", "text": "NULL"}, where="id in (1, 2, 4)")
    rows |= {number: {**rows[number], "mark": 1, "text": None} for number in (1, 2, 4)}
    at.append(dict(rows))

    table.delete("isnan(f64) or i8 = 1")
    rows = {number: row for number, row in rows.items() if number not in (1, 3)}
    at.append(dict(rows))

    source = [row_of(0, 1, 7), row_of(2, 4, 7), row_of(8, 3, 8), row_of(9, 2, 8)]
    table.merge(frame(spark, source), on="id").when_matched_update().when_not_matched_insert().execute()
    rows |= {row["id"]: row for row in source}
    at.append(dict(rows))

    check_versions(table, at)
    check_changes(table, at)


def check_versions(table: Table, at: list[dict[int, Row]]) -> None:
    frames = [table.read(version=version).withColumn("v", sf.lit(version)) for version in range(len(at))]
    found: dict[int, list[Row]] = {version: [] for version in range(len(at))}
    for row in union(frames).toArrow().to_pylist():
        found[row.pop("v")].append(row)
    for version, rows in enumerate(at):
        assert texts(found[version]) == texts(map(rounded, rows.values())), version


def check_changes(table: Table, at: list[dict[int, Row]]) -> None:
    wanted = []
    for version in range(1, len(at)):
        before, after = at[version - 1], at[version]
        for number in before.keys() | after.keys():
            old, new = before.get(number), after.get(number)
            if old is None or new is None:
                kind, row = ("insert", new) if old is None else ("delete", old)
                wanted.append(rounded(row or {}) | {"kind": kind, "v": version})
            elif texts([old]) != texts([new]):
                wanted.append(rounded(old) | {"kind": "update_preimage", "v": version})
                wanted.append(rounded(new) | {"kind": "update_postimage", "v": version})
    log = table.changes(since=0, mode="log").drop("_commit_time").toArrow().to_pylist()
    assert texts(log) == texts(wanted)


ASKED = [
    "_metadata", "order", "1st", "SELECT", "when", "END", "target", "_", "old", "new", "a", "a.b", "a b", "^a$",
    "a=b", "a/b", "a,b", "größe",
]  # fmt: skip
ODD = [
    "__", "null", "true", "current_date", "user", "case", "source", "k0", "count", "value", "w", "bits", "rid",
    "entry", "shown", "kind", "row", "file_path", "file_name", "row_index", "_rescued_data", " a", "a`b", "a;b", "日本",
    "*", "%41", "a:int", "a<b>", "(a)", "a'b", 'a"b', "a\\b", "-", "😀",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
def test_odd_names(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    """Words of SQL, and names that the worker, Spark and the increments use themselves."""
    odd = ASKED + ODD[keyed::2]  # each is in one of the tables
    columns = ", ".join(f"`{name.replace('`', '``')}` string" for name in odd)
    keys = ["_metadata", "ORDER", "a.b", "^a$"] if keyed else []
    scope: KeyScope | None = "partition" if keyed else None
    parts = ["1ST", "a=b", "a/B"]
    table = lake.create_table(new_name(), columns, primary_key=keys, partition_by=parts, key_scope=scope)
    rows = {number: {name: f"{number}{name}" for name in odd} for number in range(4)}
    table.insert(odd_frame(spark, rows.values()))
    table.update({"SELECT": "concat(`SELECT`, `when`)", "target": "'t'"}, where="`END` = '1END'")
    rows[1] |= {"SELECT": "1SELECT1when", "target": "t"}
    table.delete("`_metadata` = '2_metadata'")
    del rows[2]
    fresh = {name: f"9{name}" for name in odd}
    source = odd_frame(spark, [rows[3] | {"_": "!"}, fresh])
    merge = table.merge(source, on=["_metadata", "order", "a.b", "^a$"])
    merge.when_matched_update({"_": "source.`_`", "old": "target.`new`"}).when_not_matched_insert().execute()
    rows[3] |= {"_": "!", "old": "3new"}
    rows[9] = fresh
    assert texts(table.read().toArrow().to_pylist()) == texts(rows.values())
    assert table.read(where="`_` = '!' and `SELECT` is not null").count() == 1
    assert table.read(where="`a.b` = '1a.b' and `größe` > '1'").count() == 1
    table.update({"A.B" if not keyed else "A B": "concat(`a.b`, '!')"}, where="`a/b` = '1a/b'")
    rows[1]["a b" if keyed else "a.b"] = "1a.b!"
    order = [] if keyed else ["A.b", "a,b"]
    assert table.compact("major" if keyed else "cluster", sort_by=order) is not None
    table.truncate(partition={"1st": "31st", "A=B": "3a=b", "a/b": "3a/b"})
    del rows[3]
    assert texts(table.read().toArrow().to_pylist()) == texts(rows.values())
    log = table.changes(since=0, mode="log").drop("_commit_version", "_commit_time")
    inserted = log.where("_change_type = 'insert'").drop("_change_type").toArrow().to_pylist()
    assert texts(inserted) == texts([{name: f"{at}{name}" for name in odd} for at in (0, 1, 2, 3, 9)])


def odd_frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    listed = list(rows)
    return spark.createDataFrame(pa.Table.from_pylist(listed, pa.schema([(name, pa.string()) for name in listed[0]])))


PARTED = (
    "id bigint, flag boolean, small tinyint, price decimal(6,2), day date, at timestamp, local timestamp_ntz, "
    "word string"
)


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_partitions_of_every_type_and_size(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    """One of them holds most of the rows, some one row; all are found again by each way in."""
    table = lake.create_table(
        new_name(),
        PARTED,
        primary_key=["id"] if keyed else [],
        buckets=2 if keyed else None,
        partition_by=["flag", "small", "price", "day", "at", "local", "word"],
        key_scope="partition" if keyed else None,
    )
    awkward: list[tuple[Any, ...]] = [
        (None,) * 7,
        (
            True,
            -128,
            Decimal("-0.01"),
            date(1969, 12, 31),
            BEFORE,
            BEFORE.replace(tzinfo=None),
            "__HIVE_DEFAULT_PARTITION__",
        ),
        (False, 0, Decimal("0.00"), date(1582, 10, 4), JULIAN, JULIAN.replace(tzinfo=None), ""),
        (False, 0, Decimal("0.00"), date(1582, 10, 4), JULIAN, JULIAN.replace(tzinfo=None), None),
        (None, 127, Decimal("9999.99"), date(9999, 12, 31), LATE, EARLY.replace(tzinfo=None), "a/b=c%2F\U0001f600 "),
    ]
    names = ["flag", "small", "price", "day", "at", "local", "word"]
    places = [4, 3, 2, 1] + [0] * 3000
    rows = {
        number: {"id": number, **dict(zip(names, awkward[place], strict=True))} for number, place in enumerate(places)
    }
    kinds = [
        pa.int64(),
        pa.bool_(),
        pa.int8(),
        pa.decimal128(6, 2),
        pa.date32(),
        *(pa.timestamp("us", "UTC"), pa.timestamp("us")),
        pa.string(),
    ]
    schema = pa.schema(list(zip(["id", *names], kinds, strict=True)))
    table.insert(spark.createDataFrame(pa.Table.from_pylist(list(rows.values()), schema)))
    table.update({"id": "id"} if not keyed else {"word": "word"}, where="id < 4 or id % 1000 = 0")
    table.delete("at < '1970-01-01' and word is null or id = 2999")
    rows = {number: row for number, row in rows.items() if number not in (1, 2999)}
    assert texts(table.read().toArrow().to_pylist()) == texts(rows.values())
    assert [row["id"] for row in table.read(where="price = -0.01 and day < '1970-01-01'").collect()] == [3]
    table.truncate(partition=dict(zip(names, awkward[4], strict=True)))
    table.truncate(partition=dict(zip(names, awkward[0], strict=True)))
    assert [row["id"] for row in table.read().orderBy("id").collect()] == [2, 3]


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_frames_without_rows(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    """Each is a commit that changes nothing, or empties what it overwrites."""
    table = lake.create_table(
        new_name(),
        "id bigint, day date",
        primary_key=["id"] if keyed else [],
        partition_by=["day"],
        key_scope="partition" if keyed else None,
    )
    none = spark.createDataFrame([], "id bigint, day date")
    table.update({"day": "NULL"})
    table.delete("true")
    table.merge(none, on="id").when_matched_delete().when_not_matched_insert().execute()
    table.overwrite(none, partition="dynamic")
    assert table.read().collect() == []
    assert table.changes(since=0, mode="log").collect() == []
    table.insert(spark.createDataFrame([(1, date(2026, 11, 1)), (2, None)], "id bigint, day date"))
    table.overwrite(none, partition={"day": None})
    table.overwrite(none, partition="dynamic")
    table.insert(none)
    assert [row["id"] for row in table.read().collect()] == [1]
    table.overwrite(none)
    assert table.read().collect() == []
    assert table.refresh().meta.head_version == 9


NO_KEYS = ("array", "map", "struct", "float", "double")
KEYS = [name for name, (word, _, _) in TYPES.items() if not word.startswith(NO_KEYS)]


def test_keys_of_every_type(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    """All in one key: two keys differ in one of its columns. Each is found again, replaced and deleted."""
    names = KEYS
    words = ", ".join(f"{name} {TYPES[name][0]}" for name in names)
    table = lake.create_table(new_name(), f"n int, {words}", primary_key=names, buckets=3)
    schema = pa.schema([("n", pa.int32()), *((name, TYPES[name][1]) for name in names)])
    first = {name: TYPES[name][2][0] for name in names}
    keys = [first, *(first | {name: value} for name in names for value in TYPES[name][2][1:3] if value != first[name])]

    def rows(n: int, chosen: Iterable[Row]) -> DataFrame:
        return spark.createDataFrame(pa.Table.from_pylist([{"n": n, **one} for one in chosen], schema))

    table.insert(rows(1, keys))
    table.insert(rows(2, keys[::2]))
    table.delete("n = 2 and i64 = 0 and text = '' and flag")
    source = rows(3, keys[:3]).withColumn(
        "local", sf.col("local").cast("timestamp_ntz")
    )  # a key loses nothing in a cast
    table.merge(source, on=names).when_matched_update({"n": "source.n"}).when_not_matched_insert().execute()
    kept = [one for one in keys[::2] if one["i64"] or one["text"] or not one["flag"]]
    wanted = [{"n": 3, **one} for one in keys[:3]]
    wanted += [{"n": 2, **one} for one in kept if one not in keys[:3]] + [{"n": 1, **one} for one in keys[1::2][1:]]
    assert texts(table.read().toArrow().to_pylist()) == texts(wanted)
    with pytest.raises(InputError, match="KEY_TWICE"):
        table.insert(rows(4, [keys[5], keys[5]]))


@pytest.mark.long
def test_partitions_of_real_numbers(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    """Both zeros are one partition; NaN is none."""
    schema = "id bigint, r double"
    table = lake.create_table(new_name(), schema, primary_key=["id"], partition_by=["r"], key_scope="partition")
    table.insert(spark.createDataFrame(list(enumerate([0.0, 1.5, None, float("inf")])), schema))
    table.insert(spark.createDataFrame([(0, -0.0), (1, -1.5)], schema))
    shown = sorted((row["id"], repr(row["r"])) for row in table.read().collect())
    assert shown == [(0, "-0.0"), (1, "-1.5"), (1, "1.5"), (2, "None"), (3, "inf")]
    folders = staged_folders(table)
    with pytest.raises(MetaServiceError, match="VALUE_NAN"):
        table.insert(spark.createDataFrame([(9, NAN)], schema))
    assert staged_folders(table) == folders
    table.delete("r = 0 or r > 100")
    table.truncate(partition={"r": None})
    assert sorted(row["r"] for row in table.read(where="r > 0 or r < 0").collect()) == [-1.5, 1.5]
    assert table.read().count() == 2
