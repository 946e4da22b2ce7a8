"""Functions that read a value in the bytes of an Avro record, or skip it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Context, Decimal
from typing import Any, Final

from worker.base.values import EPOCH, MICROSECOND

PAIRS_MAX: Final = 20_000  # of one map by column ids
TEXT_BYTES_MAX: Final = 1 << 20
DECIMAL_BYTES_MAX: Final = 32
VARINT_BITS: Final = 64
EXACT: Final = Context(prec=76)
Record = dict[str, Any]
Read = Callable[[bytes, int], tuple[Any, int]]  # from where to where
Skip = Callable[[bytes, int], int]


class AvroError(ValueError):
    """An Avro file that is broken, or not supported."""


def whole_number(raw: bytes, at: int) -> tuple[int, int]:
    """Return an int or a long, and the position after it."""
    byte = raw[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > VARINT_BITS + 6:
            raise AvroError("a number of it is too long")
    if number >> VARINT_BITS:
        raise AvroError("a number of it is too large")
    return (number >> 1) ^ -(number & 1), at


def _skip_number(raw: bytes, at: int) -> int:
    while raw[at] > 0x7F:
        at += 1
    return at + 1


def _sized(raw: bytes, at: int) -> tuple[bytes, int]:
    size, at = whole_number(raw, at)
    if not 0 <= size <= len(raw) - at:
        raise AvroError("a value of it is cut off")
    if size > TEXT_BYTES_MAX:
        raise AvroError(f"a value of it has {size} bytes")
    return raw[at : at + size], at + size


def skip_sized(raw: bytes, at: int) -> int:
    size = raw[at]
    if size < 0x80:
        at += 1
        size = (size >> 1) ^ -(size & 1)
    else:
        size, at = whole_number(raw, at)
    if not 0 <= size <= len(raw) - at:
        raise AvroError("a value of it is cut off")
    return at + size


def _text(raw: bytes, at: int) -> tuple[str, int]:
    encoded, at = _sized(raw, at)
    return encoded.decode(), at


def _flag(raw: bytes, at: int) -> tuple[bool, int]:
    return raw[at] != 0, at + 1


def read_null(_raw: bytes, at: int) -> tuple[None, int]:
    return None, at


def _packed(form: str) -> Read:
    packed = struct.Struct(form)
    return lambda raw, at: (packed.unpack_from(raw, at)[0], at + packed.size)


def fixed_of(size: int) -> Read:
    def read(raw: bytes, at: int) -> tuple[bytes, int]:
        if size > len(raw) - at:
            raise AvroError("a value of it is cut off")
        return raw[at : at + size], at + size

    return read


def skip_bytes(size: int) -> Skip:
    def skip(raw: bytes, at: int) -> int:
        if size > len(raw) - at:
            raise AvroError("a value of it is cut off")
        return at + size

    return skip


READS: Final[Mapping[str, Read]] = {
    "boolean": _flag,
    "int": whole_number,
    "long": whole_number,
    "float": _packed("<f"),
    "double": _packed("<d"),
    "bytes": _sized,
    "string": _text,
}
SKIPS: Final[Mapping[str, Skip]] = {
    "boolean": skip_bytes(1),
    "int": _skip_number,
    "long": _skip_number,
    "enum": _skip_number,
    "float": skip_bytes(4),
    "double": skip_bytes(8),
    "bytes": skip_sized,
    "string": skip_sized,
}
LOGICAL: Final[Mapping[str, Callable[[Any], Any]]] = {
    "date": lambda days: date(1970, 1, 1) + timedelta(days=days),
    "timestamp-micros": lambda micros: EPOCH + micros * MICROSECOND,
    "local-timestamp-micros": lambda micros: EPOCH + micros * MICROSECOND,
}


def record_of(empty: Record, steps: Sequence[tuple[str, Read | None, Skip | None, bool]]) -> Read:
    def read(raw: bytes, at: int) -> tuple[Record, int]:
        record = dict(empty)
        for name, value, skip, is_required in steps:
            if value is None:
                at = skip(raw, at) if skip is not None else at
                continue
            part, at = value(raw, at)
            if part is None and is_required:
                raise AvroError(f"a record of it has no {name}")
            record[name] = part
        return record, at

    return read


def union_of(branches: Sequence[Read | None], name: str) -> Read:
    def read(raw: bytes, at: int) -> tuple[Any, int]:
        number, at = whole_number(raw, at)
        branch = branches[number] if 0 <= number < len(branches) else None
        if branch is None:
            raise AvroError(f"a record of it has something else for {name}")
        return branch(raw, at)

    return read


def mapped_of(read: Read, change: Callable[[Any], Any]) -> Read:
    def mapped(raw: bytes, at: int) -> tuple[Any, int]:
        value, at = read(raw, at)
        return change(value), at

    return mapped


def decimal_of(scale: int) -> Callable[[bytes], Decimal]:
    def change(raw: bytes) -> Decimal:
        if len(raw) > DECIMAL_BYTES_MAX:
            raise AvroError(f"a decimal of it has {len(raw)} bytes")
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, EXACT)

    return change


def pairs_of(pair: Read) -> Read:
    def read(raw: bytes, at: int) -> tuple[dict[Any, Any], int]:
        pairs: dict[Any, Any] = {}
        while True:
            count, at = list_block(raw, at)
            if not count:
                return pairs, at
            if len(pairs) + count > PAIRS_MAX:
                raise AvroError(f"a record of it has more than {PAIRS_MAX} pairs of columns and values")
            for _ in range(count):
                entry, at = pair(raw, at)
                pairs[entry["key"]] = entry["value"]

    return read


def list_block(raw: bytes, at: int) -> tuple[int, int]:
    """The number of the next items of a list, each of which has a byte at least; 0: it ends."""
    count, at = whole_number(raw, at)
    if count < 0:
        count, at = -count, _skip_number(raw, at)
    if count > len(raw) - at:
        raise AvroError("a list of it has more items than bytes")
    return count, at


def skip_list(item: Skip | None) -> Skip:
    if item is None:
        raise AvroError("its schema has a list of items that take no bytes")

    def skip(raw: bytes, at: int) -> int:
        while True:
            count, at = list_block(raw, at)
            if not count:
                return at
            for _ in range(count):
                at = item(raw, at)

    return skip


def skip_union(branches: Sequence[Skip | None]) -> Skip:
    def skip(raw: bytes, at: int) -> int:
        number, at = whole_number(raw, at)
        if not 0 <= number < len(branches):
            raise AvroError("a record of it has a value of no type of its union")
        branch = branches[number]
        return at if branch is None else branch(raw, at)

    return skip


def skip_all(parts: Sequence[Skip]) -> Skip | None:
    if len(parts) < 2:
        return parts[0] if parts else None

    def skip(raw: bytes, at: int) -> int:
        for part in parts:
            at = part(raw, at)
        return at

    return skip
