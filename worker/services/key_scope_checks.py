"""Checks the keys of tables that shall get a key across partitions: the promise begins when none is there twice.

From the ALTER on writers keep the rules, so no bucket number gets a new key in two partitions. One that was seen
without such a key is done, whatever is written later. How far a check is stands in the table, so that another worker
goes on after the last bucket number. It waits at one with a key in two partitions until one of the rows is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
        self._stored_each_s = stored_each_s

    def wants(self, meta: catalog_pb2.Table) -> bool:
        return keys_checked(meta) is not None

    def keep(self, then: TableView, files: list[ScannedFile]) -> int:
        """Sees bucket numbers without a key in two partitions; stops at the first one that has one."""
        checked = keys_checked(then.meta)
        if checked is None:
            return 0
        check, begin = checked
        done = stored = begin
        stored_s = self._now_s()
        entries = [common_pb2.LiveEntry(file=one.file, data_version=one.data_version) for one in files]
        for bucket in range(begin, then.meta.buckets):
            if self.is_stopping or next(keys_twice(then, entries, [bucket]), None) is not None:
                break
            done = bucket + 1
            if self._now_s() - stored_s >= self._stored_each_s:
                if not _store(then, check, stored, done):
                    return done - begin
                stored, stored_s = done, self._now_s()
        if done > stored:
            _store(then, check, stored, done)
        return done - begin

    def check(self, table: TableView) -> Iterator[Twice]:
        """Checks one table now, and returns the keys that stand in the way of the promise."""
        self._keep_newest(table)
        pinned = self._lake.pins.own(table.table_id)
        try:
            then = table.at(pinned.version)
            checked = keys_checked(then.meta)
            if checked is not None:
                yield from keys_twice(then, entries_of(then, pinned.version), range(checked[1], then.meta.buckets))
        finally:
            pinned.release()

    def forget(self) -> None:
        """The tables say themselves how far their check is."""


def _store(then: TableView, check: int, stored: int, done: int) -> bool:
    """Whether the check goes on: it is the newest one, and nobody is further."""
    try:
        then.client.advance_key_check(then.table_id, check, stored, done, version=then.meta.head_version)
    except StaleError:
        return False
    return True
