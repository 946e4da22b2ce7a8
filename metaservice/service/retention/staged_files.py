"""Staged files of lost races, which nobody adopted in time."""

from __future__ import annotations

from metaservice.service.retention.holders import given_up_us
from metaservice.service.retention.purge import list_unless_live
from metaservice.service.retention.record_pages import RecordPages, Steps
from metaservice.store import keys
from metaservice.store.port import prefix_end
from metaservice.store.records.tables import decode_chunk


class StagedFiles:
    """Sweeps staged files in steps."""

    def __init__(self, pages: RecordPages, adopt_grace_us: int) -> None:
        self._pages = pages
        self._state = pages.state
        self._adopt_grace_us = adopt_grace_us

    def sweep(self, now_us: int, floors: dict[str, int]) -> Steps:
        """Sweeps files of ended transactions. `floors` gets the versions that adoptions would be judged from."""
        start, end = keys.STAGED, prefix_end(keys.STAGED)
        while records := self._pages.page(start, end, 1):
            raw = records[0][0][1:17]
            start = prefix_end(keys.staged_prefix(raw))
            yield from self._sweep_lost(keys.uuid_text(raw), keys.staged_prefix(raw), now_us, floors)
            yield

    def _sweep_lost(self, txn_id: str, staged: bytes, now_us: int, floors: dict[str, int]) -> Steps:
        """Sweeps one ended transaction's staged files; open transactions own theirs."""
        if txn_id in self._state.open:
            return
        txn = self._state.find_txn(txn_id)
        if txn is None:
            return
        ended_us = given_up_us(self._state, txn, now_us)
        if ended_us is None:
            yield from self._pages.delete(staged, prefix_end(staged))
        elif ended_us + self._adopt_grace_us > now_us:
            for txn_table in txn.tables.values():
                floor = floors.get(txn_table.table_id, txn_table.read_version)
                floors[txn_table.table_id] = min(floor, txn_table.read_version)
        else:
            for txn_table in txn.tables.values():
                txn_table.staged, txn_table.staged_rows = {}, 0
            for page in self._pages.scan(staged, prefix_end(staged)):
                for key, value in page:
                    self._state.batch.put(keys.dying_key(key), value)
                    self._state.batch.delete(key)
                yield

    def unpack(self, now_us: int) -> Steps:
        """Puts the swept files on the purge list."""
        for page in self._pages.scan(keys.DYING, prefix_end(keys.DYING)):
            for key, value in page:
                raw = keys.table_of_dying(key)
                for entry in decode_chunk(value):
                    list_unless_live(self._state, raw, entry, now_us)
                    self._pages.room -= 1
                    yield
                self._state.batch.delete(key)
            yield
