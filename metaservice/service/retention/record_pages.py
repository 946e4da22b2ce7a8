"""Records of the store in pages, so that a round of retention runs in steps of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from metaservice.core import limits
from metaservice.service.decider.state import State

Steps = Iterator[None]


class RecordPages:
    """Pages of records; `room` is how many more the step may touch."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.room = 0

    def page(self, start: bytes, end: bytes, count: int = limits.TICK_ITEMS_MAX) -> list[tuple[bytes, bytes]]:
        """Returns the next records, within the room left."""
        cursor = self.state.store.cursor()
        records = list(islice(cursor.scan(start, end), max(min(count, self.room), 1))) if start < end else []
        self.room -= 1 + len(records)
        return records

    def scan(self, start: bytes, end: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """All records of a range; the caller pauses after each page."""
        while page := self.page(start, end):
            yield page
            start = page[-1][0] + b"\x00"

    def delete(self, start: bytes, end: bytes) -> Steps:
        """Deletes all records of a range."""
        for page in self.scan(start, end):
            for key, _ in page:
                self.state.batch.delete(key)
            yield
