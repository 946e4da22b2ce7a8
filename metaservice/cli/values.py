"""Values of the wire as text and as JSON: times, partitions by their columns' types, words instead of enum names."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

from google.protobuf.message import Message

from metaservice.cli.failures import usage_failure
from protos.laketx.v1 import catalog_pb2, common_pb2

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
AGO: Final = re.compile(r"(\d{1,9})\s*(s|m|h|d)(\s+ago)?")
UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def when(time_us: int) -> str:
    """Microseconds since 1970 as UTC; nothing for 0, which is "not yet"."""
    if not time_us:
        return ""
    try:
        return f"{EPOCH + timedelta(microseconds=time_us):%Y-%m-%d %H:%M:%S.%f}"
    except OverflowError:
        return f"{time_us} µs"


def to_second(time_us: int) -> str:
    """The same without fractions, for times that no version is read at."""
    return when(time_us).partition(".")[0]


def read_time_us(text: str, now_us: int) -> int:
    """Read an ISO time (UTC without a zone), "10m ago" (s, m, h, d), or "now"."""
    if text == "now":
        return now_us
    if ago := AGO.fullmatch(text.strip()):
        return now_us - int(ago[1]) * UNIT_S[ago[2]] * 1_000_000
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise usage_failure(
            f"`{text}` is not a time", next_step='write it like "2026-11-21 15:04:05" (UTC), "10m ago" or "now"'
        ) from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (time - EPOCH) // timedelta(microseconds=1)


def word(name_of: Callable[[Any], str], value: int) -> str:
    """OPERATION_MAJOR_COMPACT is `major compact`; a value that this client doesn't know is its number."""
    try:
        name = name_of(value)
    except ValueError:
        return str(value)
    prefix = name_of(0).removesuffix("UNSPECIFIED")
    return name.removeprefix(prefix).replace("_", " ").lower()


def value_text(value: common_pb2.Value, kind_of_column: str = "") -> str:
    match value.WhichOneof("kind"):
        case "date":
            return date_text(value.date)
        case "timestamp_us":
            return timestamp_text(value.timestamp_us, kind_of_column)
        case "binary":
            return value.binary.hex()
        case "boolean":
            return "true" if value.boolean else "false"
        case "null" | None:
            return "NULL"
        case kind:
            return str(getattr(value, kind))


def partition_text(partition: common_pb2.Partition, columns: Mapping[str, str] | None = None) -> str:
    """Where the columns' types are known, instants show that they are in UTC."""
    types = columns or {}
    return "/".join(f"{each.column}={value_text(each.value, types.get(each.column, ''))}" for each in partition.values)


def typed_partition_text(text: str, columns: Mapping[str, str]) -> str:
    """A partition as a conflict has it, with days and microseconds as dates and times by the columns' types."""
    return "/".join(_typed_part(part, columns) for part in text.split("/")) if text else ""


def _typed_part(part: str, columns: Mapping[str, str]) -> str:
    name, equals, value = part.partition("=")
    name = unquote(name)
    if not equals:
        return f"{name}=NULL"
    kind = columns.get(name, "")
    if kind == "date" and re.fullmatch(r"-?\d+", value):
        return f"{name}={date_text(int(value))}"
    if kind.startswith("timestamp") and re.fullmatch(r"-?\d+", value):
        return f"{name}={timestamp_text(int(value), kind)}"
    return f"{name}={unquote(value)}"


def types_of(table: catalog_pb2.Table) -> dict[str, str]:
    return {column.name: column.type for column in table.columns}


def date_text(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"day {days}"


def timestamp_text(time_us: int, kind: str = "") -> str:
    """A timestamp is an instant, shown in UTC; a timestamp_ntz is what a clock shows."""
    zone = "Z" if kind == "timestamp" else ""
    try:
        return (EPOCH + timedelta(microseconds=time_us)).replace(tzinfo=None).isoformat(sep=" ") + zone
    except OverflowError:
        return f"{time_us} µs"


def duration_text(ms: int) -> str:
    """For people: 0.25 s, 45 s, 5 min, 3.2 h, 12 d."""
    amount = ms / 1_000
    if amount < 120:
        return f"{amount:.0f} s" if amount >= 10 or not ms % 1_000 else f"{amount:.2g} s"
    for unit, size, most in (("min", 60, 7_200), ("h", 3_600, 172_800)):
        if amount < most:
            return f"{amount / size:.3g} {unit}"
    return f"{amount / 86_400:.0f} d"


def size_text(size: int) -> str:
    """Bytes for people: 1536 is `1.5 KiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} PiB"


def properties_text(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(properties.items()))


# Descriptors have two types, one of Python and one of C: to these functions they are Any.
def as_json(message: Message) -> dict[str, Any]:
    """Convert a message to JSON: names of the .proto files, enum values as words (`major_compact`), bytes as base64.

    An absent optional field is left out; all others are included, with 0, "" and [] too.
    """
    document: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            document[field.name] = {str(key): _json_value(_map_value(field), value[key]) for key in sorted(value)}
        elif field.is_repeated:
            document[field.name] = [_json_value(field, item) for item in value]
        else:
            document[field.name] = _json_value(field, value)
    return document


def _json_value(field: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return as_json(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if field.enum_type is not None:
        return _enum_word(field.enum_type, value)
    return value


def _enum_word(kind: Any, number: int) -> str | int:
    named = kind.values_by_number.get(number)
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return named.name.removeprefix(prefix).lower() if named is not None else number


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _map_value(field: Any) -> Any:
    return field.message_type.fields_by_name["value"]
