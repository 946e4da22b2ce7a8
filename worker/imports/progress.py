"""How far an import has read its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from worker.files.footers import in_threads

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Meter:
    """Counts files that are read, of those known so far."""

    done: int = 0
    total: int = 0

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """In threads; each item is one file."""
        self.total += len(items)

        def counted(one: T) -> R:
            found = work(one)
            self.done += 1
            return found

        return in_threads(counted, items)
