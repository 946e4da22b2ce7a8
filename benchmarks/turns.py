"""Work that is timed in turns, so that what disturbs one way disturbs all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

Answer = TypeVar("Answer")


def interleaved(ways: Mapping[str, Callable[[], object]], *, runs: int, warm_ups: int = 2) -> dict[str, list[float]]:
    """Seconds of each way and run."""
    return in_turns({name: partial(_timed, way) for name, way in ways.items()}, runs=runs, warm_ups=warm_ups)


def in_turns(ways: Mapping[str, Callable[[], Answer]], *, runs: int, warm_ups: int) -> dict[str, list[Answer]]:
    """Answers of each way and run: all ways once, then all again, so that what disturbs a run disturbs them all.

    Every second round goes the other way round. Answers of warm-ups are dropped.
    """
    answers: dict[str, list[Answer]] = {name: [] for name in ways}
    for run in range(-warm_ups, runs):
        for name in list(ways)[:: 1 if run % 2 else -1]:
            answer = ways[name]()
            if run >= 0:
                answers[name].append(answer)
    return answers


def _timed(way: Callable[[], object]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def over(times: Sequence[float], base: Sequence[float]) -> list[float]:
    """The ratios within each run."""
    return [one / other for one, other in zip(times, base, strict=True)]
