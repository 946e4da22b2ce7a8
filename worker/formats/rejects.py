"""What is wrong with a value or a line of a file, and how the first such row is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from worker.base.errors import InputError

VALUE_CHARS_MAX: Final = 80
Place = tuple[str, int]  # ("line", 7), ("row", 12)


@dataclass(eq=False)
class UnfitError(Exception):
    """A value that its column can't hold, or a line that can't be read. Who knows the file turns it into a refusal."""

    reason: str
    said: str
    column: str = ""
    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {self.said}"


REFUSALS: Final = (InputError, UnfitError)


def shown(text: str) -> str:
    """A value as errors show it."""
    return f"`{text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + '…'}`"


def first_refused(count: int, check: Callable[[int, int], object]) -> int:
    """The first row that a check refuses: it refuses those from 0 to `count`, and any rows with one that it refuses."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        try:
            check(low, middle)
            low = middle
        except REFUSALS:
            high = middle
    return low
