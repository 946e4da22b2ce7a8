"""Ids of client and service: UUIDv7, which sort by their creation time."""

from __future__ import annotations

import random
import time


def uuid7(now_ms: int | None = None) -> str:
    """A new id (UUIDv7). Ids sort by their creation time, to the millisecond."""
    when_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    chance = random.getrandbits(74)
    number = (when_ms & 0xFFFFFFFFFFFF) << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0x2 << 62 | chance & (1 << 62) - 1
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
