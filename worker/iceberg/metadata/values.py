"""Values of the wire in Iceberg's forms: bounds (single-value serialization) and partition values in Avro."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from metaservice.shared.column_types import Decimal, Type
from protos.laketx.v1 import common_pb2
from worker.iceberg.metadata.schemas import primitive

PACKED: Final = {
    "int": "<i",
    "long": "<q",
    "float": "<f",
    "double": "<d",
    "date": "<i",
    "timestamp": "<q",
    "timestamptz": "<q",
}
FLOATS: Final = frozenset({"float", "double"})
Wire = Literal["boolean", "integer", "real", "text", "binary", "date", "timestamp_us"]
KINDS: Final[Mapping[str, Wire]] = {  # the kind of wire value that belongs to a type
    "boolean": "boolean",
    "int": "integer",
    "long": "integer",
    "float": "real",
    "double": "real",
    "string": "text",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp_us",
    "timestamptz": "timestamp_us",
}
EXACT: Final = decimal.Context(prec=38)
Plain = Callable[[common_pb2.Value], Any]
Bound = Callable[[Any], bytes]


def plain_of(kind: Type) -> Plain:
    """Return a reader of values as numbers, text or bytes; decimals unscaled. None is NULL, or another type."""
    if isinstance(kind, Decimal):
        return lambda value: _unscaled(value, kind.scale)
    name = KINDS[primitive(kind)]
    return lambda value: getattr(value, name) if value.HasField(name) else None


def _unscaled(value: common_pb2.Value, scale: int) -> int | None:
    if not value.HasField("decimal"):
        return None
    scaled = decimal.Decimal(value.decimal).scaleb(scale, EXACT)
    return int(scaled) if scaled == scaled.to_integral_value(context=EXACT) else None


def bound_of(kind: Type) -> Bound:
    """Return the writer of a type's plain values as bounds."""
    if isinstance(kind, Decimal):
        return lambda value: int(value).to_bytes(value_bytes(value), "big", signed=True)
    name = primitive(kind)
    if name in PACKED:
        return struct.Struct(PACKED[name]).pack
    if name == "boolean":
        return lambda value: b"\x01" if value else b"\x00"
    if name == "string":
        return str.encode
    return bytes


def value_bytes(value: int) -> int:
    """Return the number of bytes that a whole number needs, with its sign."""
    return (value if value >= 0 else ~value).bit_length() // 8 + 1


def decimal_bytes(precision: int) -> int:
    """Return the number of bytes of a fixed-length decimal with so many digits."""
    return value_bytes(10**precision - 1)


def avro_type(kind: Type, field_id: int) -> Any:
    """Return the Avro type of a partition value."""
    if isinstance(kind, Decimal):
        return {
            "type": "fixed",
            "name": f"decimal_{field_id}",
            "size": decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    match primitive(kind):
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "timestamp" | "timestamptz" as name:
            return {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": name == "timestamptz"}
        case "binary":
            return "bytes"
        case name:
            return name
