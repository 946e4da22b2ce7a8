"""Tables that go: dropped by a client, or with the transaction that they were made for."""

from __future__ import annotations

from dataclasses import replace

from metaservice.core.commit.transaction import Txn
from metaservice.core.table.staged_names import is_unborn, next_look_ms
from metaservice.service.decider.ended_forks import EndedFork
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.branches import EndedRecord, encode_ended_forks


def forget_table(state: State, table: TableState, now_us: int) -> None:
    """Drops a table without open transactions; nothing happens to one that is gone."""
    table_id = table.meta.table_id
    if table_id not in state.tables:
        return
    state.batch.delete(keys.name_key(table.meta.name))
    drop_us = max(now_us, state.newest_us)  # a clock that went back shortens no retention
    state.batch.put(keys.dropped_key(table.raw_id), keys.encode_version(drop_us))
    if table_id in state.row_ids_given:  # its counter has to come back with it
        state.batch.put(keys.row_id_key(table.raw_id), keys.encode_version(table.next_row_id))
    del state.names[table.meta.name]
    del state.tables[table_id]
    state.inlined_bytes -= table.inlined.size_bytes
    state.changed.add(table_id)
    if table.fork is not None and not table.fork.is_dropped:
        state.put_fork(replace(table.fork, is_dropped=True))


class EndingForks:
    """Drops forks without open transactions, one by one. Nobody finds them any more; their records follow later."""

    def __init__(self, state: State, txn_id: str, now_us: int) -> None:
        self._state = state
        self._key = keys.ended_forks_key(keys.uuid_bytes(txn_id))
        self._drop_us = max(now_us, state.newest_us)  # a clock that went back shortens no retention
        self._ended: list[EndedRecord] = []

    def end(self, fork: EndedFork) -> None:
        state, record = self._state, fork.record
        table_id = keys.uuid_text(record.raw_id)
        del state.names[record.name]
        state.inlined_bytes -= state.tables.pop(table_id).inlined.size_bytes
        state.changed.add(table_id)
        state.forks[record.raw_id] = fork.after
        state.ended_forks.add(self._key, self._drop_us, record)
        self._ended.append(record)

    def write(self) -> None:
        """The one record of all."""
        if self._ended:
            self._state.batch.put(self._key, encode_ended_forks(self._drop_us, self._ended))


def forget_unborn(state: State, txn: Txn, now_us: int) -> None:
    """Drops the tables that were made for a transaction, which ended without a commit."""
    for table_id in txn.tables:
        table = state.tables.get(table_id)
        if table is not None and is_unborn(table.meta.name):
            forget_table(state, table, now_us)


def forget_abandoned(state: State, now_ms: int, lease_ms: int, now_us: int) -> None:
    """Drops hidden tables without a commit that no transaction was begun for: their client is gone."""
    for table_id, due_ms in list(state.unborn.items()):
        if due_ms is not None and now_ms < due_ms:
            continue
        table = state.tables.get(table_id)
        if table is None or table.head or not is_unborn(table.meta.name):
            del state.unborn[table_id]
            continue
        is_filled = any(table_id in txn.tables for txn in state.open.values())
        look_ms = next_look_ms(due_ms, now_ms, lease_ms, is_filled=is_filled)
        if look_ms is None:
            forget_table(state, table, now_us)
            del state.unborn[table_id]
        else:
            state.unborn[table_id] = look_ms
