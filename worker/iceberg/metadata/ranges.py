"""Ranges of versions that stay the same when the head moves, so that generated files are reused.

They are aligned: their sizes are powers of a width, and each begins at a multiple of its size. A new version adds a
range of one; when as many such ranges as the width are complete, they become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

WIDTH: Final = 4


def cover(end: int, width: int = WIDTH) -> Iterator[range]:
    """Return the largest aligned ranges that together are all versions below `end`, in order."""
    begin = 0
    while begin < end:
        size = 1
        while begin % (size * width) == 0 and begin + size * width <= end:
            size *= width
        yield range(begin, begin + size)
        begin += size


def merged_cover(end: int, count: Callable[[range], int], together_max: int) -> list[range]:
    """Return `cover`, but with the newest ranges merged that together have at most `together_max` files."""
    spans = list(cover(end))
    files = 0
    for at in reversed(range(len(spans))):
        files += count(spans[at])
        if files > together_max:
            break
        spans[at:] = [range(spans[at].start, end)]
    return spans


def parts(whole: range, width: int = WIDTH) -> Iterator[range]:
    """Return the parts of a range."""
    size = len(whole) // width
    for begin in range(whole.start, whole.stop, size):
        yield range(begin, begin + size)


def smallest_with(first: int, last: int, width: int = WIDTH) -> range:
    """Return the smallest aligned range that contains both versions."""
    size = 1
    while first // size != last // size:
        size *= width
    begin = first // size * size
    return range(begin, begin + size)
