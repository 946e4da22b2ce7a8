"""Work that is timed in turns, so that what disturbs one way disturbs all of them."""

from __future__ import annotations

import math
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


def paired(names: tuple[str, str], pairs: int) -> list[str]:
    """The order of so many pairs: the first one, then the other, and the other way round in every second pair."""
    return [name for pair in range(pairs) for name in (names if pair % 2 == 0 else names[::-1])]


def median_interval(figures: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Two of the figures between which the median of all that could be measured lies, as surely as `confidence`.

    By the sign test: each figure is above that median as probably as below it, whatever the figures are like. Too few
    figures for that give the lowest and the highest.
    """
    ordered, count = sorted(figures), len(figures)
    cut, outside = 0, 1 / 2**count  # the probability that at most `cut` figures are below
    while (more := outside + math.comb(count, cut + 1) / 2**count) <= (1 - confidence) / 2:
        cut, outside = cut + 1, more
    return ordered[cut], ordered[count - 1 - cut]


def verdict(figures: Sequence[float], at_most: float) -> str:
    """Whether the median is at most this: `yes` or `no` where the whole interval says so, otherwise `open`."""
    low, high = median_interval(figures)
    if high <= at_most:
        return "yes"
    return "no" if low > at_most else "open"
