"""What the name of a view or a namespace stood for at an instant, and what a merge makes of it.

A branch shows the views and namespaces that its parent had at the branch's instant, and its own changes over them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from metaservice.core.table.meta import Namespace, View

NOW: Final = 2**63 - 1

Thing = TypeVar("Thing", View, Namespace)


@dataclass(frozen=True, slots=True)
class Meaning(Generic[Thing]):
    """What a name stood for from one instant until before another; None: nothing, it was dropped."""

    thing: Thing | None
    since_us: int
    until_us: int = NOW


class Fate(Enum):
    """What becomes of a name at a merge that was changed on the branch."""

    UNCHANGED = "the parent has it so already"
    CHANGED = "the parent gets what the branch has"
    CONFLICT = "both sides changed it"


def meaning_at(meanings: Sequence[Meaning[Thing]], time_us: int) -> Meaning[Thing] | None:
    """The meaning at an instant, if it is among these."""
    return next((each for each in reversed(meanings) if each.since_us <= time_us < each.until_us), None)


def is_needed(meaning: Meaning[Thing], instants: Sequence[int]) -> bool:
    """Whether one of the instants, which are in order, falls into its time."""
    return bisect_left(instants, meaning.since_us) < bisect_left(instants, meaning.until_us)


def fate_of(own: Thing | None, base: Thing | None, theirs: Thing | None) -> Fate:
    """By what the branch has, what it began with, and what its parent has now."""
    if is_same(own, base) or is_same(own, theirs):
        return Fate.UNCHANGED
    return Fate.CHANGED if is_same(theirs, base) else Fate.CONFLICT


def is_same(left: View | Namespace | None, right: View | Namespace | None) -> bool:
    """Whether both are nothing, or say the same."""
    if isinstance(left, View) and isinstance(right, View):
        return left.name == right.name and left.payload == right.payload
    if isinstance(left, Namespace) and isinstance(right, Namespace):
        return left.properties == right.properties
    return left is right
