"""Parquet's Bloom filters: they exclude row groups that have none of some values.

A filter excludes a value, or leaves it possible. Parquet's has blocks of 256 bits. A value's hash
chooses a block and a bit in each of its eight words. See https://parquet.apache.org/docs/file-format/bloomfilter.

Values are hashed as their bytes in files, so only some types have filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import xxhash

from worker.files.thrift_compact import Reader, UnknownBytesError

HEADER_BYTES: Final = 64  # more than it has
BLOCK_BYTES: Final = 32
WHOLE_BYTES: Final = 1 << 18  # a filter of up to this is read at once; of a larger one the blocks of the values
BLOCKS_MAX: Final = 16  # read one by one
BIT_SET, ALGORITHM, HASH, COMPRESSION = 1, 2, 3, 4  # fields of the header
PLAIN: Final[dict[int, Any]] = {1: {}}  # blocks, xxHash, no compression: there is nothing else
SALTS: Final = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
PHYSICAL: Final = {4: "INT32", 8: "INT64"}  # types in files, by the bytes of a number
DIGITS_OF_INT32: Final = 9

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


def physical_type(kind: pa.DataType) -> str | None:
    """Return the physical type of a column's type; None if it has no filters."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "BYTE_ARRAY"
    width = _width(kind)
    return None if width is None else PHYSICAL[width]


def _width(kind: pa.DataType) -> int | None:
    """Return the number of bytes that a number takes in files."""
    if pa.types.is_decimal128(kind):
        return (4 if kind.precision <= DIGITS_OF_INT32 else 8) if kind.precision <= 18 else None
    if pa.types.is_date32(kind) or (pa.types.is_signed_integer(kind) and kind.bit_width <= 32):
        return 4
    is_time = pa.types.is_timestamp(kind) and kind.unit == "us"
    return 8 if is_time or pa.types.is_int64(kind) else None


def hashes_of(values: Iterable[Any], kind: pa.DataType) -> Hashes:
    """Return the hashes of values of a type with filters. A value that the type can't have is left out.

    Dates and times are numbers, as they are in files.
    """
    width = _width(kind)
    raw = (_bytes_of(value, kind, width) for value in values)
    return np.array([xxhash.xxh64_intdigest(content) for content in raw if content is not None], np.uint64)


def _bytes_of(value: Any, kind: pa.DataType, width: int | None) -> bytes | None:
    if width is None:
        return value.encode() if isinstance(value, str) else bytes(value)
    if pa.types.is_decimal128(kind):
        scaled = Decimal(value).scaleb(kind.scale)
        if scaled != scaled.to_integral_value():
            return None
        value = scaled
    try:
        return int(value).to_bytes(width, "little", signed=True)
    except (OverflowError, ValueError):  # beyond the type, or no number
        return None


def may_have(stream: Any, chunk: Any, hashes: Hashes) -> bool:
    """Return whether a row group's column may have a value with one of these hashes; True without a filter."""
    offset = chunk.bloom_filter_offset
    if offset is None:
        return True
    size = chunk.bloom_filter_length
    head = stream.read_at(size if size is not None and size <= WHOLE_BYTES else HEADER_BYTES, offset)
    try:
        begin, length = _header(head)
    except (UnknownBytesError, IndexError):
        return True
    places = ((hashes >> np.uint64(32)) * np.uint64(length // BLOCK_BYTES)) >> np.uint64(32)
    at_once = length <= WHOLE_BYTES
    if not at_once and len(hashes) > BLOCKS_MAX:
        return True
    if at_once:
        bits = head[begin : begin + length]
        if len(bits) < length:
            bits = stream.read_at(length, offset + begin)
        blocks = np.frombuffer(bits, "<u4").reshape(-1, 8)[places.astype(np.int64)]
    else:
        parts = [stream.read_at(BLOCK_BYTES, offset + begin + int(place) * BLOCK_BYTES) for place in places]
        blocks = np.frombuffer(b"".join(parts), "<u4").reshape(-1, 8)
    low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    bits_of = np.uint32(1) << ((low[:, None] * SALTS[None, :]) >> np.uint32(27))
    return bool(((blocks & bits_of) == bits_of).all(axis=1).any())


def _header(data: bytes) -> tuple[int, int]:
    """Return the bytes of the header, and those of the filter."""
    reader = Reader(data)
    header = reader.struct()
    length = header.get(BIT_SET, 0)
    is_known = all(header.get(field) == PLAIN for field in (ALGORITHM, HASH, COMPRESSION))
    if not is_known or length <= 0 or length % BLOCK_BYTES:
        raise UnknownBytesError("a filter")
    return reader.at, length
