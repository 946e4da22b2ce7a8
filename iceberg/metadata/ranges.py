"""Ranges of versions that stay the same from head to head, so that what was made for one head serves the next.

They are aligned: their sizes are powers of four, and each begins at a multiple of its size. A new version adds a range
of one, and three such ranges and it become one of four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

WIDTH: Final = 4


def cover(end: int) -> Iterator[range]:
    """The largest aligned ranges that together are all versions below `end`, in order."""
    begin = 0
    while begin < end:
        size = 1
        while begin % (size * WIDTH) == 0 and begin + size * WIDTH <= end:
            size *= WIDTH
        yield range(begin, begin + size)
        begin += size


def merged_cover(end: int, count: Callable[[range], int], together_max: int) -> list[range]:
    """As `cover`, but the newest ranges that together have at most so many files are one."""
    found = list(cover(end))
    files = 0
    for at in reversed(range(len(found))):
        files += count(found[at])
        if files > together_max:
            break
        found[at:] = [range(found[at].start, end)]
    return found


def parts(whole: range) -> Iterator[range]:
    """The four ranges that a larger one is made of."""
    size = len(whole) // WIDTH
    for begin in range(whole.start, whole.stop, size):
        yield range(begin, begin + size)
