"""Protobuf's varints: records and answers embed encoded messages without parsing them."""

from __future__ import annotations

from typing import Final


def varint(number: int) -> bytes:
    """The protobuf encoding of a non-negative number."""
    longer = b""
    while number >= 0x4000:
        longer += _LONGER[number & 0x3FFF]
        number >>= 14
    return longer + _SHORT[number]


_SHORT: Final = [bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80, n >> 7]) for n in range(1 << 14)]
_LONGER: Final = [bytes([n & 0x7F | 0x80, n >> 7 | 0x80]) for n in range(1 << 14)]
