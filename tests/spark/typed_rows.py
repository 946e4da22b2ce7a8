"""Rows with a column for each type and every awkward value, and as text, so that they can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

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


def arrow(rows: Iterable[Row]) -> pa.Table:
    listed = list(rows)
    kinds = {"id": pa.int64(), "mark": pa.int32()} | {name: kind for name, (_, kind, _) in TYPES.items()}
    columns = {}
    for name, kind in kinds.items():
        values = [
            list(one[name].items()) if pa.types.is_map(kind) and one[name] is not None else one[name] for one in listed
        ]
        columns[name] = pa.array(values, kind)
    return pa.table(columns)


def frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    return spark.createDataFrame(arrow(rows))


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
