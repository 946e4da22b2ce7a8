"""Tables: create, find, alter, drop. Runs on the decider's thread where it changes something."""

from __future__ import annotations

from dataclasses import replace

from metaservice.core.clock import next_commit_time
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.model import Change, Footprint, Operation, Principal, TableCommit, TableMeta
from metaservice.core.transaction import Txn
from metaservice.service.clocks import Clocks
from metaservice.service.decider import Decider
from metaservice.service.state import TableState
from metaservice.service.transactions import Transactions
from metaservice.store import keys
from metaservice.store.records import encode_commit, encode_table


class Catalog:
    """The use cases of CatalogService."""

    def __init__(self, decider: Decider, transactions: Transactions, clocks: Clocks) -> None:
        self._decider = decider
        self._transactions = transactions
        self._clocks = clocks

    def create(self, meta: TableMeta, principal: Principal) -> TableState:
        """Version 0 of a table; the same request again gets the same table."""
        state = self._decider.state
        known = state.tables.get(meta.table_id)
        if known is not None:
            if known.meta.digest == meta.digest:
                return known
            raise MetaError(ErrorKind.ALREADY_EXISTS, "TABLE_ID_REUSED", table_id=meta.table_id)
        if meta.name in state.names:
            raise MetaError(ErrorKind.ALREADY_EXISTS, "TABLE_EXISTS", name=meta.name)
        raw = keys.uuid_bytes(meta.table_id)
        if state.store.get(keys.dropped_key(raw)) is not None:
            raise MetaError(ErrorKind.BLOCKED, "TABLE_DROPPED", table_id=meta.table_id)
        time_us = next_commit_time(self._clocks.now_us(), 0, state.answered_us)
        meta = replace(meta, create_time_us=time_us)
        footprint = Footprint(0, time_us, meta.table_id, Operation.CREATE, principal)
        change = Change(meta.table_id, Operation.CREATE, 0, changes_data=False)
        commit = TableCommit(0, time_us, change, 0, footprint, [], [])
        txn = Txn(meta.table_id, {}, principal, "", {}, time_us, b"")
        state.batch.put(keys.name_key(meta.name), raw)
        state.batch.put(keys.table_key(raw, 0), encode_table(meta))
        state.batch.put(keys.commit_key(raw, 0), encode_commit(commit, txn))
        state.batch.put(keys.time_key(raw, time_us), keys.encode_version(0))
        table = TableState(raw, meta, 0, time_us, -1, 0)
        state.tables[meta.table_id] = table
        state.names[meta.name] = meta.table_id
        state.remember(table, footprint)
        state.changed.add(meta.table_id)
        return table

    def drop(self, table_id: str, *, validate_only: bool) -> int:
        """How many open transactions ended with it, or would."""
        state = self._decider.state
        table = state.get_table(table_id)
        if validate_only:
            return sum(table_id in txn.tables for txn in state.open.values())
        state.batch.delete(keys.name_key(table.meta.name))
        state.batch.put(keys.dropped_key(table.raw_id), keys.encode_version(max(self._clocks.now_us(), 0)))
        ended = self._transactions.end_for_drop(table_id)
        del state.names[table.meta.name]
        del state.tables[table_id]
        return ended
