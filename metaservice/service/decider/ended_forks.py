"""Forks that a merge or refresh ended, whose records are rewritten in later groups of the decider.

A merge of 1,000 tables ends as many forks. For the state and its readers all of them end with the decision, which
writes one record of them. The records of each fork, of its name and its drop, follow some at a time. A start finds
that one record, and goes on.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from metaservice.core import limits
from metaservice.store import keys
from metaservice.store.forks import list_ended
from metaservice.store.port import Batch, StoreCursor
from metaservice.store.records.branches import EndedRecord, Fork


@dataclass(frozen=True, slots=True)
class EndedFork:
    """A fork as it was before its merge or refresh and as it is after that, with the record."""

    before: Fork
    after: Fork
    record: EndedRecord


class EndedForks:
    """Those that wait for their records. Belongs to the decider's thread, but for `in`."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, tuple[bytes, int, EndedRecord]] = {}
        self._ends_some = False

    def load(self, cursor: StoreCursor) -> None:
        for key, time_us, ended in list_ended(cursor):
            self._waiting[ended.raw_id] = key, time_us, ended

    def __contains__(self, raw_id: bytes) -> bool:
        return raw_id in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: bytes, time_us: int, ended: EndedRecord) -> None:
        """A fork that was dropped at that time; the record under the key has it, or gets it with this decision."""
        self._waiting[ended.raw_id] = key, time_us, ended
        self._ends_some = True

    def write_some(self, names: Container[str], batch: Batch) -> None:
        """In each group, but for those in which forks end: these write enough."""
        if self._waiting and not self._ends_some:
            self.write(limits.ENDED_FORKS_WRITTEN, names, batch)
        self._ends_some = False

    def write(self, count: int, names: Container[str], batch: Batch) -> None:
        """Writes the records of some, the oldest first. `names`: of the tables that are there."""
        for raw_id in list(self._waiting)[:count]:
            key, time_us, ended = self._waiting.pop(raw_id)
            batch.put(keys.fork_key(raw_id), ended.record)
            batch.put(keys.dropped_key(raw_id), keys.encode_version(time_us))
            if ended.name not in names:  # else a branch of the same name has a fork by now
                batch.delete(keys.name_key(ended.name))
            following = next(iter(self._waiting.values()), None)
            if following is None or following[0] != key:
                batch.delete(key)
