"""Values of the wire as Iceberg writes them: bounds (single-value serialization) and partition values in Avro."""

from __future__ import annotations

import decimal
import struct
from typing import Any, Final

from iceberg.metadata.schemas import primitive
from metaservice.column_types import Decimal, Type
from protos.laketx.v1 import common_pb2

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
KINDS: Final = {  # the kind of wire value that belongs to a type
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


def plain_value(value: common_pb2.Value, kind: Type) -> Any:
    """The value as numbers, text or bytes, a decimal without its point; None: NULL, or not of the type."""
    found = value.WhichOneof("kind")
    if isinstance(kind, Decimal):
        if found != "decimal":
            return None
        scaled = decimal.Decimal(value.decimal).scaleb(kind.scale, EXACT)
        return int(scaled) if scaled == scaled.to_integral_value(context=EXACT) else None
    return getattr(value, found) if found is not None and found == KINDS[primitive(kind)] else None


def bound(value: Any, kind: Type) -> bytes:
    """A plain value, in bytes."""
    name = primitive(kind)
    if name in PACKED:
        return struct.pack(PACKED[name], value)
    if name == "boolean":
        return b"\x01" if value else b"\x00"
    if name == "string":
        return bytes(value.encode())
    if isinstance(kind, Decimal):
        return int(value).to_bytes(value_bytes(value), "big", signed=True)
    return bytes(value)


def value_bytes(value: int) -> int:
    """The bytes that a whole number needs, with its sign."""
    return (value if value >= 0 else ~value).bit_length() // 8 + 1


def decimal_bytes(precision: int) -> int:
    """The bytes of a fixed-length decimal with so many digits."""
    return value_bytes(10**precision - 1)


def avro_value(value: Any, kind: Type) -> Any:
    """A plain value as the Avro writer takes it."""
    if value is not None and isinstance(kind, Decimal):
        return int(value).to_bytes(decimal_bytes(kind.precision), "big", signed=True)
    return value


def avro_type(kind: Type, field_id: int) -> Any:
    """The Avro type of a partition value."""
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
