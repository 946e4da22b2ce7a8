"""Which versions are kept, and which entries are dead because no kept snapshot holds them.

Kept are the versions from the horizon on, and single versions below it that are held (by pins, open transactions).
Worked example, horizon 7, version 3 pinned:

    f   live in [1, 5)    held: version 3 lies inside
    g   live in [4, 6)    dead: no kept version lies inside
    h   live in [4, 8)    held: version 7 lies inside
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from metaservice.core import limits
from metaservice.core.table.model import Principal

RETAIN_HOURS: Final = "data.retain.hours"
HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Pin:
    """A lease on versions of tables, all pinned at one instant."""

    pin_id: str
    versions: tuple[tuple[str, int], ...]
    principal: Principal
    begin_us: int
    lease_ms: int
    digest: bytes


def retain_us(properties: Mapping[str, str]) -> int:
    """How long a version stays readable after it was current."""
    hours = _hours(properties.get(RETAIN_HOURS, ""))
    return (limits.RETAIN_HOURS_DEFAULT if hours is None else hours) * HOUR_US


def _hours(value: str) -> int | None:
    if not (value.isascii() and value.isdecimal() and len(value) <= 9):
        return None
    hours = int(value)
    return hours if hours <= limits.RETAIN_HOURS_MAX else None


def is_held(added: int, removed: int, horizon: int, held: Sequence[int]) -> bool:
    """Whether a kept version lies in [added, removed); `held` ascends."""
    if removed > horizon:
        return True
    place = bisect_left(held, added)
    return place < len(held) and held[place] < removed
