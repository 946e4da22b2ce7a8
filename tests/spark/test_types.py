"""Every type and every awkward value, in and out by all ways, on both kinds of table, against plain rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
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

Names = Callable[[], str]
Row = dict[str, Any]

NAN = float("nan")
EARLY = datetime(1, 1, 1, tzinfo=UTC)
JULIAN = datetime(1582, 10, 4, 23, 59, 59, 999_999, tzinfo=UTC)  # the next day was the 15th
BEFORE = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
LATE = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
TEXTS = ["", "ünï\U0001f600\x00", "'; -- \\ \" ` \n", "x" * 3000]

# A column for each type: its word, pyarrow's type, and four values; a fifth row has NULL in all of them.
TYPES: dict[str, tuple[str, Any, list[Any]]] = {
    "flag": ("boolean", pa.bool_(), [True, False, True, False]),
    "i8": ("tinyint", pa.int8(), [0, -128, 127, 1]),
    "i16": ("smallint", pa.int16(), [0, -(1 << 15), (1 << 15) - 1, 1]),
    "i32": ("int", pa.int32(), [0, -(1 << 31), (1 << 31) - 1, 1]),
    "i64": ("bigint", pa.int64(), [0, -(1 << 63), (1 << 63) - 1, 1]),
    "f32": ("float", pa.float32(), [-0.0, NAN, float("inf"), 0.1]),
    "f64": ("double", pa.float64(), [-0.0, NAN, float("-inf"), 5e-324]),
    "d4": ("decimal(4,2)", pa.decimal128(4, 2), [Decimal("0.00"), Decimal("-99.99"), Decimal("99.99"), None]),
    "d18": ("decimal(18,0)", pa.decimal128(18, 0), [Decimal(0), Decimal(-(10**18) + 1), Decimal(10**18 - 1), None]),
    "d38": (
        "decimal(38,10)",
        pa.decimal128(38, 10),
        [Decimal("0E-10"), Decimal("-9" * 1 + "9" * 27 + ".0000000001"), Decimal("0.1234567891"), None],
    ),
    "text": ("string", pa.string(), TEXTS),
    "raw": ("binary", pa.binary(), [b"", b"\x00\xff", b"PAR1", b"\x80" * 100]),
    "day": ("date", pa.date32(), [date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(9999, 12, 31)]),
    "at": ("timestamp", pa.timestamp("us", "UTC"), [EARLY, JULIAN, BEFORE, LATE]),
    "local": ("timestamp_ntz", pa.timestamp("us"), [one.replace(tzinfo=None) for one in (EARLY, JULIAN, BEFORE, LATE)]),
    "many": ("array<int>", pa.list_(pa.int32()), [[], [None], [1, None, 3], None]),
    "deep": (
        "array<struct<a:bigint,b:array<struct<c:string>>>>",
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))])),
        [[], [None], [{"a": 1, "b": None}, {"a": None, "b": []}], [{"a": 2, "b": [{"c": "ü"}, {"c": None}, None]}]],
    ),
    "pairs": ("map<string,double>", pa.map_(pa.string(), pa.float64()), [{}, {"": None}, {"a": NAN, "b": -0.0}, None]),
    "lists": (
        "map<int,array<decimal(10,2)>>",
        pa.map_(pa.int32(), pa.list_(pa.decimal128(10, 2))),
        [{}, {1: None}, {-1: [Decimal("1.50"), None]}, {2: []}],
    ),
    "whole": (
        "struct<x:int,Y:struct<at:timestamp,z:map<string,date>>>",
        pa.struct(
            [
                ("x", pa.int32()),
                ("Y", pa.struct([("at", pa.timestamp("us", "UTC")), ("z", pa.map_(pa.string(), pa.date32()))])),
            ]
        ),
        [
            {"x": None, "Y": None},
            {"x": 1, "Y": {"at": BEFORE, "z": {}}},
            {"x": 2, "Y": {"at": None, "z": {"d": date(1960, 2, 29)}}},
            {"x": 3, "Y": {"at": LATE, "z": None}},
        ],
    ),
}
SCHEMA = "id bigint, mark int, " + ", ".join(f"{name} {word}" for name, (word, _, _) in TYPES.items())


def row_of(number: int, values_of: int, mark: int = 0) -> Row:
    """Row `number` with the values at a place; past the last all are NULL."""
    values = {name: dict(enumerate(values)).get(values_of) for name, (_, _, values) in TYPES.items()}
    return {"id": number, "mark": mark, **values}


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    listed = list(rows)
    kinds = {"id": pa.int64(), "mark": pa.int32()} | {name: kind for name, (_, kind, _) in TYPES.items()}
    columns = {}
    for name, kind in kinds.items():
        values = [
            list(one[name].items()) if pa.types.is_map(kind) and one[name] is not None else one[name] for one in listed
        ]
        columns[name] = pa.array(values, kind)
    return spark.createDataFrame(pa.table(columns))


def text_of(value: Any) -> str:
    """The same for the same value: NaN is itself, -0.0 is not 0.0, a moment has one zone."""
    match value:
        case dict():
            return "{" + ",".join(f"{name}:{text_of(one)}" for name, one in value.items()) + "}"
        case list() if value and all(isinstance(one, tuple) for one in value):  # a map, as pyarrow has it
            return text_of(dict(value))
        case list():
            return "[" + ",".join(map(text_of, value)) + "]"
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return f"{moment.isoformat()}{'' if value.tzinfo is None else 'Z'}"
        case _:
            return repr(value)


def texts(rows: Iterable[Row]) -> list[str]:
    """Maps without entries look like lists without any: types are pyarrow's affair."""
    return sorted(text_of(list(row.values())).replace("{}", "[]") for row in rows)


def rounded(row: Row) -> Row:
    """A float is what 32 bits hold of it."""
    return row | {"f32": None if row["f32"] is None else pa.scalar(row["f32"], pa.float32()).as_py()}


@pytest.mark.parametrize("keyed", [False, True])
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


@pytest.mark.parametrize("keyed", [False, True])
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


def test_frames_without_rows(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    """Each is a commit that changes nothing, or empties what it overwrites."""
    for keyed in (False, True):
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
    table.merge(rows(3, keys[:3]), on=names).when_matched_update({"n": "source.n"}).when_not_matched_insert().execute()
    kept = [one for one in keys[::2] if one["i64"] or one["text"] or not one["flag"]]
    wanted = [{"n": 3, **one} for one in keys[:3]]
    wanted += [{"n": 2, **one} for one in kept if one not in keys[:3]] + [{"n": 1, **one} for one in keys[1::2][1:]]
    assert texts(table.read().toArrow().to_pylist()) == texts(wanted)
    with pytest.raises(InputError, match="KEY_TWICE"):
        table.insert(rows(4, [keys[5], keys[5]]))


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
