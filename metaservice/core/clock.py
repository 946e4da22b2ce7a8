"""Commit times: they never repeat, never go back, and never fall at or below an answered time.

Also whether the wall clock can be trusted.
"""

from __future__ import annotations

from dataclasses import dataclass


def next_commit_time(now_us: int, last_commit_us: int, answered_us: int) -> int:
    """Wall time may jump backwards, a commit time never does."""
    return max(now_us, last_commit_us + 1, answered_us + 1)


@dataclass(frozen=True, slots=True)
class Instant:
    """The clocks at one moment.

    `up_ms` counts since the boot of that name, sleep included; without a name the instant can't be compared with
    others.
    """

    time_us: int
    boot: str = ""
    up_ms: int = 0


def clock_jump_ms(before: Instant, now: Instant, gap_ms: int) -> int:
    """The jump of the wall clock between two instants.

    Within one boot it is known. Otherwise the time that the machine was off is unknown: up to `gap_ms` are accepted.
    """
    passed_ms = (now.time_us - before.time_us) // 1000
    if before.boot and before.boot == now.boot and now.up_ms >= before.up_ms:
        return passed_ms - (now.up_ms - before.up_ms)
    return 0 if 0 <= passed_ms <= gap_ms else passed_ms
