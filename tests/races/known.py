"""Pairs that are known to go wrong, and why. The long tests fail while a reason is listed whose pairs are all right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.races.pairs import Pair, Result

ENOUGH: Final = 10  # so many pairs of a reason, all right, say that it is gone


@dataclass(frozen=True)
class Known:
    """A part of the pairs in which some go wrong."""

    reason: str
    holds: Callable[[Pair], bool]


KNOWN: Final[Sequence[Known]] = ()


def unknown(results: Sequence[Result]) -> list[Result]:
    """The wrong ones for which there is no known reason."""
    return [one for one in results if not one.is_right and not any(known.holds(one.pair) for known in KNOWN)]


def outdated(results: Sequence[Result]) -> list[str]:
    """The reasons whose pairs are all right."""
    found = []
    for known in KNOWN:
        own = [one for one in results if known.holds(one.pair)]
        if len(own) >= ENOUGH and all(one.is_right for one in own):
            found.append(known.reason)
    return found
