"""Checks of transactions: their state and outcomes, the index of open ones, and what they staged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.service.operate.record_checks import Count, Problem, last_row_id
from metaservice.service.operate.replay import NOT_KNOWN
from metaservice.store import keys
from metaservice.store.commit_log import entries_of
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.transactions import decode_txn


class TransactionChecks:
    """Checks of all transactions, in steps. Each finding goes to `problem`; a step ends where `count` says so."""

    def __init__(self, cursor: StoreCursor, problem: Problem, count: Count) -> None:
        self._cursor = cursor
        self._problem = problem
        self._count = count

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._cursor.scan(prefix, prefix_end(prefix))

    def find(self, txn_id: str) -> Txn | None:
        """The transaction; None if it is gone. An unreadable one is reported once, by the check of transactions."""
        try:
            raw = self._cursor.get(keys.txn_key(keys.uuid_bytes(txn_id)))
            return None if raw is None else decode_txn(raw)
        except Exception:  # noqa: BLE001 - bytes can be wrong in any way
            return None

    @property
    def parts(self) -> tuple[Callable[[], Iterator[None]], ...]:
        return self._transactions, self._open, self._staged

    def _transactions(self) -> Iterator[None]:
        for key, raw in self._scan(keys.TRANSACTIONS):
            raw_id = key[len(keys.TRANSACTIONS) :]
            txn = self._decoded_txn(raw_id, raw)
            is_open = self._cursor.get(keys.open_key(raw_id)) is not None
            if txn is not None and is_open != (txn.state is TxnState.OPEN):
                self._problem("TRANSACTION_STATE_WRONG", txn_id=txn.txn_id, state=txn.state.name, listed=is_open)
            if txn is not None:
                self._outcomes(txn)
            if self._count():
                yield

    def _outcomes(self, txn: Txn) -> None:
        """Checks that an acknowledged commit is in the log, unless the log is cut above it."""
        for outcome in txn.outcomes:
            raw_id = keys.uuid_bytes(outcome.table_id)
            if self._cursor.get(keys.commit_key(raw_id, outcome.version)) is not None:
                continue
            oldest = next(iter(self._scan(keys.commits_prefix(raw_id))), None)
            if oldest is not None and keys.split_versioned(oldest[0])[1] < outcome.version:
                self._problem("COMMIT_MISSING", table=outcome.table_id, version=outcome.version, txn_id=txn.txn_id)

    def _decoded_txn(self, raw_id: bytes, raw: bytes) -> Txn | None:
        try:
            txn = decode_txn(raw)
            for outcome in txn.outcomes:
                keys.uuid_bytes(outcome.table_id)
        except Exception as error:  # noqa: BLE001 - bytes can be wrong in any way
            self._problem("RECORD_UNREADABLE", record="transaction", txn_id=text_of(raw_id), error=error)
            return None
        if txn.txn_id != text_of(raw_id):
            self._problem("TRANSACTION_MISPLACED", txn_id=text_of(raw_id), found=txn.txn_id)
            return None
        return txn

    def _open(self) -> Iterator[None]:
        for key, _ in self._scan(keys.OPEN):
            raw_id = key[len(keys.OPEN) :]
            raw = self._cursor.get(keys.txn_key(raw_id))
            if raw is None:
                self._problem("OPEN_TRANSACTION_MISSING", txn_id=text_of(raw_id))
            if self._count():
                yield

    def _staged(self) -> Iterator[None]:
        """Checks that staged entries belong to an open or lost transaction, in chunks without gaps."""
        last: tuple[bytes, bytes, int] = (b"", b"", NOT_KNOWN)
        for key, raw in self._scan(keys.STAGED):
            place = keys.split_staged(key)
            txn_id, table, chunk = place
            is_first = place[:2] != last[:2]
            if is_first:
                self._stager(text_of(txn_id), text_of(table))
            is_open = self._cursor.get(keys.open_key(txn_id)) is not None
            following = last[2] + 1 if not is_first else 0 if is_open else chunk  # a sweep takes the first ones first
            if chunk != following:
                self._problem("STAGED_CHUNK_MISSING", txn_id=text_of(txn_id), table=text_of(table), chunk=following)
            last = place
            try:
                highest = max(last_row_id(entry) for entry in entries_of(raw))  # none is as bad as an unreadable one
            except ValueError as error:
                self._problem("RECORD_UNREADABLE", record="staged", txn_id=text_of(txn_id), chunk=chunk, error=error)
                highest = 0
            raw_next = self._cursor.get(keys.row_id_key(table))
            if raw_next is not None and highest >= keys.decode_version(raw_next):
                self._problem("ROW_IDS_BEYOND_THE_NEXT", table=text_of(table), txn_id=text_of(txn_id), highest=highest)
            if self._count():
                yield

    def _stager(self, txn_id: str, table_id: str) -> None:
        txn = self.find(txn_id)
        if txn is None or table_id not in txn.tables:
            self._problem("STAGED_WITHOUT_TRANSACTION", txn_id=txn_id, table=table_id)
        elif txn.state not in (TxnState.OPEN, TxnState.CONFLICT):
            self._problem("STAGED_BY_AN_ENDED_TRANSACTION", txn_id=txn_id, table=table_id, state=txn.state.name)


def text_of(raw_id: bytes) -> str:
    return str(UUID(bytes=raw_id)) if len(raw_id) == 16 else raw_id.hex()
