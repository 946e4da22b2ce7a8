"""Values of Delta's log: types, values of partitions, statistics, places of deletion vectors."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Any, Final
from uuid import UUID

from metaservice.shared.column_types import (
    Array,
    Atomic,
    Decimal,
    Field,
    Map,
    Struct,
    Type,
    TypeTextError,
    read_type,
    type_text,
)
from protos.laketx.v1 import common_pb2
from worker.base.errors import InputError
from worker.base.values import EPOCH, MICROSECOND, TIMES, raw_value, wire_value
from worker.imports.facts import Bounds, ColumnKey, key_of

WORDS: Final[Mapping[str, str]] = {
    **{name: name for name in ("string", "float", "double", "boolean", "binary", "date", "timestamp", "timestamp_ntz")},
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
}
PHYSICAL: Final = "delta.columnMapping.physicalName"
ID: Final = "delta.columnMapping.id"
CUT_US: Final = 999  # of a time in statistics, milliseconds are kept
Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
UUID_CHARS: Final = 20


# -- columns -----------------------------------------------------------------------------------------------------------


def columns_of(schema: str) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """The columns of a schema in JSON, and the names that they have in files."""
    fields = json.loads(schema)["fields"]
    return tuple(_field(field, field["name"], is_top=True) for field in fields), tuple(
        physical_name(field) for field in fields
    )


def physical_name(field: Mapping[str, Any]) -> str:
    return str((field.get("metadata") or {}).get(PHYSICAL, field["name"]))


def _field(field: Mapping[str, Any], path: str, *, is_top: bool = False) -> Field:
    if not is_top and physical_name(field) != field["name"]:
        raise InputError(
            "IMPORT_SCHEMA",
            f"the field {path} has another name in files: fields of structs in files of other tables are read by name; "
            "rewrite the table at its source",
        )
    about = field.get("metadata") or {}
    nullable = bool(field.get("nullable", True)) or not is_top
    number = int(about.get(ID, 0)) if PHYSICAL in about else 0
    return Field(
        field["name"], _type(field["type"], path), nullable, number, str(about.get("comment", "")) if is_top else ""
    )


def _type(kind: Any, path: str) -> Type:
    if isinstance(kind, Mapping):
        match kind["type"]:
            case "struct":
                return Struct(tuple(_field(field, f"{path}.{field['name']}") for field in kind["fields"]))
            case "array":
                return Array(_type(kind["elementType"], f"{path}.element"))
            case "map":
                return Map(_type(kind["keyType"], f"{path}.key"), _type(kind["valueType"], f"{path}.value"))
            case _:
                pass
    if isinstance(kind, str):
        if kind in WORDS:
            return Atomic(WORDS[kind])
        if kind.startswith("decimal"):
            try:
                return read_type("decimal(10,0)" if kind == "decimal" else kind)
            except TypeTextError:
                pass
    raise InputError("TYPE_NOT_SUPPORTED", f"{path} is of Delta's type {kind}, which tables here don't have")


# -- values ------------------------------------------------------------------------------------------------------------


def partition_value(text: str | None, column: Field) -> common_pb2.Value:
    """Return a partition column's value. A time without a zone is in UTC."""
    name = type_text(column.kind)
    if not text:
        return wire_value(None, name)
    if name == "binary":
        raise InputError(
            "IMPORT_FEATURE", f"{column.name}, a partition column, is binary: rewrite the table at its source"
        )
    return common_pb2.Value(timestamp_us=_micros(text)) if name in TIMES else wire_value(text, name)


def bounds_of(stats: Mapping[str, Any], columns: Sequence[Field], names: Sequence[str]) -> dict[ColumnKey, Bounds]:
    """Return the bounds in a file's JSON statistics. `names` are the columns' names in files."""
    low, high, nulls = (stats.get(name) or {} for name in ("minValues", "maxValues", "nullCount"))
    is_tight = stats.get("tightBounds", True)
    bounds: dict[ColumnKey, Bounds] = {}
    for column, name in zip(columns, names, strict=True):
        least, most = (_bound(extreme.get(name), column.kind, is_max=extreme is high) for extreme in (low, high))
        count = nulls.get(name) if is_tight else None
        kind = type_text(column.kind)
        if least is not None or most is not None or isinstance(count, int):
            is_cut = not is_tight or kind == "string" or kind in TIMES
            bounds[key_of(column)] = Bounds(least, most, count if isinstance(count, int) else None, is_cut)
    return bounds


def _bound(value: Any, kind: Type, *, is_max: bool) -> common_pb2.Value | None:
    """Return a bound that holds although the statistics cut texts and round times down to a millisecond."""
    name = type_text(kind)
    try:
        if value is None or isinstance(value, Mapping | list):
            return None
        if name in TIMES:
            return common_pb2.Value(timestamp_us=_micros(str(value)) + (CUT_US if is_max else 0))
        if name == "string":
            return raw_value(str(value), name, is_max=is_max)[0]
        if isinstance(kind, Decimal):
            return wire_value(Number(str(value)), name)
        return wire_value(value, name)
    except (InputError, ValueError, ArithmeticError):
        return None


def _micros(text: str) -> int:
    moment = datetime.fromisoformat(text.strip())
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) // MICROSECOND


# -- deletion vectors --------------------------------------------------------------------------------------------------


def z85_bytes(text: str) -> bytes:
    """Decode ZeroMQ's base 85. Python's has the same digits in another order of characters."""
    return base64.b85decode(text.encode().translate(bytes.maketrans(Z85, B85)))


def vector_file(text: str) -> str:
    """The file of a vector below its table, of a prefix for its folder and an encoded id."""
    prefix, number = text[:-UUID_CHARS], UUID(bytes=z85_bytes(text[-UUID_CHARS:]))
    name = f"deletion_vector_{number}.bin"
    return f"{prefix}/{name}" if prefix else name
