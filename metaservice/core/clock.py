"""Commit times: they never repeat, never go back, and never fall at or below a time that was answered. And whether the
wall clock can be believed."""

from __future__ import annotations

from dataclasses import dataclass


def next_commit_time(now_us: int, last_commit_us: int, answered_us: int) -> int:
    """Wall time may jump backwards, a commit time never does."""
    return max(now_us, last_commit_us + 1, answered_us + 1)


@dataclass(frozen=True, slots=True)
class Instant:
    """What the clocks said at one moment. `up_ms` counts since the boot of that name, sleep included; without a name
    it can be compared with no other instant's."""

    time_us: int
    boot: str = ""
    up_ms: int = 0


def clock_jump_ms(before: Instant, now: Instant, gap_ms: int) -> int:
    """By how much the wall clock jumped between two instants.

    Within one boot it is known. Else nothing says how long the machine was off: up to `gap_ms` are believed.
    """
    passed_ms = (now.time_us - before.time_us) // 1000
    if before.boot and before.boot == now.boot and now.up_ms >= before.up_ms:
        return passed_ms - (now.up_ms - before.up_ms)
    return 0 if 0 <= passed_ms <= gap_ms else passed_ms
