"""Spark's xxhash64, with which a row's bucket is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

from worker.base.values import EXACT

SPARK_SEED: Final = 42
LONG_DIGITS: Final = 18  # a decimal of so many digits is hashed as a number, a longer one as bytes
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


def row_hashes(keys: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return `xxhash64` of each row's columns, in order. No value is NULL."""
    hashes = np.full(len(keys[0]), SPARK_SEED, np.uint64)
    for column in keys:
        hashes = _hashed(column, hashes)
    return hashes.view(np.int64)


def row_buckets(keys: Sequence[Any], buckets: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bucket of each row, from its key columns in order."""
    return row_hashes(keys) % np.int64(buckets)


def _hashed(column: Any, seeds: Hashes) -> Hashes:
    """Return the hashes of a column's values, each with its own seed."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(column.cast(pa.binary()).to_pylist(), seeds)
    if pa.types.is_decimal(kind):
        unscaled = [int(number.scaleb(kind.scale, EXACT)) for number in column.to_pylist()]
        if kind.precision <= LONG_DIGITS:
            return _of_longs(np.array(unscaled, np.int64), seeds)
        return _of_bytes([_java_bytes(number) for number in unscaled], seeds)
    if pa.types.is_floating(kind):
        numbers = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
        numbers = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers + 0)  # -0.0 is 0.0
        return (_of_ints if kind.bit_width == 32 else _of_longs)(numbers.view(f"i{kind.bit_width // 8}"), seeds)
    if pa.types.is_timestamp(kind):
        return _of_longs(_numbers(column.cast(pa.int64())), seeds)
    if pa.types.is_date32(kind):
        return _of_ints(_numbers(column.cast(pa.int32())), seeds)
    if pa.types.is_int64(kind):
        return _of_longs(_numbers(column), seeds)
    return _of_ints(_numbers(column.cast(pa.int32())), seeds)


def _numbers(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()


def _java_bytes(number: int) -> bytes:
    """Return the bytes of an integer as Java's BigInteger.toByteArray."""
    bits = number.bit_length() if number >= 0 else (~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _of_bytes(values: Sequence[bytes], seeds: Hashes) -> Hashes:
    hash_of: Callable[[bytes, int], int] = xxh64_intdigest
    return np.fromiter(map(hash_of, values, seeds.tolist()), np.uint64, len(values))


def _of_longs(values: Any, seeds: Hashes) -> Hashes:
    numbers = values.astype(np.int64).view(np.uint64)
    hashes = (seeds + _P5 + np.uint64(8)) ^ (_rotated(numbers * _P2, 31) * _P1)
    return _mixed(_rotated(hashes, 27) * _P1 + _P4)


def _of_ints(values: Any, seeds: Hashes) -> Hashes:
    numbers = values.astype(np.int32).view(np.uint32).astype(np.uint64)
    hashes = (seeds + _P5 + np.uint64(4)) ^ (numbers * _P1)
    return _mixed(_rotated(hashes, 23) * _P2 + _P3)


def _rotated(numbers: Hashes, bits: int) -> Hashes:
    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))


def _mixed(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
