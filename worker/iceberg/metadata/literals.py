"""Literals in the filters of Iceberg's readers, as values of LakeTX, by the type of the column."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from metaservice.shared.column_types import Atomic, Type
from metaservice.shared.column_types import Decimal as DecimalKind
from protos.laketx.v1 import common_pb2

TEXT_CHARS_MAX: Final = 1_000
BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
WHOLE: Final = re.compile(r"-?[0-9]{1,19}\Z")
DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-]00:00)?\Z")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Value = common_pb2.Value


@dataclass(frozen=True, slots=True)
class Range:
    """The value of a literal. Readers that round it may choose either of two neighbours."""

    low: Value
    high: Value

    @property
    def is_one(self) -> bool:
        return self.low is self.high


def plain_of_literal(literal: Any) -> Any:
    return literal.get("value") if isinstance(literal, dict) and literal.get("type") == "literal" else literal


def range_of(kind: Type, literal: Any) -> Range | None:
    """Return the possible values of a literal; None if readers may differ more, or the column can't hold it."""
    plain = plain_of_literal(literal)
    if isinstance(kind, DecimalKind):
        return _range_of_value(_decimal(kind, plain))
    if not isinstance(kind, Atomic):
        return None
    match kind.name:
        case "boolean":
            return _range_of_value(Value(boolean=plain) if isinstance(plain, bool) else None)
        case "tinyint" | "smallint" | "int" | "bigint":
            number = _integer(plain, BITS[kind.name])
            return _range_of_value(None if number is None else Value(integer=number))
        case "float" | "double":
            return _real(plain, is_narrow=kind.name == "float")
        case "string":
            is_short = isinstance(plain, str) and len(plain) <= TEXT_CHARS_MAX
            return _range_of_value(Value(text=plain) if is_short else None)
        case "date":
            return _range_of_value(_date(plain))
        case "timestamp" | "timestamp_ntz":
            return _range_of_value(_moment(plain, has_zone=kind.name == "timestamp"))
        case _:
            return None  # binary: a text can be the bytes in hexadecimal digits, or be them itself


def _range_of_value(value: Value | None) -> Range | None:
    return None if value is None else Range(value, value)


def _integer(plain: Any, bits: int) -> int | None:
    if isinstance(plain, str) and WHOLE.match(plain):
        plain = int(plain)
    if not isinstance(plain, int) or isinstance(plain, bool):
        return None
    return plain if -(1 << bits - 1) <= plain < 1 << bits - 1 else None


def _real(plain: Any, *, is_narrow: bool) -> Range | None:
    if isinstance(plain, bool) or not isinstance(plain, int | float | str):
        return None
    try:
        number = float(plain)
        narrow = struct.unpack("<f", struct.pack("<f", number))[0] if is_narrow else number
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number) or (isinstance(plain, int) and number != plain):
        return None
    low, high = Value(real=min(number, narrow)), Value(real=max(number, narrow))
    return Range(low, low) if number == narrow else Range(low, high)


def _decimal(kind: DecimalKind, plain: Any) -> Value | None:
    if isinstance(plain, bool) or not isinstance(plain, int | float | str):
        return None
    try:
        number = Decimal(str(plain))
    except InvalidOperation:
        return None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -kind.scale or number.adjusted() >= kind.precision - kind.scale:
        return None
    return Value(decimal=f"{number:f}")


def _date(plain: Any) -> Value | None:
    if not isinstance(plain, str) or not DAY.match(plain):
        return None
    try:
        return Value(date=date.fromisoformat(plain).toordinal() - EPOCH.toordinal())
    except ValueError:
        return None


def _moment(plain: Any, *, has_zone: bool) -> Value | None:
    """Return a time in UTC. pyiceberg leaves the zone out."""
    matched = MOMENT.match(plain) if isinstance(plain, str) else None
    if matched is None or (matched[2] and not has_zone):
        return None
    try:
        moment = datetime.fromisoformat(plain).replace(tzinfo=UTC)
    except ValueError:
        return None
    since = moment - EPOCH
    return Value(timestamp_us=(since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
