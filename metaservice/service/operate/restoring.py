"""What makes a copied store a history of its own: whatever was handed out before the backup or after it is refused.

epoch            one more, with an id that no other restore has
transactions     those that were open end; files of lost INSERTs can no longer be adopted
tasks            all are forgotten: policies plan them anew
row ids          skip ahead, beyond all that the other history can have given
purge            waits for an operator: the other history may still be in use, and names the same files
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from metaservice.core import limits
from metaservice.core.commit.transaction import HISTORY_CHANGED, TxnEvent, TxnState, end
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.backups.folders import Head
from metaservice.store.history import History, put_history, put_purge_hold, read_history
from metaservice.store.port import Batch, Store, StoreCursor, prefix_end
from metaservice.store.records.tables import decode_table
from metaservice.store.records.transactions import decode_txn, encode_txn

OPS_PER_BATCH = 1_000


def begin_history(store: Store, ident: str, now_us: int) -> History:
    """Makes the store begin a new history; no service is using it."""
    before = read_history(store)
    after = History(before.counter + 1, ident, now_us, before.service_id)
    cursor = store.cursor()
    _write(store, _end_transactions(cursor, now_us))
    _write(store, _skip_row_ids(cursor))
    last = Batch()
    put_purge_hold(last, f"restored from a backup of history {before.epoch}")
    put_history(last, after)
    store.write(last)
    store.sync()
    return after


def list_differences(state: State, heads: Iterable[Head]) -> Iterator[str]:
    """The differences between a store and its manifest."""
    expected = {head.table_id: head for head in heads}
    for table_id in expected.keys() ^ state.tables.keys():
        yield f"table {table_id} is in one of manifest and store alone"
    for table_id, head in expected.items():
        table = state.tables.get(table_id)
        if table is not None and (table.head, table.last_time_us) != (head.version, head.time_us):
            yield f"table {table_id} is at version {table.head}, not {head.version}"


def _write(store: Store, ops: Iterable[tuple[bytes, bytes | None]]) -> None:
    batch = Batch()
    for key, value in ops:
        batch.ops.append((key, value))
        if len(batch) >= OPS_PER_BATCH:
            store.write(batch)
            batch.clear()
    store.write(batch)


def _end_transactions(cursor: StoreCursor, now_us: int) -> Iterator[tuple[bytes, bytes | None]]:
    for key, raw in cursor.scan(keys.TRANSACTIONS, prefix_end(keys.TRANSACTIONS)):
        txn = decode_txn(raw)
        if txn.state is TxnState.OPEN:
            end(txn, TxnEvent.ABORT, now_us)
            txn.abort_reason = HISTORY_CHANGED
            yield key, encode_txn(txn)
        elif txn.adoptable:
            txn.adoptable = False
            yield key, encode_txn(txn)
    for key, _ in cursor.scan(keys.OPEN, prefix_end(keys.OPEN)):
        yield key, None
        staged = keys.staged_prefix(key[len(keys.OPEN) :])
        for chunk, _ in cursor.scan(staged, prefix_end(staged)):
            yield chunk, None
    for family in (keys.PINS, keys.TASKS, keys.ENDED_TASKS):
        for key, _ in cursor.scan(family, prefix_end(family)):
            yield key, None


def _skip_row_ids(cursor: StoreCursor) -> Iterator[tuple[bytes, bytes | None]]:
    keyed: dict[bytes, bool] = {}
    for key, raw in cursor.scan(keys.TABLES, prefix_end(keys.TABLES)):
        raw_id, _ = keys.split_versioned(key)
        if raw_id not in keyed:
            keyed[raw_id] = decode_table(raw).keyed
            if not keyed[raw_id]:
                raw_next = cursor.get(keys.row_id_key(raw_id))
                following = keys.decode_version(raw_next) if raw_next is not None else 1
                following = min(following + limits.ROW_ID_STEP, limits.ROW_ID_MAX)
                yield keys.row_id_key(raw_id), keys.encode_version(following)
