"""Spark's hash of a string."""

from __future__ import annotations

from typing import Final

_MASK: Final = (1 << 64) - 1


def xxhash64(text: str, seed: int = 42) -> int:
    """Spark's xxhash64 of a string, signed."""
    payload = text.encode()
    at, end = 0, len(payload)
    if end >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at <= end - 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(payload[at : at + 8], "little"))
                at += 8
        found = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        found = (seed + _P5) & _MASK
    found = (found + end) & _MASK
    while at <= end - 8:
        found ^= _round(0, int.from_bytes(payload[at : at + 8], "little"))
        found = (_rotated(found, 27) * _P1 + _P4) & _MASK
        at += 8
    if at <= end - 4:
        found ^= int.from_bytes(payload[at : at + 4], "little") * _P1 & _MASK
        found = (_rotated(found, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in payload[at:]:
        found = _rotated(found ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    found = (found ^ (found >> 33)) * _P2 & _MASK
    found = (found ^ (found >> 29)) * _P3 & _MASK
    return signed(found ^ (found >> 32))


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(number: int, by: int) -> int:
    number &= _MASK
    return ((number << by) | (number >> (64 - by))) & _MASK


def _round(lane: int, part: int) -> int:
    return _rotated(lane + part * _P2, 31) * _P1 & _MASK


def signed(number: int) -> int:
    """Its lowest 64 bits, as Java sees them."""
    number &= _MASK
    return number - (1 << 64) if number >> 63 else number
