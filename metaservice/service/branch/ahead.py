"""The entries of a parent's table with commits of a fork on top, which are decided and not yet written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from metaservice.core.table.model import Entry, Live, TableCommit
from metaservice.core.table.rows import Payloads, Written
from metaservice.service.decider.snapshots import StoreSnapshots

RESTORED: Final = -1  # in place of the version that a RESTORE brings back


class Ahead:
    """The parent's entries with commits that are decided but not written.

    At the base version it has what the fork had read. `compacts`: without what compactions of the fork did, which no
    commit of the parent repeats.
    """

    def __init__(self, parent: StoreSnapshots, fork: StoreSnapshots, base: int, head: int) -> None:
        self._parent = parent
        self._fork = fork
        self._base = base
        self._head = head
        self._added: dict[tuple[str, int, str], Live] = {}
        self._removed: set[tuple[str, int, str]] = set()
        self.read_version = base  # the fork's, of the commit that is judged
        self.compacts = True
        self.restored: Sequence[Live] = ()

    def then(self, commit: TableCommit) -> None:
        """After one more commit of the parent."""
        for live in commit.removed:
            self._added.pop(_place(live.entry), None)
            self._removed.add(_place(live.entry))
        for live in commit.added:
            self._added[_place(live.entry)] = live

    def live(self, version: int, partition: str | None = None, bucket: int | None = None) -> Iterable[Live]:
        if version == RESTORED:
            return self.restored
        if version == self._base and self.compacts:
            return self._fork.live(self.read_version, partition, bucket)
        stored = self._parent.live(min(version, self._head), partition, bucket)
        if version <= self._head and version != self._base:
            return stored
        kept = [live for live in stored if _place(live.entry) not in self._removed]
        new = [
            live
            for live in self._added.values()
            if partition in (None, live.entry.partition) and bucket in (None, live.entry.bucket)
        ]
        return kept + new

    def find(self, version: int, partition: str, bucket: int, path: str) -> Live | None:
        if version == self._base and self.compacts:
            return self._fork.find(self.read_version, partition, bucket, path)
        if version > self._head or version == self._base:
            place = partition, bucket, path
            if place in self._added:
                return self._added[place]
            if place in self._removed:
                return None
        return self._parent.find(min(version, self._head), partition, bucket, path)

    def find_imports(self, path: str) -> Iterable[Live]:
        stored = [live for live in self._parent.find_imports(path) if _place(live.entry) not in self._removed]
        return stored + [live for live in self._added.values() if live.entry.external and live.entry.path == path]

    def wrote(self, version: int) -> Written:
        return self._parent.wrote(version)

    @property
    def payloads(self) -> Payloads:
        return self._parent.payloads


def _place(entry: Entry) -> tuple[str, int, str]:
    return entry.partition, entry.bucket, entry.path
