"""Records of Avro files that other programs wrote. Their bytes decide nothing about memory, time or depth.

The caller names the fields that it needs, as a tree. The file's own schema only says how its bytes are cut: it is read
within limits, and no type of it contains itself. Other fields are skipped and never built. All of it is
Python: a broken file raises AvroError, and can't end the process.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from worker.formats.avro_readers import AvroError, Record, whole_number
from worker.formats.avro_values import Fields, record_reader

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
HEADER_BYTES_MAX: Final = 16 << 20
HEADER_ENTRIES_MAX: Final = 1_000
SCHEMA_BYTES_MAX: Final = 2 << 20
BLOCK_BYTES_MAX: Final = 64 << 20  # unpacked
FOREIGN: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, struct.error, zlib.error)


@dataclass
class AvroLimits:
    """What files may still contain in all. Reading reduces it."""

    file_bytes: int = 64 << 20
    unpacked_bytes: int = 256 << 20

    def take(self, size: int) -> None:
        self.unpacked_bytes -= size
        if self.unpacked_bytes < 0:
            raise AvroError("it unpacks to more bytes than such files have")


def read_avro(stream: Any, fields: Fields, limits: AvroLimits) -> Iterator[Record]:
    """Yield the records of a file, each with the requested fields. Raises AvroError, and what the stream raises."""
    raw = stream.read(limits.file_bytes + 1)
    if len(raw) > limits.file_bytes:
        raise AvroError(f"it has more than {limits.file_bytes >> 20} MiB")
    try:
        yield from _records(bytes(raw), fields, limits)
    except AvroError:
        raise
    except (*FOREIGN, pa.ArrowException) as error:
        raise AvroError(f"its bytes are no Avro: {error}") from error


def _records(raw: bytes, fields: Fields, limits: AvroLimits) -> Iterator[Record]:
    facts, at = _header(raw)
    read = record_reader(_schema(facts), fields)
    codec = facts.get("avro.codec", b"null").decode()
    sync = raw[at : at + SYNC_BYTES]
    at += SYNC_BYTES
    if at > len(raw):
        raise AvroError("its header is cut off")
    while at < len(raw):
        count, at = whole_number(raw, at)
        size, at = whole_number(raw, at)
        if size < 0 or raw[at + size : at + size + SYNC_BYTES] != sync:
            raise AvroError("a block of it is cut off")
        block = _unpacked(raw[at : at + size], codec, limits)
        at += size + SYNC_BYTES
        if not 0 <= count <= len(block):  # each record has a byte at least
            raise AvroError(f"a block of {len(block)} bytes says that it has {count} records")
        where = 0
        for _ in range(count):
            record, where = read(block, where)
            yield record
        if where != len(block):
            raise AvroError("a block of it has other bytes than its records")


# -- the file ----------------------------------------------------------------------------------------------------------


def _header(raw: bytes) -> tuple[Mapping[str, bytes], int]:
    """Return the facts of the header, and the position of the marker between blocks."""
    if not raw.startswith(MAGIC):
        raise AvroError("it is no Avro file")
    head, at = raw[:HEADER_BYTES_MAX], len(MAGIC)
    facts: dict[str, bytes] = {}
    while True:
        count, at = whole_number(head, at)
        if not count:
            return facts, at
        if count < 0:
            _, at = whole_number(head, at)
        if len(facts) + abs(count) > HEADER_ENTRIES_MAX:
            raise AvroError(f"its header has more than {HEADER_ENTRIES_MAX} entries")
        for _ in range(abs(count)):
            name, at = _sized(head, at)
            facts[name.decode()], at = _sized(head, at)


def _sized(head: bytes, at: int) -> tuple[bytes, int]:
    size, at = whole_number(head, at)
    if not 0 <= size <= len(head) - at:
        raise AvroError("its header is cut off, or too large")
    return head[at : at + size], at + size


def _schema(facts: Mapping[str, bytes]) -> Any:
    text = facts["avro.schema"]
    if len(text) > SCHEMA_BYTES_MAX:
        raise AvroError(f"its schema has {len(text)} bytes, more than {SCHEMA_BYTES_MAX}")
    return json.loads(text)


def _unpacked(block: bytes, codec: str, limits: AvroLimits) -> bytes:
    """Return a block without its compression. Refuse it before it takes more memory than a block may."""
    most = min(BLOCK_BYTES_MAX, limits.unpacked_bytes)
    match codec:
        case "null":
            unpacked = block
        case "deflate":
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
            unpacked = unpacker.decompress(block, most + 1)
        case "zstandard":
            with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
                unpacked = stream.read(most + 1)
        case "snappy":
            unpacked = _by_snappy(block, most)
        case _:
            raise AvroError(f"it is compressed by {codec}; expected deflate, zstandard, snappy or null")
    if len(unpacked) > most:
        raise AvroError(f"a block of it unpacks to more than {most} bytes")
    limits.take(len(unpacked))
    return unpacked


def _by_snappy(block: bytes, most: int) -> bytes:
    """Decompress a block of Snappy: it begins with its length and ends with a checksum."""
    size = shift = 0
    source = io.BytesIO(block)
    while True:
        [byte] = source.read(1)
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > 28:
            break
    if size > most:
        raise AvroError(f"a block of it unpacks to more than {most} bytes")
    unpacked = pa.Codec("snappy").decompress(block[:-4], size, asbytes=True)
    if struct.pack(">I", zlib.crc32(unpacked)) != block[-4:]:
        raise AvroError("a block of it has another checksum")
    return bytes(unpacked)
