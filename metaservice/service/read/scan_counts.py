"""How many scans were planned of each table, by the version that they read. In memory: a restart begins anew."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from cachetools import LRUCache

TABLES_MAX: Final = 10_000
VERSIONS_MAX: Final = 64  # that are told apart in a table


class ScanCount(NamedTuple):
    """Scans of everything, and scans of some partitions or with a condition that can skip files."""

    whole: int
    partial: int


@dataclass(slots=True)
class _Table:
    versions: list[int] = field(default_factory=list)  # ascending
    counts: list[ScanCount] = field(default_factory=list)

    def add(self, version: int, whole: int) -> None:
        at = bisect_left(self.versions, version)
        if at == len(self.versions) or self.versions[at] != version:
            self.versions.insert(at, version)
            self.counts.insert(at, ScanCount(0, 0))
        self.counts[at] = ScanCount(self.counts[at].whole + whole, self.counts[at].partial + 1 - whole)
        if len(self.versions) > VERSIONS_MAX:  # the second joins the oldest: a sum is never above the truth
            del self.versions[1]
            joined = self.counts.pop(1)
            self.counts[0] = ScanCount(self.counts[0].whole + joined.whole, self.counts[0].partial + joined.partial)


class ScanCounts:
    """Counts of the tables that were scanned lately. Threads share it."""

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us
        self._tables: LRUCache[bytes, _Table] = LRUCache(TABLES_MAX)
        self._lock = Lock()

    def add(self, raw_id: bytes, version: int, *, whole: bool) -> None:
        with self._lock:
            table = self._tables.get(raw_id)
            if table is None:
                table = self._tables[raw_id] = _Table()
            table.add(version, int(whole))

    def since(self, raw_id: bytes, version: int) -> ScanCount:
        """Scans that read this version or a later one; fewer than there were if too many versions were scanned."""
        with self._lock:
            table = self._tables.get(raw_id, _Table())
            counts = table.counts[bisect_left(table.versions, version) :]
        return ScanCount(sum(count.whole for count in counts), sum(count.partial for count in counts))
