"""Small files, read many at a time.

To choose among the rows of one takes as long as to read it, so the rows of many are chosen together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeVar

import pyarrow as pa

from worker.base.in_parallel import Source

SOURCES_AT_ONCE: Final = 64  # one after the other, by one thread
RUNS_PER_THREAD: Final = 16  # at least, so that the threads end at about the same time
BYTES_TOGETHER: Final = 4 << 20  # in memory

T = TypeVar("T")


def in_runs(sources: Sequence[Source[T]], threads: int) -> Sequence[Source[T]]:
    """Return fewer sources of the same items in the same order: each source costs a queue and a change of threads."""
    count = min(SOURCES_AT_ONCE, len(sources) // (threads * RUNS_PER_THREAD))
    if count <= 1:
        return sources
    return [partial(_items, sources[begin : begin + count]) for begin in range(0, len(sources), count)]


def chosen_together(
    files: Iterable[T],
    whole: Callable[[T], Iterable[pa.Table] | None],
    chosen: Callable[[T], Iterable[pa.Table]],
    choose: Callable[[pa.Table], pa.Table],
    memory_bytes: float,
) -> Iterator[pa.Table]:
    """Yield the chosen rows in order; `whole` reads all rows of a file, or returns None if the file isn't small."""
    waiting: list[pa.Table] = []
    size, most = 0, min(memory_bytes, BYTES_TOGETHER)
    for file in files:
        parts = whole(file)
        for part in parts or ():
            waiting.append(part)
            size += part.nbytes
        if waiting and (parts is None or size >= most):
            yield choose(pa.concat_tables(waiting))
            waiting, size = [], 0
        if parts is None:
            yield from chosen(file)
    if waiting:
        yield choose(pa.concat_tables(waiting))


def _items(sources: Sequence[Source[T]]) -> Iterator[T]:
    return chain.from_iterable(source() for source in sources)
