"""Tables: create, replace, drop, undrop. Runs on the decider's thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from metaservice.core import limits
from metaservice.core.clock import next_commit_time
from metaservice.core.commit.transaction import Txn, txn_time_ms
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.branches import check_direct, check_same_branch
from metaservice.core.table.column_properties import check_bloom_columns
from metaservice.core.table.key_scope import check_key_scope
from metaservice.core.table.merge_engine import check_merge_engine
from metaservice.core.table.meta import Alteration, TableMeta, replaced
from metaservice.core.table.model import Change, Footprint, Operation, Principal, Scope, TableCommit
from metaservice.core.table.staged_names import is_unborn
from metaservice.core.table.view_definition import check_definition
from metaservice.service.commit.admission import COLUMN_DEFAULTS, FORKS, KEY_LOOKUPS, PARTIAL_IMAGES
from metaservice.service.commit.judging import refuse_older_check
from metaservice.service.commit.outcomes import Outcomes
from metaservice.service.commit.requests import Alter, Begin, CommitRequest, Intent
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.forking import find_table, fork_where_shown, get_branch, is_on
from metaservice.service.decider.naming import check_free, table_name_in
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.views import TableView
from metaservice.service.table.listing import Dropped, Tables
from metaservice.service.table.namespaces import Namespaces
from metaservice.service.table.views import Views
from metaservice.store import keys


class Mode(Enum):
    """What to do if the name is taken."""

    CREATE = "fails"
    IF_NOT_EXISTS = "takes the table that is there"
    OR_REPLACE = "empties and redefines the table that is there"


@dataclass(frozen=True, slots=True)
class Altered:
    """A table after an alteration, or as it would be; then the head stays."""

    table: TableView
    version: int = 0


class Catalog:
    """The use cases of CatalogService."""

    def __init__(self, decider: Decider, transactions: Transactions, clocks: Clocks) -> None:
        self._decider = decider
        self._transactions = transactions
        self._clocks = clocks
        self._outcomes = Outcomes(decider, clocks)
        self.namespaces = Namespaces(decider, clocks)
        self.queries = Views(decider, clocks)
        self.tables = Tables(decider)

    def create_table(self, meta: TableMeta, principal: Principal, mode: Mode) -> tuple[TableView, bool]:
        """Returns the table, and whether this request created it."""
        state = self._decider.state
        existing = self._find(meta.name)
        is_repeat = meta.table_id in state.tables
        if mode is Mode.CREATE or existing is None or is_repeat:
            if not is_repeat:
                _check_layout(meta)
            return self.create(meta, principal).view(), True
        if mode is Mode.OR_REPLACE:
            self._replace(state.tables[existing], meta, principal)
        return state.tables[existing].view(), False

    def _find(self, name: str) -> str | None:
        """The table of that name, which may be one that nobody has asked for on its branch yet."""
        table = find_table(self._decider.state, name)
        return None if table is None else table.meta.table_id

    def would_make(self, meta: TableMeta, mode: Mode) -> bool:
        """Whether `create_table` would make a table, rather than find one or answer again."""
        state = self._decider.state
        return meta.table_id not in state.tables and (mode is Mode.CREATE or self._find(meta.name) is None)

    def create(self, meta: TableMeta, principal: Principal) -> TableState:
        """Creates version 0 of a table; the same request again gets the same table."""
        state = self._decider.state
        existing = state.tables.get(meta.table_id)
        if existing is not None:
            if existing.meta.digest == meta.digest:
                return existing
            raise MetaError(ErrorKind.ALREADY_EXISTS, "TABLE_ID_REUSED", table_id=meta.table_id)
        meta = self._checked(meta)
        if meta.has_defaults:
            state.need(COLUMN_DEFAULTS)
        if meta.key_spans_partitions:
            state.need(KEY_LOOKUPS)
        if meta.is_partial:
            state.need(PARTIAL_IMAGES)
        raw = keys.uuid_bytes(meta.table_id)
        time_us = next_commit_time(self._clocks.now_us(), 0, state.answered_us)
        meta = replace(meta, create_time_us=time_us)
        footprint = Footprint(0, time_us, meta.table_id, Operation.CREATE, principal)
        change = Change(meta.table_id, Operation.CREATE, 0, changes_data=False)
        commit = TableCommit(
            version=0, time_us=time_us, change=change, rebased_over=0, footprint=footprint, added=[], removed=[]
        )
        txn = Txn(
            txn_id=meta.table_id,
            tables={},
            principal=principal,
            message="",
            properties={},
            begin_us=time_us,
            begin_digest=b"",
        )
        table = state.tables[meta.table_id] = TableState(raw, meta, 0, time_us)
        state.names[meta.name] = meta.table_id
        if is_unborn(meta.name):
            state.unborn[meta.table_id] = None
        state.batch.put(keys.name_key(meta.name), raw)
        state.put_meta(table, meta, 0)
        self._outcomes.write(txn, commit)
        return table

    def check_new_id(self, table_id: str) -> None:
        """Refuses an id that a table has or had, and one that a table could have had: it is not of now."""
        state = self._decider.state
        state.flush()
        is_known = table_id in state.tables or state.is_dropped(keys.uuid_bytes(table_id))
        if is_known or abs(self._clocks.now_us() // 1000 - txn_time_ms(table_id)) > limits.NEW_TABLE_MS_MAX:
            raise invalid("TABLE_ID_NOT_NEW", table_id=table_id)

    def would_create(self, meta: TableMeta, mode: Mode) -> tuple[TableView, bool]:
        """Returns the answer that `create_table` would give; changes nothing, but reserves its columns' ids."""
        state = self._decider.state
        existing = self._find(meta.name)
        if mode is Mode.CREATE or existing is None:
            _check_layout(meta)
            meta = self._checked(meta)
            return TableState(keys.uuid_bytes(meta.table_id), meta, 0, 0).view(), True
        table = state.tables[existing]
        if mode is Mode.OR_REPLACE:
            after = replaced(state.column_ids.to_replace(table), meta)
            state.column_ids.reserve(table, after.last_column_id, state.batch)
            return table.view()._replace(meta=after), False
        return table.view(), False

    def _checked(self, meta: TableMeta) -> TableMeta:
        """The definition with its namespace as stored."""
        meta.check_size()
        check_definition(meta.table_id, meta.properties)
        state = self._decider.state
        check_free(state, meta.name)
        if state.is_dropped(keys.uuid_bytes(meta.table_id)):
            raise MetaError(ErrorKind.BLOCKED, "TABLE_DROPPED", table_id=meta.table_id)
        name = table_name_in(state, meta.name)
        if len(state.tables) >= limits.TABLES_MAX:
            raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_TABLES", most=limits.TABLES_MAX)
        return replace(meta, name=name)

    def _replace(self, table: TableState, definition: TableMeta, principal: Principal) -> None:
        """Replaces a table in one commit: an OVERWRITE of everything with no rows, with the new definition."""
        digest = bytes.fromhex(definition.digest)
        repeated = self._decider.state.find_txn(definition.table_id)
        if repeated is None:
            replacement = replaced(self._decider.state.column_ids.to_replace(table), definition)
            replacement.check_size()
        elif repeated.begin_digest == digest:
            return
        else:
            raise MetaError(ErrorKind.ALREADY_EXISTS, "TRANSACTION_ID_REUSED", txn_id=definition.table_id)
        table_id = table.meta.table_id
        intent = Intent(table_id, Operation.OVERWRITE)
        begin = Begin(
            definition.table_id,
            (intent,),
            principal,
            "",
            digest,
            features=table.meta.features | {COLUMN_DEFAULTS, FORKS, KEY_LOOKUPS, PARTIAL_IMAGES},
        )
        alteration = Alteration(replacement=replacement)
        change = Change(table_id, Operation.OVERWRITE, 0, scope=Scope(None), alteration=alteration)
        self.begin_and_commit(begin, CommitRequest(definition.table_id, (change,), ((None, None),), digest))

    def alter(self, request: Alter, *, validate_only: bool) -> Altered:
        """Alters a table in a transaction of its own: begun and committed in one step."""
        table = self._decider.state.get_table(request.table_id)
        alteration, meta = request.alteration, table.meta
        is_new = self._decider.state.find_txn(request.txn_id) is None
        if is_new:
            alteration = self._with_name(alteration, request.table_id)
        if is_new or validate_only:
            check_direct(meta, Operation.ALTER, alteration)
            if alteration.checked_keys is not None:
                refuse_older_check(self._decider.state, table, alteration.checked_keys)
            meta = self._decider.state.column_ids.to_alter(table, alteration)
            meta = meta.altered(alteration)  # what can't be altered so leaves no transaction behind
        if validate_only:
            return Altered(table.view()._replace(meta=meta))
        if is_new and alteration.name is not None:
            fork_where_shown(self._decider.state, table)
        begin = Begin(
            request.txn_id,
            (Intent(request.table_id, Operation.ALTER),),
            request.principal,
            request.message,
            request.digest,
            features=table.meta.features,
        )
        change = Change(request.table_id, Operation.ALTER, 0, alteration=alteration, changes_data=False, key_sets=())
        commit = CommitRequest(request.txn_id, (change,), ((None, None),), request.commit_digest)
        txn = self.begin_and_commit(begin, commit)
        return Altered(table.view(), txn.outcomes[0].version)

    def _with_name(self, alteration: Alteration, table_id: str) -> Alteration:
        """The alteration with a free name, and its namespace as stored."""
        if alteration.name is None:
            return alteration
        check_same_branch(self._decider.state.get_table(table_id).meta.name, alteration.name)
        name = table_name_in(self._decider.state, alteration.name)
        check_free(self._decider.state, name, table_id)
        return replace(alteration, name=name)

    def begin_and_commit(self, begin: Begin, commit: CommitRequest) -> Txn:
        """Runs a whole transaction in one step; a refused one leaves nothing behind."""
        txn = self._transactions.begin(begin)
        try:
            return self._transactions.commit(commit)
        except MetaError as refusal:
            if txn.txn_id in self._decider.state.open:
                self._transactions.abort(txn.txn_id, refusal.reason)
            raise

    def drop(self, table_id: str, *, validate_only: bool) -> int:
        """Drops a table; returns the number of open transactions that ended with it, or would."""
        state = self._decider.state
        table = state.get_table(table_id)
        if validate_only:
            return sum(table_id in txn.tables for txn in state.open.values())
        fork_where_shown(state, table)
        return self._transactions.drop_table(table)

    def undrop(self, table_id: str) -> TableView:
        """Brings back a table with its history under its name; a live table is returned as it is."""
        state = self._decider.state
        if table_id in state.tables:
            return state.tables[table_id].view()
        dropped = self._get_dropped(table_id)
        name, now_us = dropped.table.meta.name, self._clocks.now_us()
        if now_us >= dropped.until_us:
            raise MetaError(
                ErrorKind.GONE,
                "RETENTION_OVER",
                "the table was dropped too long ago to be undropped: create it again",
                table_id=table_id,
                drop_time_us=dropped.drop_us,
                undrop_until_us=dropped.until_us,
            )
        fork = state.forks.get(dropped.table.raw_id)
        if fork is not None and fork.branch and not is_on(fork, get_branch(state, fork.branch)):
            raise MetaError(ErrorKind.BLOCKED, "TABLE_ID_OUTDATED", table_id=table_id, branch=fork.branch)
        check_free(state, name)
        if table_name_in(state, name) != name:  # its own is gone, and one of another case is there
            raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=name.partition(".")[0])
        if len(state.tables) >= limits.TABLES_MAX:
            raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_TABLES", most=limits.TABLES_MAX)
        table = state.load_table(dropped.table.raw_id)
        if table.fork is not None:
            state.put_fork(replace(table.fork, is_dropped=False))
            table.fork = state.forks[table.raw_id]
        self._hide_on_branches(table)
        state.batch.delete(keys.dropped_key(table.raw_id))
        state.batch.put(keys.name_key(name), table.raw_id)
        state.tables[table_id] = table
        state.inlined_bytes += table.inlined.size_bytes
        state.names[name] = table_id
        state.changed.add(table_id)
        return table.view()

    def _hide_on_branches(self, table: TableState) -> None:
        """A table that comes back is shown by branches with a fork of it; others began while it was gone."""
        state = self._decider.state
        if state.branches:
            state.note_answered(max(self._clocks.now_us(), state.newest_us))
            back_us = state.answered_us + 1  # after all branches so far, and not after those to come
            state.newest_us = state.undropped[table.raw_id] = back_us
            state.batch.put(keys.undropped_key(table.raw_id), keys.encode_version(back_us))

    def _get_dropped(self, table_id: str) -> Dropped:
        state = self._decider.state
        state.ended_forks.write(len(state.ended_forks), state.names, state.batch)
        state.flush()
        raw_id = keys.uuid_bytes(table_id)
        raw = state.store.get(keys.dropped_key(raw_id))
        if raw is None:
            raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", table_id=table_id)
        dropped = self.tables.find_dropped(raw_id, raw)
        if dropped is None:
            raise MetaError(
                ErrorKind.GONE, "RETENTION_OVER", "nothing is left of the table: create it again", table_id=table_id
            )
        return dropped


def _check_layout(meta: TableMeta) -> None:
    """Checks what never changes of a new table."""
    check_key_scope(meta.primary_key, meta.partitioning.names, meta.properties)
    check_merge_engine(meta.primary_key, meta.partitioning.names, meta.properties)
    check_bloom_columns(meta.columns, meta.properties)
