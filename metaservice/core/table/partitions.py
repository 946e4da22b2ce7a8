"""Partitions as canonical text, and back.

`day=2026-11-01/region=eu`: columns in the table's order, names and values percent-escaped, NULL as the bare name. Two
partitions are the same exactly where their texts are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from urllib.parse import quote, unquote

from metaservice.core.errors import invalid
from metaservice.core.table.predicates import Predicate, SqlValue, truth

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
WIRE_KIND = {
    **dict.fromkeys(INTEGER_BITS, "integer"),
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp_us",
    "timestamp_ntz": "timestamp_us",
    "binary": "binary",
    "float": "real",
    "double": "real",
}


def wire_kind(type_name: str) -> str | None:
    """The kind of value that a column of this type takes; None for types without an order."""
    return "decimal" if type_name.startswith("decimal") else WIRE_KIND.get(type_name)


@dataclass(slots=True)
class Partitioning:
    """The partition columns of a table with their types, in order."""

    columns: tuple[tuple[str, str], ...]
    _decoded: dict[str, dict[str, SqlValue]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def encode(self, values: Mapping[str, SqlValue]) -> str:
        return "/".join(_encode_one(name, values[name]) for name, _ in self.columns)

    def encode_leading(self, values: Sequence[SqlValue]) -> str:
        """The text of the first columns."""
        return "/".join(_encode_one(name, value) for (name, _), value in zip(self.columns, values, strict=False))

    def decode(self, key: str) -> Mapping[str, SqlValue]:
        values = self._decoded.get(key)
        if values is None:
            if len(self._decoded) > 100_000:
                self._decoded.clear()
            parts = key.split("/") if self.columns else []
            values = {name: _decode_one(part, kind) for (name, kind), part in zip(self.columns, parts, strict=True)}
            self._decoded[key] = values
        return values

    def matches(self, predicate: Predicate, key: str) -> bool:
        return truth(predicate, self.decode(key)) is True


def check_integer(value: int, type_name: str, column: str) -> None:
    bits = INTEGER_BITS.get(type_name)
    if bits is not None and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise invalid("PARTITION_VALUE_OUT_OF_RANGE", column=column, type=type_name, value=value)


def _encode_one(name: str, value: SqlValue) -> str:
    name = _column_text(name)
    if value is None:
        return name
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, bytes):
        text = value.hex()
    elif isinstance(value, float):
        text = repr(value + 0.0)
    elif isinstance(value, Decimal):
        text = _decimal_text(value)
    else:
        text = quote(str(value), safe=" :+-._,@")
    return f"{name}={text}"


@lru_cache(maxsize=1_024)  # the same few for every file
def _column_text(name: str) -> str:
    return quote(name, safe="")


def _decimal_text(value: Decimal) -> str:
    """Plain notation without trailing zeros, exact at any length."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _decode_one(part: str, type_name: str) -> SqlValue:
    _, equals, text = part.partition("=")
    if not equals:
        return None
    match wire_kind(type_name):
        case "integer" | "date" | "timestamp_us":
            return int(text)
        case "boolean":
            return text == "true"
        case "binary":
            return bytes.fromhex(text)
        case "real":
            return float(text)
        case "decimal":
            return Decimal(text)
        case _:
            return unquote(text)
