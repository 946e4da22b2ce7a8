"""Values of Avro in bytes, and files of records that are in bytes already.

A table can have a million files: their entries are written by special code, not by a general writer of schemas.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from metaservice.shared.column_types import Decimal, Type
from worker.iceberg.metadata.avro_files import SYNC, Record, avro_file
from worker.iceberg.metadata.schemas import primitive
from worker.iceberg.metadata.values import decimal_bytes

NULL: Final = b"\x00"  # the first branch of each union here
SET: Final = b"\x02"  # the second one, before its value
END: Final = b"\x00"  # of the items of an array
RECORDS_A_BLOCK: Final = 1_000
QUICK: Final = 1  # the level of compression: a higher one costs more than the bytes that it saves
SMALL: Final = tuple(bytes([number]) for number in range(0x80))
Encode = Callable[[Any], bytes]


def whole(number: int) -> bytes:
    """Return an int or a long: seven bits a byte, the lowest first, in zigzag encoding."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    if rest < 0x80:
        return SMALL[rest]
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def sized(raw: bytes) -> bytes:
    """Return a string or bytes with their length."""
    return whole(len(raw)) + raw


def array(items: Sequence[bytes]) -> bytes:
    return b"".join((whole(len(items)), *items, END)) if items else END


def encoder(kind: Type) -> Encode:
    """Return the encoder of a column's plain values, for its type by `avro_type`."""
    if isinstance(kind, Decimal):
        length = decimal_bytes(kind.precision)
        return lambda value: int(value).to_bytes(length, "big", signed=True)
    match primitive(kind):
        case "boolean":
            return lambda value: b"\x01" if value else b"\x00"
        case "float":
            return struct.Struct("<f").pack
        case "double":
            return struct.Struct("<d").pack
        case "string":
            return lambda value: sized(value.encode())
        case "binary":
            return sized
        case _:
            return whole


def file_of(schema: Record, records: Sequence[bytes], facts: Mapping[str, str]) -> bytes:
    """Return an Avro file of encoded records."""
    parts = [avro_file(schema, (), facts)]
    for begin in range(0, len(records), RECORDS_A_BLOCK):
        block = records[begin : begin + RECORDS_A_BLOCK]
        deflate = zlib.compressobj(QUICK, zlib.DEFLATED, -zlib.MAX_WBITS)
        content = deflate.compress(b"".join(block)) + deflate.flush()
        parts += [whole(len(block)), sized(content), SYNC]
    return b"".join(parts)
