"""Records that no request can read: commits below the floor of their table, and outcomes that are too old."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metaservice.core.commit.transaction import TxnState
from metaservice.service.retention.record_pages import RecordPages, Steps
from metaservice.store import keys
from metaservice.store.port import prefix_end
from metaservice.store.records.tables import decode_commit, decode_table
from metaservice.store.records.transactions import decode_txn


@dataclass(slots=True)
class Trimmed:
    """Up to where a table has been trimmed since the start."""

    version: int = 0
    time_us: int = 0


class Trimming:
    """Removes such records in steps; it remembers where it is."""

    def __init__(self, pages: RecordPages, forget_after_us: int) -> None:
        self._pages = pages
        self._state = pages.state
        self._forget_after_us = forget_after_us
        self._outcomes_from = keys.TRANSACTIONS
        self._trimmed: dict[str, Trimmed] = {}

    def trim(self, now_us: int, held: Mapping[str, list[int]], floors: Mapping[str, int]) -> Steps:
        """Trims all tables, then outcomes. `held` and `floors`: versions that are needed, by table."""
        for table_id in list(self._state.tables):
            yield from self._trim_table(table_id, held.get(table_id, []), floors)
        yield from self._forget_outcomes(now_us)
        self._trimmed = {key: value for key, value in self._trimmed.items() if key in self._state.tables}

    def _trim_table(self, table_id: str, held: list[int], floors: Mapping[str, int]) -> Steps:
        """Removes commits, times and metadata below the floor. Commits go first: the rest shows where the floor was."""
        table = self._state.tables.get(table_id)
        self._pages.room -= 1
        yield
        if table is None:
            return
        trimmed = self._trimmed.setdefault(table_id, Trimmed())
        floor = min([table.oldest, floors.get(table_id, table.oldest), *held])
        if floor <= trimmed.version:
            return
        raw = table.raw_id
        first = self._state.store.get(keys.commit_key(raw, floor))
        if first is None:
            return
        floor_us = decode_commit(first).footprint.time_us
        table.trimmed = max(self._state.trimmed(table), floor)
        self._state.changed.add(table_id)
        table.last_metadata_version = max(table.last_metadata_version, floor)
        yield from self._pages.delete(keys.commit_key(raw, trimmed.version), keys.commit_key(raw, floor))
        yield from self._pages.delete(keys.chunk_key(raw, trimmed.version, 0), keys.chunk_key(raw, floor, 0))
        yield from self._pages.delete(keys.idle_key(raw, trimmed.version), keys.idle_key(raw, floor))
        yield from self._pages.delete(keys.time_key(raw, trimmed.time_us), keys.time_key(raw, floor_us))
        yield from self._trim_metadata(raw, floor)
        trimmed.version, trimmed.time_us = floor, floor_us

    def _trim_metadata(self, raw: bytes, floor: int) -> Steps:
        """Keeps the newest record of each schema, because files outlive the schema that they were written under."""
        before: tuple[bytes, int] | None = None
        for page in self._pages.scan(keys.table_prefix(raw), keys.table_key(raw, floor + 1)):
            for key, value in page:
                schema_version = decode_table(value).schema_version
                if before is not None and before[1] == schema_version:
                    self._state.batch.delete(before[0])
                before = key, schema_version
            yield

    def _forget_outcomes(self, now_us: int) -> Steps:
        """Removes outcomes whose ids are refused for their age."""
        before_us = now_us - self._forget_after_us
        end = prefix_end(keys.TRANSACTIONS)
        stays: bytes | None = None
        last = self._outcomes_from
        for page in self._pages.scan(self._outcomes_from, end):
            for key, value in page:
                if keys.txn_time_ms(key) * 1000 >= before_us:
                    self._outcomes_from = stays or key
                    return
                last = key
                if not self._forget_outcome(key, value, before_us):
                    stays = stays or key
            yield
        self._outcomes_from = stays or last

    def _forget_outcome(self, key: bytes, value: bytes, before_us: int) -> bool:
        txn = decode_txn(value)
        if txn.state is TxnState.OPEN or txn.end_us >= before_us or self._is_staged(key[1:]):
            return False
        self._state.note_forgotten(keys.txn_time_ms(key))
        self._state.batch.delete(key)
        self._state.ended.pop(txn.txn_id, None)
        return True

    def _is_staged(self, raw: bytes) -> bool:
        """Whether its files must be swept first; its record names the adopter."""
        return bool(self._pages.page(keys.staged_prefix(raw), prefix_end(keys.staged_prefix(raw)), 1))
