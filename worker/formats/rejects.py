"""Values and lines of files that are refused, and the search for the first such row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from worker.base.errors import InputError

VALUE_CHARS_MAX: Final = 80
Place = tuple[str, int]  # ("line", 7), ("row", 12)


@dataclass(eq=False)
class UnfitError(Exception):
    """A value that its column can't hold, or a line that can't be read. The caller adds the file to the error."""

    reason: str
    message: str
    column: str = ""
    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


REFUSALS: Final = (InputError, UnfitError)


def shown(text: str) -> str:
    """Return a value as errors show it."""
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
