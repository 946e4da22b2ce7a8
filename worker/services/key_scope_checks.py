"""Checks the keys of tables that shall get a key across partitions: the promise begins when none is there twice.

From the ALTER on writers keep the rules, so no bucket number gets a new key in two partitions. One that was seen
without such a key is done, whatever is written later. How far a check is stands in the table, so that another worker
goes on after the last bucket number. It waits at one with a key in two partitions until one of the rows is gone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from metaservice.client import StaleError, keys_checked
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.plans import ScannedFile, entries_of
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.services.keepers import IDLE_S, Keeper
from worker.services.key_check import Twice, keys_twice

STORED_EACH_S: Final = 30.0  # what is done, as a commit


class KeyScopeChecker(Keeper):
    """Checks the keys of the newest versions."""

    WHAT = "checked keys"
    THREAD = "laketx-key-scope"

    def __init__(
        self,
        lake: Connection,
        *,
        idle_s: float = IDLE_S,
        now_s: Callable[[], float] = time.monotonic,
        stored_each_s: float = STORED_EACH_S,
    ) -> None:
        super().__init__(lake, idle_s=idle_s, now_s=now_s)
        self.now_s, self.stored_each_s = now_s, stored_each_s

    def wants(self, meta: catalog_pb2.Table) -> bool:
        return keys_checked(meta) is not None

    def keep(self, then: TableView, version: int, files: list[ScannedFile]) -> int:  # noqa: ARG002 - files say it
        """Check bucket numbers for keys in two partitions, up to the first one with such a key."""
        checked = keys_checked(then.meta)
        if checked is None:
            return 0
        entries = [common_pb2.LiveEntry(file=scanned.file, data_version=scanned.data_version) for scanned in files]
        look = _Look(self, then, checked, entries)
        next(look.keys_in_the_way(), None)
        return look.done - checked[1]

    def check(self, table: TableView) -> Iterator[Twice]:
        """Checks one table now, and returns the keys that stand in the way of the promise."""
        pinned = self._lake.pins.own(table.table_id)
        try:
            then = table.at(pinned.version)
            checked = keys_checked(then.meta)
            if checked is not None:
                yield from _Look(self, then, checked, entries_of(then, pinned.version)).keys_in_the_way()
        finally:
            pinned.release()

    def forget(self) -> None:
        """The tables say themselves how far their check is."""


class _Look:
    """One look at the bucket numbers of a table that are not done, at one version."""

    def __init__(
        self,
        checker: KeyScopeChecker,
        then: TableView,
        checked: tuple[int, int],
        entries: Iterable[common_pb2.LiveEntry],
    ) -> None:
        self._checker, self._then = checker, then
        self._check, self.done = checked
        self._stored, self._stored_s = self.done, checker.now_s()
        self._entries = defaultdict[int, list[common_pb2.LiveEntry]](list)
        for entry in entries:
            if entry.HasField("file"):
                self._entries[entry.file.bucket].append(entry)

    def keys_in_the_way(self) -> Iterator[Twice]:
        """Keys that stand in two partitions. Before the first of them it stores how many bucket numbers are done."""
        is_clean = True
        for bucket in range(self.done, self._then.meta.buckets):
            if self._checker.is_stopping:
                break
            for twice in keys_twice(self._then, self._entries.pop(bucket, []), [bucket]):
                if is_clean:
                    self._store()
                is_clean = False
                yield twice
            if is_clean:
                self.done = bucket + 1
                if self._checker.now_s() - self._stored_s >= self._checker.stored_each_s and not self._store():
                    return
        if is_clean:
            self._store()

    def _store(self) -> bool:
        """Whether the check goes on: it is the newest one, and nobody is further."""
        begin, self._stored, self._stored_s = self._stored, self.done, self._checker.now_s()
        if begin == self.done:
            return True
        then = self._then
        try:
            then.client.advance_key_check(then.table_id, self._check, begin, self.done, version=then.meta.head_version)
        except StaleError:
            return False
        return True
