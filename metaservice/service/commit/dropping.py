"""Tables that go: dropped by a client, or with the transaction that they were made for."""

from __future__ import annotations

from metaservice.core.commit.transaction import Txn
from metaservice.service.decider.naming import is_unborn
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import keys


def forget_table(state: State, table: TableState, now_us: int) -> None:
    """Drops a table without open transactions; nothing happens to one that is gone."""
    table_id = table.meta.table_id
    if table_id not in state.tables:
        return
    state.batch.delete(keys.name_key(table.meta.name))
    drop_us = max(now_us, state.newest_us)  # a clock that went back shortens no retention
    state.batch.put(keys.dropped_key(table.raw_id), keys.encode_version(drop_us))
    del state.names[table.meta.name]
    del state.tables[table_id]
    state.changed.add(table_id)


def forget_unborn(state: State, txn: Txn, now_us: int) -> None:
    """Drops the tables that were made for a transaction, which ended without a commit."""
    for table_id in txn.tables:
        table = state.tables.get(table_id)
        if table is not None and is_unborn(table.meta.name):
            forget_table(state, table, now_us)
