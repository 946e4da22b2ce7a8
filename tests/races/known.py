"""Pairs that are known to go wrong, and why. The long tests fail while a reason is listed whose pairs are all right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.races.pairs import Pair, Result
from tests.races.statements import Kind

ENOUGH: Final = 10  # so many pairs of a reason, all right, say that it is gone


@dataclass(frozen=True)
class Known:
    """A part of the pairs in which some go wrong."""

    reason: str
    holds: Callable[[Pair], bool]


def _copies_by_arrow(pair: Pair) -> bool:
    return pair.door == "Python, Arrow" and bool(pair.later.copies or pair.earlier.copies)


def _frames_by_verbs(pair: Pair) -> bool:
    brings = pair.later.kind in (Kind.INSERT, Kind.OVERWRITE) or "own rows" in pair.later.name
    asks = "subquery" in pair.later.name
    return pair.door == "Python, Spark" and bool(pair.later.reads) and (brings or asks)


KNOWN: Final[Sequence[Known]] = (
    Known("a DataFrame of the table that is given to a verb of Python declares no read", _frames_by_verbs),
    Known("without Spark, a scan of the table that is given as its new rows declares no read", _copies_by_arrow),
)


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
