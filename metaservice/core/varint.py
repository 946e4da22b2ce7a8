"""Protobuf's bytes of a number: records and answers put encoded messages into others without taking them apart."""

from __future__ import annotations

from typing import Final


def varint(number: int) -> bytes:
    """Protobuf's bytes of a number that is not negative."""
    if number < 0x4000:
        return _SHORT[number]
    return _LONGER[number & 0x3FFF] + varint(number >> 14)


_SHORT: Final = [bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80, n >> 7]) for n in range(1 << 14)]
_LONGER: Final = [bytes([n & 0x7F | 0x80, n >> 7 | 0x80]) for n in range(1 << 14)]
