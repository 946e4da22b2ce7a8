"""Row ids that a check compares: the ranges of files, and pairs that are walked in parallel."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise

from metaservice.core.table.model import Entry


class Beside:
    """Pairs in order of their first number, walked in parallel with another sequence in the same order."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._pairs = iter(pairs)
        self._next = next(self._pairs, None)

    def skip_to(self, number: int) -> int:
        """Skips the pairs below a number; returns how many there were."""
        skipped = 0
        while self._next is not None and self._next[0] < number:
            self._next = next(self._pairs, None)
            skipped += 1
        return skipped

    def take(self, number: int) -> list[int]:
        """The second numbers of the pairs with that first number."""
        found = []
        while self._next is not None and self._next[0] == number:
            found.append(self._next[1])
            self._next = next(self._pairs, None)
        return found


class Ranges:
    """The ranges of row ids of live files, sixteen bytes each, and the highest id of all."""

    def __init__(self) -> None:
        self._first = array("q")
        self._rows = array("q")
        self.highest = 0

    def add(self, entry: Entry, *, live: bool) -> None:
        self.highest = max(self.highest, last_row_id(entry))
        if live and entry.rows:
            self._first.append(entry.first_row_id)
            self._rows.append(entry.rows)

    def overlaps(self) -> Iterator[tuple[int, int]]:
        """First ids of neighbours that share ids."""
        order = sorted(range(len(self._first)), key=self._first.__getitem__)
        for one, other in pairwise(order):
            if self._first[one] + self._rows[one] > self._first[other]:
                yield self._first[one], self._first[other]


def last_row_id(entry: Entry) -> int:
    return entry.first_row_id + entry.rows - 1 if entry.first_row_id and not entry.is_delete_set else 0
