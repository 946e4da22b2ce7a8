"""Python values, users' values and Parquet statistics as values of the wire."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOATS: Final = frozenset({"float", "double"})
TIMES: Final = frozenset({"timestamp", "timestamp_ntz"})
EXACT: Final = Context(prec=38)  # the usual one rounds to 28 digits
TEXT_CHARS_MAX: Final = common_pb2.LIMIT_STATISTICS_CHARS  # longer ones are cut in statistics

PartitionKey = tuple[tuple[str, bytes], ...]


def wire_value(value: Any, type_name: str, zone: tzinfo | None = None) -> common_pb2.Value:
    """A wire value of a Python value; text is parsed by the type. A time without a zone is in `zone`, if given."""
    if value is None:
        return common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED)
    try:
        if type_name in INTEGERS:
            return common_pb2.Value(integer=_integer(value))
        if type_name == "string":
            return common_pb2.Value(text=str(value))
        if type_name == "date":
            return common_pb2.Value(date=_day(value).toordinal() - EPOCH_DAY)
        if type_name in TIMES:
            return common_pb2.Value(timestamp_us=micros(value, type_name, zone))
        if type_name in FLOATS:
            return common_pb2.Value(real=float(value) + 0.0)  # both zeros are one partition
        if type_name == "boolean":
            return common_pb2.Value(boolean=_boolean(value))
        if type_name == "binary":
            return common_pb2.Value(binary=memoryview(value).tobytes())
        if type_name.startswith("decimal"):
            return common_pb2.Value(decimal=format(_decimal(value, type_name), "f"))
    except (ValueError, TypeError, AttributeError, InvalidOperation) as error:
        why = f": {error}" if type_name in TIMES else ""
        raise InputError("VALUE_INVALID", f"{value!r} is not a {type_name}{why}") from error
    raise InputError("VALUE_INVALID", f"values of type {type_name} are not possible here")


def python_value(value: common_pb2.Value) -> Any:
    """A Python value of a wire value."""
    match value.WhichOneof("kind"):
        case "null" | None:
            return None
        case "date":
            return date.fromordinal(value.date + EPOCH_DAY)
        case "timestamp_us":
            return moment_of(value.timestamp_us)
        case "decimal":
            return Decimal(value.decimal)
        case kind:
            return getattr(value, kind)


def _integer(value: Any) -> int:
    """Convert to an integer of the same value; nothing is truncated."""
    integer = int(value)
    if isinstance(value, bool) or (not isinstance(value, str) and integer != value):
        raise ValueError(value)
    return integer


def _day(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError(value)
    return value


def _decimal(value: Any, type_name: str) -> Decimal:
    """Convert to a decimal with the type's digits after the point: 1.5 and 1.50 are one partition."""
    number = Decimal(str(value))
    scale = int(type_name.rstrip(")").partition(",")[2] or 0)
    whole = number.quantize(Decimal((0, (1,), -scale)), context=EXACT)
    if not number.is_finite() or number != whole:
        raise ValueError(value)
    return whole


def _boolean(value: object) -> bool:
    flag = {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower())
    if flag is None:
        raise ValueError(value)
    return flag


def micros(value: datetime | str, type_name: str, zone: tzinfo | None) -> int:
    """Microseconds since 1970: of a timestamp in UTC, of a timestamp_ntz as its clock shows it."""
    moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    if type_name == "timestamp_ntz":
        if moment.tzinfo is not None:
            raise ValueError("it takes no time zone")
        moment = moment.replace(tzinfo=UTC)
    elif moment.tzinfo is None:
        if zone is None:
            raise ValueError("it has no time zone, and the session's is unknown here")
        moment = moment.replace(tzinfo=zone)  # in the hour that comes twice: the first one, as Spark reads it
    return (moment - EPOCH) // MICROSECOND


def moment_of(time_us: int) -> datetime:
    seconds, rest = divmod(time_us, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def partition(meta: catalog_pb2.Table, values: Mapping[str, Any], zone: tzinfo | None) -> common_pb2.Partition:
    """Build a partition from the values of all its columns; `zone` is the session's time zone."""
    types = {column.name: column.type for column in meta.columns}
    columns = list(meta.partition_columns)
    given = {name.lower(): value for name, value in values.items()}
    if len(given) != len(values) or given.keys() != {name.lower() for name in columns}:
        raise InputError(
            "PARTITION_INVALID", f"{meta.name} is partitioned by {columns or 'nothing'}, given: {list(values)}"
        )
    return common_pb2.Partition(
        values=[
            common_pb2.PartitionValue(column=name, value=wire_value(given[name.lower()], types[name], zone))
            for name in columns
        ]
    )


def raw_value(raw: Any, type_name: str, *, is_max: bool) -> tuple[common_pb2.Value | None, bool]:
    """A bound of a Parquet footer (physical type), and whether it was truncated; None: not usable."""
    if type_name in INTEGERS:
        return common_pb2.Value(integer=raw), False
    if type_name == "date":
        return common_pb2.Value(date=raw), False
    if type_name in TIMES:
        return common_pb2.Value(timestamp_us=raw), False
    if type_name == "boolean":
        return common_pb2.Value(boolean=raw), False
    if type_name in FLOATS:
        if math.isnan(raw):
            return None, False
        zero = 0.0 if is_max else -0.0  # writers differ in which zero is the smaller
        return common_pb2.Value(real=zero if raw == 0 else raw), False
    if type_name == "string":
        return _text(raw, is_max=is_max)
    if type_name.startswith("decimal"):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        scale = int(type_name.rstrip(")").partition(",")[2])
        return common_pb2.Value(decimal=format(Decimal(unscaled).scaleb(-scale, EXACT), "f")), False
    return None, False


def bound_of(value: Any, type_name: str, *, is_max: bool) -> common_pb2.Value | None:
    """A wire value that is not below, or not above, this one: a long text is cut. None: there is no such value."""
    return _text(value, is_max=is_max)[0] if type_name == "string" else wire_value(value, type_name)


def _text(raw: bytes | str, *, is_max: bool) -> tuple[common_pb2.Value | None, bool]:
    try:
        text = raw.decode() if isinstance(raw, bytes) else raw
    except UnicodeDecodeError:
        return None, False
    if len(text) <= TEXT_CHARS_MAX:
        return common_pb2.Value(text=text), False
    text = text[:TEXT_CHARS_MAX]
    if not is_max:
        return common_pb2.Value(text=text), True
    last = ord(text[-1]) + 1
    if 0xD800 <= last <= 0xDFFF or last > 0x10FFFF:
        return None, True
    return common_pb2.Value(text=text[:-1] + chr(last)), True


def partition_key(partition: common_pb2.Partition) -> PartitionKey:
    """Return a hashable key, equal for equal partitions: writers and the service write 1.5 or 1.50 for one number."""
    return tuple(sorted((part.column, _key_bytes(part.value)) for part in partition.values))


def _key_bytes(value: common_pb2.Value) -> bytes:
    if value.decimal:
        text = format(Decimal(value.decimal), "f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        value = common_pb2.Value(decimal="0" if text == "-0" else text)
    return value.SerializeToString(deterministic=True)
