"""Work that is timed in turns, so that what disturbs one way disturbs all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence


def interleaved(ways: Mapping[str, Callable[[], object]], *, runs: int, warm_ups: int = 2) -> dict[str, list[float]]:
    """Seconds of each way and run: all ways once, then all again, so that what disturbs a run disturbs them all.

    Every second round goes the other way round.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(-warm_ups, runs):
        for name in list(ways)[:: 1 if run % 2 else -1]:
            start = time.perf_counter()
            ways[name]()
            if run >= 0:
                times[name].append(time.perf_counter() - start)
    return times


def over(times: Sequence[float], base: Sequence[float]) -> list[float]:
    """The ratios within each run."""
    return [one / other for one, other in zip(times, base, strict=True)]
