"""What the schema of a message says of its fields: types of new columns, and how values become documents of JSON."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from worker.formats.json_lines import Moment, Number

EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00")  # without a zone, whose text would take most of the time
FIRST_DAY: Final = date(1970, 1, 1)
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
ANY_SCALE: Final = "io.debezium.data.VariableScaleDecimal"
DATES: Final = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
ZONED: Final = "io.debezium.time.ZonedTimestamp"
TICKS_US: Final[Mapping[str, tuple[int, int]]] = {  # what a tick has of microseconds, as a fraction
    "io.debezium.time.Timestamp": (1_000, 1),
    "org.apache.kafka.connect.data.Timestamp": (1_000, 1),
    "io.debezium.time.MicroTimestamp": (1, 1),
    "io.debezium.time.NanoTimestamp": (1, 1_000),
}
PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
DIGITS_MAX: Final = 38
SCALE_MAX: Final = 1_000


def unchanged(value: Any, _: pa.DataType | None) -> Any:
    return value


@dataclass(frozen=True)
class Meaning:
    """What a schema says of a field."""

    word: str  # as errors call it
    kind: pa.DataType | None  # of a new column; None: only its values say it
    document: Callable[[Any, pa.DataType | None], Any] = unchanged  # a value as JSON has it, for a column of a type
    fields: Mapping[str, Meaning] = field(default_factory=dict)  # of a record


# -- schemas of Kafka Connect ------------------------------------------------------------------------------------------


def connect_meaning(schema: Mapping[str, Any]) -> Meaning:
    """What a field of a JSON message's schema says."""
    parameters = dict(schema.get("parameters") or ())
    scale, digits = parameters.get("scale", 0), parameters.get("connect.decimal.precision", 38)
    return _meaning(str(schema.get("name")), str(schema.get("type")), str(scale), str(digits))


@lru_cache(maxsize=1 << 10)  # each message has the schema again
def _meaning(name: str, type_name: str, scale: str, digits: str) -> Meaning:
    if name in DATES:
        return Meaning(name, pa.date32(), lambda value, _: day(value))
    if name in TICKS_US:
        return Meaning(name, pa.timestamp("us"), lambda value, kind: _time(value, name, kind))
    if name == ZONED:
        return Meaning(name, pa.timestamp("us", "UTC"))
    if name == DECIMAL:
        places = int(scale)
        return Meaning(
            name, decimal_type(int(digits), places), lambda value, _: scaled(b64decode(value, validate=True), places)
        )
    if name == ANY_SCALE:
        return Meaning(name, None, lambda value, _: _any_scale(value))
    return Meaning(name, PLAIN.get(type_name), number_or_text if type_name == "string" else unchanged)


def _time(ticks: int, name: str, kind: pa.DataType | None) -> str:
    has_zone = kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None
    return moment(ticks, *TICKS_US[name])[: None if has_zone else -1]


def _any_scale(value: Any) -> Number:
    number = dict(value)
    return scaled(b64decode(number["value"], validate=True), number["scale"])


# -- values ------------------------------------------------------------------------------------------------------------


def number_or_text(value: Any, kind: pa.DataType | None) -> Any:
    """Decimals may be sent as texts."""
    return Number(value) if kind is not None and pa.types.is_decimal(kind) else value


def day(days: int) -> str:
    return (FIRST_DAY + timedelta(days=days)).isoformat()


def moment(ticks: int, times: int, parts: int) -> Moment:
    """The time of so many ticks since 1970, each `times`/`parts` microseconds."""
    micros, rest = divmod(ticks * times, parts)
    if rest:
        raise ValueError(f"{ticks} ns are no whole microseconds")
    return Moment((EPOCH + timedelta(microseconds=micros)).isoformat() + "Z")


def decimal_type(digits: int, scale: int) -> pa.DataType | None:
    """None: no column has such numbers."""
    return pa.decimal128(digits, scale) if 0 <= scale <= digits and 1 <= digits <= DIGITS_MAX else None


def scaled(raw: bytes, scale: int) -> Number:
    """A decimal of an unscaled number."""
    if abs(scale) > SCALE_MAX:
        raise ValueError(f"it has the scale {scale}")
    unscaled = int.from_bytes(raw, "big", signed=True)
    digits = str(abs(unscaled)).rjust(scale + 1, "0") + "0" * -scale
    point = len(digits) - max(scale, 0)
    return Number("-" * (unscaled < 0) + digits[:point] + ("." + digits[point:] if scale > 0 else ""))
