"""Spark's hash of a string."""

from __future__ import annotations

from typing import Final

from xxhash import xxh64_intdigest

SPARK_SEED: Final = 42


def xxhash64(text: str) -> int:
    """Spark's xxhash64 of a string, signed."""
    return signed(xxh64_intdigest(text.encode(), SPARK_SEED))


def signed(number: int) -> int:
    """Its lowest 64 bits, as Java sees them."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number
