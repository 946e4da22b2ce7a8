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
    return tuple(_field(one, one["name"], is_top=True) for one in fields), tuple(physical_name(one) for one in fields)


def physical_name(one: Mapping[str, Any]) -> str:
    return str((one.get("metadata") or {}).get(PHYSICAL, one["name"]))


def _field(one: Mapping[str, Any], path: str, *, is_top: bool = False) -> Field:
    if not is_top and physical_name(one) != one["name"]:
        raise InputError(
            "IMPORT_SCHEMA",
            f"the field {path} has another name in files: fields of structs in files of other tables are read by name; "
            "rewrite the table at its source",
        )
    about = one.get("metadata") or {}
    nullable = bool(one.get("nullable", True)) or not is_top
    number = int(about.get(ID, 0)) if PHYSICAL in about else 0
    return Field(
        one["name"], _type(one["type"], path), nullable, number, str(about.get("comment", "")) if is_top else ""
    )


def _type(kind: Any, path: str) -> Type:
    if isinstance(kind, Mapping):
        match kind["type"]:
            case "struct":
                return Struct(tuple(_field(one, f"{path}.{one['name']}") for one in kind["fields"]))
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
    """Of a time without a zone that of UTC."""
    name = type_text(column.kind)
    if not text:
        return wire_value(None, name)
    if name == "binary":
        raise InputError(
            "IMPORT_FEATURE", f"{column.name}, a partition column, is binary: rewrite the table at its source"
        )
    return common_pb2.Value(timestamp_us=_micros(text)) if name in TIMES else wire_value(text, name)


def bounds_of(stats: Mapping[str, Any], columns: Sequence[Field], names: Sequence[str]) -> dict[ColumnKey, Bounds]:
    """Of statistics in JSON; `names` are those in files."""
    low, high, nulls = (stats.get(one) or {} for one in ("minValues", "maxValues", "nullCount"))
    is_tight = stats.get("tightBounds", True)
    found: dict[ColumnKey, Bounds] = {}
    for column, name in zip(columns, names, strict=True):
        least, most = (_bound(one.get(name), column.kind, is_max=one is high) for one in (low, high))
        count = nulls.get(name) if is_tight else None
        kind = type_text(column.kind)
        if least is not None or most is not None or isinstance(count, int):
            is_cut = not is_tight or kind == "string" or kind in TIMES
            found[key_of(column)] = Bounds(least, most, count if isinstance(count, int) else None, is_cut)
    return found


def _bound(value: Any, kind: Type, *, is_max: bool) -> common_pb2.Value | None:
    """Texts are cut; times are rounded down to a millisecond."""
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
    """As ZeroMQ encodes bytes; Python's base 85 has the same digits in another order of characters."""
    return base64.b85decode(text.encode().translate(bytes.maketrans(Z85, B85)))


def vector_file(text: str) -> str:
    """The file of a vector below its table, of a prefix for its folder and an encoded id."""
    prefix, number = text[:-UUID_CHARS], UUID(bytes=z85_bytes(text[-UUID_CHARS:]))
    name = f"deletion_vector_{number}.bin"
    return f"{prefix}/{name}" if prefix else name
