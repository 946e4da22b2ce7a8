"""Whether an incremental refresh or a full one is expected to be faster, by what past refreshes of the view took.

An incremental refresh of more changed rows takes no less than one of fewer, so those of at most as many rows as have
changed now say what to expect; those of more rows don't. Without such a refresh nothing is expected, and an incremental
one shows it. Only the last refreshes count: after many full ones an incremental one is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, median_low
from typing import Final

PAST_MAX: Final = 20
NEAREST: Final = 3
SHARE: Final = 1.5  # a full refresh is chosen if an incremental one takes so many times as long,
SAVED_S: Final = 1.0  # and so much longer


@dataclass(frozen=True, slots=True)
class PastRefresh:
    """A refresh: how many rows of its sources had changed, if it counted them, and the seconds that it took."""

    is_full: bool
    changed: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ExpectedSeconds:
    """What a refresh is expected to take; None: no past refresh tells."""

    incremental: float | None
    full: float | None

    @property
    def is_full_faster(self) -> bool:
        """Whether a full refresh is worth it."""
        if self.incremental is None or self.full is None:
            return False
        return self.incremental > SHARE * self.full and self.incremental - self.full > SAVED_S

    @property
    def text(self) -> str:
        """Both in words; empty if neither is known."""
        kinds = (("incremental", self.incremental), ("full", self.full))
        return ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in kinds if seconds is not None)


def expected_seconds(past: Sequence[PastRefresh], changed: int) -> ExpectedSeconds:
    """Return what a refresh is expected to take after so many changed rows; `past` begins with the newest."""
    last = past[:PAST_MAX]
    fulls = [each.seconds for each in last if each.is_full][:NEAREST]
    parts = [(each.changed, each.seconds) for each in last if not each.is_full and each.changed is not None]
    nearest = sorted((part for part in parts if part[0] <= changed), key=lambda part: -part[0])[:NEAREST]
    return ExpectedSeconds(
        median_low([seconds for _, seconds in nearest]) if nearest else None,
        median_low(fulls) if fulls else None,
    )


def usual_change(past: Sequence[PastRefresh]) -> int:
    """Return how many rows had usually changed, of the refreshes that counted them."""
    counts = [each.changed for each in past[:PAST_MAX] if each.changed is not None]
    return int(median(counts)) if counts else 0
