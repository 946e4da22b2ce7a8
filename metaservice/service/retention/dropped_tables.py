"""Dropped tables: when their entries and records are purged, and when they are forgotten."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Final

from metaservice.core.retention.kept import retain_us
from metaservice.service.decider.forking import is_on
from metaservice.service.retention.purge import is_file_of_base, list_purgeable
from metaservice.service.retention.record_pages import RecordPages, Steps
from metaservice.store import entry_keys, keys
from metaservice.store.external_files import forget_import
from metaservice.store.port import prefix_end
from metaservice.store.records.tables import decode_live, decode_table

COST_OF_A_LOOK: Final = 4  # for the newest of a table's records, in records of a page


class DroppedTables:
    """Purges dropped tables; it remembers until when nothing is due."""

    def __init__(self, pages: RecordPages, forget_after_us: int) -> None:
        self._pages = pages
        self._state = pages.state
        self._forget_after_us = forget_after_us
        self._waits: dict[tuple[bytes, bytes], int] = {}

    def purge(self, now_us: int) -> Steps:
        """Purges dropped tables whose time is over, and forgets those that are gone."""
        waits: dict[tuple[bytes, bytes], int] = {}
        for page in self._pages.scan(keys.DROPPED, prefix_end(keys.DROPPED)):
            for drop in page:
                until_us = self._waits.get(drop, 0)
                if until_us <= now_us:
                    until_us = yield from self._purge_table(drop[0][1:], keys.decode_version(drop[1]), now_us)
                waits[drop] = until_us
            yield
        self._waits = waits

    def _purge_table(self, raw: bytes, dropped_us: int, now_us: int) -> Generator[None, None, int]:
        """Purges one dropped table; returns the time until which nothing more is due."""
        metas, fork, last = keys.table_prefix(raw), self._state.forks.get(raw), None
        self._pages.room -= 1
        if fork is None or not fork.is_gone:  # a look for what is gone passes all that was deleted beside it
            last = next(iter(self._state.store.cursor().scan_back(metas, prefix_end(metas))), None)
            self._pages.room -= COST_OF_A_LOOK
        if last is None:
            forget_us = dropped_us + self._forget_after_us
            branch = None if fork is None else self._state.branches.find(fork.branch)
            if fork is not None and branch is not None and is_on(fork, branch):
                return now_us + self._forget_after_us  # the table stays dropped on its branch
            if fork is None and len(self._state.family_of(raw)) > 1:  # its folder goes after the last of them
                self._state.batch.put(keys.dropped_key(raw), keys.encode_version(max(now_us, 0)))
                return now_us + self._forget_after_us // 2
            if forget_us <= now_us:
                self._state.batch.delete(keys.dropped_key(raw))
                if fork is not None:
                    del self._state.forks[raw]
                    self._state.batch.delete(keys.fork_key(raw))
            return forget_us
        if self._state.is_purge_begun(raw):
            yield from self._purge_entries(raw, now_us)
            return 0
        if self._state.forks.needs(raw):
            return 0  # they have its entries, files in its folder, or files that it has since a refresh
        meta = decode_table(last[1])
        purge_us = dropped_us + (0 if fork is not None and fork.branch else retain_us(meta.properties))
        if purge_us <= now_us and not self._state.pins.held(meta.table_id):
            self._state.batch.put(keys.drop_begun_key(raw), b"")  # the next round finds it durable
            self._state.marks.forget(meta.table_id)
        return purge_us

    def _purge_entries(self, raw: bytes, now_us: int) -> Steps:
        for prefix in (entry_keys.live_prefix(raw), entry_keys.past_prefix(raw)):
            for page in self._pages.scan(prefix, prefix_end(prefix)):
                for key, value in page:
                    live, _ = decode_live(value)
                    self._state.batch.delete(key)
                    if live.entry.external:
                        forget_import(self._state.batch, raw, live)
                    if not (is_file_of_base(self._state, raw, live.entry) or self._is_of_parent(raw, live.added)):
                        list_purgeable(self._state, raw, live.entry, now_us)
                yield
        for prefix in keys.record_prefixes(raw):
            yield from self._pages.delete(prefix, prefix_end(prefix))
        yield from self._pages.delete(keys.table_prefix(raw), prefix_end(keys.table_prefix(raw)))
        self._state.batch.delete(keys.drop_begun_key(raw))
        self._state.undropped.pop(raw, None)
        if raw in self._state.forks:
            self._state.put_fork(replace(self._state.forks[raw], is_gone=True))

    def _is_of_parent(self, raw: bytes, added: int) -> bool:
        """Whether the files that a version of a fork added are its parent's since a merge."""
        fork = self._state.forks.get(raw)
        return fork is not None and fork.is_merged and added not in fork.left_out
