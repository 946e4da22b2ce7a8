"""Folders that can be swept: of transactions that ended without a commit, and of permanently dropped tables.

The metadata decides which files are dead, never a listing of storage. But a writer may leave files that it never
registered, so this module names the folders of transactions that ended long enough ago. Before a file in one of them is
deleted, the worker asks about its path. A path is needed if

    an entry of the table's index names it, live or past, or an external entry of any table
    it was staged by a transaction that is open or adoptable, or was adopted by such a transaction
    its transaction ended a short while ago, or is unknown and could still begin (one-call appends stage first)
    it was generated of a fork that has records, in the fork's own folder

Clients of the Iceberg catalog may write the files of several commits into one folder. So the folders of their
transactions are named even if those committed: what no commit took of them is dead.

Everything except the confirmation runs on the caller's thread, over a cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from metaservice.core import limits
from metaservice.core.commit.transaction import SHARES_FOLDER, TxnState, txn_time_ms
from metaservice.core.errors import invalid
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.service.retention.housekeeping import Keeping
from metaservice.service.retention.purge import check_purge
from metaservice.shared.fork_files import fork_of
from metaservice.store import entry_keys, keys
from metaservice.store.external_files import find_named
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.transactions import decode_txn

SWEPT: Final = keys.upkeep_key("swept")
TXN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
ADOPTIONS_MAX: Final = 1_000  # of one file, one after the other; a longer chain is looked at as needed


@dataclass(frozen=True, slots=True)
class SweepPlace:
    """Where a listing continues: after a transaction, or after a dropped table."""

    txn_id: str = ""
    table_id: str = ""
    unsettled: bool = False  # a transaction before it has to be looked at again


@dataclass(slots=True)
class SweepPage:
    """Folders, by table and transaction; `settled` is the transaction up to which nothing has to be checked again."""

    folders: list[tuple[str, str]] = field(default_factory=list)
    settled: str = ""
    following: SweepPlace | None = None


class Sweeping:
    """The use cases of the sweep."""

    def __init__(self, decider: Decider, clocks: Clocks, keeping: Keeping, halted: Callable[[], bool]) -> None:
        self._decider = decider
        self._clocks = clocks
        self._keeping = keeping
        self._halted = halted

    def list_folders(self, start: SweepPlace, count: int) -> SweepPage:
        self._decider.call(self._check)
        cursor = self._decider.state.store.cursor()
        page = SweepPage()
        if not start.table_id:
            self._list_transactions(cursor, start, count, page)
        if page.following is None:
            self._list_tables(cursor, start.table_id, count, page)
        self._decider.call(lambda: None)  # what was read is durable now
        return page

    def _check(self) -> None:
        check_purge(self._decider.state, halted=self._halted())

    def _ended_by_us(self) -> int:
        return self._clocks.now_us() - self._keeping.adopt_grace_ms * 1000

    def _list_transactions(self, cursor: StoreCursor, start: SweepPlace, count: int, page: SweepPage) -> None:
        by_us, unsettled, looked = self._ended_by_us(), start.unsettled, 0
        swept = keys.txn_key(cursor.get(SWEPT) or b"") + b"\x00"
        first = max(swept, keys.txn_key(keys.uuid_bytes(start.txn_id)) + b"\x00") if start.txn_id else swept
        for key, raw in cursor.scan(first, prefix_end(keys.TRANSACTIONS)):
            if keys.txn_time_ms(key) * 1000 > by_us:
                return
            txn, looked = decode_txn(raw), looked + 1
            is_over = txn.state is not TxnState.OPEN and txn.end_us <= by_us and not _is_staged(cursor, key[1:])
            unsettled = unsettled or not is_over
            if is_over and (txn.state is not TxnState.COMMITTED or SHARES_FOLDER in txn.properties):
                page.folders += [(self._home_of(table_id), txn.txn_id) for table_id in txn.tables]
            if not unsettled:
                page.settled = txn.txn_id
            if len(page.folders) >= count or looked >= limits.PAGE_SCAN_MAX:
                page.following = SweepPlace(txn.txn_id, unsettled=unsettled)
                return

    def _list_tables(self, cursor: StoreCursor, after: str, count: int, page: SweepPage) -> None:
        """Dropped tables of which only the record of the drop is left."""
        by_us = self._ended_by_us()
        start = keys.dropped_key(keys.uuid_bytes(after)) + b"\x00" if after else keys.DROPPED
        for key, dropped_us in cursor.scan(start, prefix_end(keys.DROPPED)):
            raw = key[1:]
            is_there = not _is_gone(cursor, raw) or _any(cursor, keys.purgeable_prefix(raw)) or self._has_clones(raw)
            if not is_there and keys.decode_version(dropped_us) <= by_us:
                page.folders.append((keys.uuid_text(raw), ""))
            if len(page.folders) >= count:
                page.following = SweepPlace(table_id=keys.uuid_text(raw))
                return

    def _has_clones(self, raw: bytes) -> bool:
        """Whether clones have files in a table's folder: detached ones, if it was dropped and purged."""
        return raw not in self._decider.state.forks and len(self._decider.state.family_of(raw)) > 1

    def _home_of(self, table_id: str) -> str:
        return keys.uuid_text(self._decider.state.home_of(keys.uuid_bytes(table_id)))

    def confirm(self, settled: str) -> None:
        """Confirms a sweep. Runs on the decider's thread."""
        state, raw = self._decider.state, keys.uuid_bytes(settled)
        if txn_time_ms(settled) * 1000 > self._ended_by_us():
            raise invalid(
                "TRANSACTION_ID_IN_FUTURE",
                "the grace of that transaction is not over: confirm what a listing called settled",
                txn_id=settled,
            )
        state.flush()
        if raw > (state.store.get(SWEPT) or b""):
            state.batch.put(SWEPT, raw)

    # -- paths ---------------------------------------------------------------------------------------------------------

    def check_paths(self, table_id: str, paths: Sequence[str]) -> tuple[list[str], list[str]]:
        """The paths that are needed, and those on the purge list."""
        raw = self._decider.state.home_of(keys.uuid_bytes(table_id))
        held = self._decider.call(lambda: self._held(raw, paths))
        cursor = self._decider.state.store.cursor()  # after it: what was open a moment ago is held, or in the index
        left = set(paths) - held
        family = self._decider.state.family_of(raw)
        forks = set(map(keys.uuid_text, family))
        generated = {path for path in left if fork_of(path) in forks}
        needed = held.union(generated, _indexed(cursor, family, left), find_named(cursor, raw, left))
        listed = [path for path in left - needed if cursor.get(keys.purgeable_key(raw, path)) is not None]
        return sorted(needed), sorted(listed)

    def _held(self, raw: bytes, paths: Sequence[str]) -> set[str]:
        """Held paths. In the folder of a dropped table none is: no transaction can begin or continue there."""
        self._check()
        state = self._decider.state
        state.flush()
        is_over = _is_gone(state.store.cursor(), raw) and not self._has_clones(raw)
        return set() if is_over else self._held_by_transactions(paths)

    def _held_by_transactions(self, paths: Sequence[str]) -> set[str]:
        self._check()
        state = self._decider.state
        state.flush()
        is_holding: dict[str, bool] = {}
        held = set()
        for path in paths:
            txn_id = path.partition("/")[0]
            if txn_id not in is_holding:
                is_holding[txn_id] = TXN_ID.match(txn_id) is not None and self._is_holding(state, txn_id)
            if is_holding[txn_id]:
                held.add(path)
        return held

    def _is_holding(self, state: State, txn_id: str) -> bool:
        """Whether a transaction, or one that adopted its files, may need the files in its folder."""
        cursor = state.store.cursor()
        by_us = self._ended_by_us()
        for _ in range(ADOPTIONS_MAX):
            txn = state.find_txn(txn_id)
            if txn is None:  # it may yet begin, unless its id is too old for that
                keep_ms = self._keeping.outcome_keep_ms + limits.OUTCOME_MARGIN_MS
                time_ms = txn_time_ms(txn_id)
                if time_ms >= state.forgotten_ms and (self._clocks.now_us() // 1000) - time_ms <= keep_ms:
                    return True
                state.note_forgotten(time_ms)  # its files may be gone: it may not begin under a clock that goes back
                return False
            if txn.state is TxnState.OPEN or txn.end_us > by_us or _is_staged(cursor, keys.uuid_bytes(txn_id)):
                return True
            if not txn.adopted_by:
                return False
            txn_id = txn.adopted_by
        return True


def _is_staged(cursor: StoreCursor, raw: bytes) -> bool:
    """Whether entries of a transaction wait for an adoption or for the purge list."""
    staged = keys.staged_prefix(raw)
    return _any(cursor, staged) or _any(cursor, keys.dying_key(staged))


def _is_gone(cursor: StoreCursor, raw: bytes) -> bool:
    """Whether a table was dropped and can no longer be undropped."""
    return cursor.get(keys.dropped_key(raw)) is not None and not _any(cursor, keys.table_prefix(raw))


def _indexed(cursor: StoreCursor, tables: Sequence[bytes], paths: set[str]) -> Iterator[str]:
    """The paths that an entry of the tables names, live or past."""
    if not paths:
        return
    for raw in tables:
        live = (entry_keys.path_of_live(key) for key, _ in _scan(cursor, entry_keys.live_prefix(raw)))
        past = (entry_keys.path_of_past(key) for key, _ in _scan(cursor, entry_keys.past_prefix(raw)))
        for entries in (live, past):
            yield from (path for path in entries if path in paths)


def _scan(cursor: StoreCursor, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    return cursor.scan(prefix, prefix_end(prefix))


def _any(cursor: StoreCursor, prefix: bytes) -> bool:
    return next(iter(_scan(cursor, prefix)), None) is not None
