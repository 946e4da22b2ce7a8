"""Transactions: begin, register, commit, renew, abort, explain, and their expiry.

Every method runs on the decider's thread. A repeat gets the first answer; the same id with other content is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaservice.core import limits, quotas
from metaservice.core.clock import next_commit_time
from metaservice.core.commit import transaction_facts
from metaservice.core.commit.rebase import Author, commit_on_top
from metaservice.core.commit.transaction import Txn, TxnEvent, TxnState, TxnTable, check_open, end, next_state
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.quotas import Quota
from metaservice.core.retention.view_refreshes import check_begin, check_change
from metaservice.core.table.branches import check_direct
from metaservice.core.table.model import Conflict, Entry, Operation, Scope, TableCommit
from metaservice.core.table.properties import KEY_SCOPE
from metaservice.service.commit.admission import (
    COLUMN_DEFAULTS,
    KEY_LOOKUPS,
    Admission,
    check_features,
    keys_not_looked_up,
)
from metaservice.service.commit.adopting import adopt, check_staged
from metaservice.service.commit.appends import Appends
from metaservice.service.commit.dropping import forget_abandoned, forget_table, forget_unborn
from metaservice.service.commit.judging import check_cost, judge_commit, look, refuse_changed, refuse_older_keys
from metaservice.service.commit.new_files import give_row_ids, refuse_inlined, refuse_live
from metaservice.service.commit.outcomes import Outcomes, is_applied, nothing_new
from metaservice.service.commit.requests import Begin, CommitProgress, CommitRequest, Intent
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.naming import check_renames
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.service.retention.marks import apply_moves, check_moves


@dataclass(frozen=True, slots=True)
class Renewed:
    """The new lease, and a conflict that the transaction already has."""

    lease_ms: int
    doomed: Conflict | None


class Transactions:
    """The use cases of TransactionService."""

    def __init__(
        self,
        decider: Decider,
        clocks: Clocks,
        lease_ms: int,
        keep_ms: int,
        reserve_bytes: int,
        limits_given: Mapping[str, Quota] = quotas.DEFAULTS,
        inlined_bytes_max: int = limits.INLINED_BYTES_MAX,
    ) -> None:
        self._quotas = limits_given
        self._decider = decider
        self._clocks = clocks
        self._outcomes = Outcomes(decider, clocks)
        self.lease_ms = lease_ms
        admission = Admission(decider, clocks, keep_ms, reserve_bytes)
        self._repeated, self.check_room = admission.repeated, admission.check_room
        self.appends = Appends(decider, clocks, self._outcomes, admission, inlined_bytes_max)
        self._inlined_bytes_max = inlined_bytes_max

    @property
    def _state(self) -> State:
        return self._decider.state

    # -- begin ---------------------------------------------------------------------------------------------------

    def begin(self, request: Begin) -> Txn:
        repeated = self._repeated(request.txn_id, request.digest)
        if repeated is not None:
            return repeated
        self.check_room()
        state = self._state
        state.usage.check(self._quotas, quotas.TRANSACTIONS, request.principal.name)
        tables = {intent.table_id: self._begin_table(intent, request) for intent in request.tables}
        txn = self._new(request, tables)
        if request.adopt_from:
            adopt(state, txn, request.adopt_from, self._quotas)
        state.txns.put(txn)
        state.leases[txn.txn_id] = self._clocks.mono_ms() + self.lease_ms
        return txn

    def _new(self, request: Begin, tables: dict[str, TxnTable]) -> Txn:
        return Txn(
            request.txn_id,
            tables,
            request.principal,
            request.message,
            request.properties,
            self._clocks.now_us(),
            request.digest,
            request.adopt_from,
        )

    def _begin_table(self, intent: Intent, request: Begin) -> TxnTable:
        state = self._state
        table = state.get_table(intent.table_id)
        meta = table.meta
        if meta.needs_features or table.fork is not None:
            check_features(table, intent.operation, request.features)
        if meta.key_spans_partitions and request.adopt_from:
            raise keys_not_looked_up(table)
        if meta.is_view:
            check_begin(meta, intent.operation, request.properties)
        check_direct(meta, intent.operation)
        read = table.head if intent.read_version is None else intent.read_version
        if read > table.head:
            raise invalid("READ_VERSION_IN_FUTURE", read=read, head=table.head)
        if read < table.oldest:
            state.check_retained(table, read)
        current = meta.schema_version
        if intent.schema_version not in (0, current):
            raise MetaError(ErrorKind.STALE, "SCHEMA_VERSION_MISMATCH", asked=intent.schema_version, current=current)
        if intent.definition and intent.definition != meta.fingerprint:
            raise MetaError(ErrorKind.STALE, "DEFINITION_CHANGED", table=meta.name)
        if intent.reads:
            check_cost(table, intent.reads, read)
        return TxnTable(intent.table_id, intent.operation, read, current, intent.reads)

    def doomed(self, txn: Txn) -> Conflict | None:
        """A conflict that a transaction has since its begin, which read older versions; None if none is known."""
        state = self._state
        is_open = txn.state is TxnState.OPEN
        if not is_open or all(
            state.get_table(table.table_id).head == table.read_version for table in txn.tables.values()
        ):
            return None
        return look(state, txn)

    # -- register ------------------------------------------------------------------------------------------------

    def register(self, txn_id: str, table_id: str, entries: Sequence[Entry]) -> tuple[int, int]:
        """Registers files; returns the totals of files and rows in all tables."""
        state = self._state
        txn = state.get_txn(txn_id)
        check_open(txn)
        self.check_room()
        txn_table = txn.tables.get(table_id)
        if txn_table is None:
            raise invalid("TABLE_NOT_IN_TRANSACTION", txn_id=txn_id, table_id=table_id)
        fresh = []
        for entry in entries:
            staged = txn_table.staged.get(entry.path)
            if staged is None:
                fresh.append(entry)
            elif staged.payload != entry.payload:
                raise invalid("PATH_REUSED", path=entry.path)
        if txn.files + len(fresh) > limits.FILES_PER_TRANSACTION_MAX:
            raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_FILES", most=limits.FILES_PER_TRANSACTION_MAX)
        refuse_inlined(state, table_id, fresh, self._inlined_bytes_max)
        size = check_staged(state, txn, fresh, self._quotas)
        refuse_live(self._state, txn_id, table_id, fresh)
        give_row_ids(state, state.get_table(table_id), fresh)
        state.txns.stage(txn, txn_table, fresh, size)
        return txn.files, sum([table.staged_rows for table in txn.tables.values()])

    # -- commit --------------------------------------------------------------------------------------------------

    def commit(self, request: CommitRequest) -> Txn:
        state = self._state
        txn = state.get_txn(request.txn_id)
        if next_state(txn, TxnEvent.COMMIT) is not TxnState.OPEN:
            if txn.commit_digest != request.digest:
                raise invalid("TRANSACTION_ID_REUSED", txn_id=txn.txn_id)
            return txn
        self.check_room()
        progress = self._complete(txn, request)
        changes = progress.changes
        if any(change.alteration is not None and change.alteration.sets_defaults for change in changes):
            state.need(COLUMN_DEFAULTS)
        if any(change.alteration is not None and KEY_SCOPE in change.alteration.set_properties for change in changes):
            state.need(KEY_LOOKUPS)
        if request.cursors:
            check_moves(state, request.cursors)
        for change in changes:
            meta = state.get_table(change.table_id).meta
            if meta.is_view:
                check_change(meta, change, txn.properties, request.cursors)
        conflict = self._judge(progress)
        for change in changes:
            give_row_ids(state, state.get_table(change.table_id), [e for e in change.adds if e.first_row_id == 0])
        decision = conflict or self._rebase(txn, progress)
        txn.commit_digest = request.digest
        if isinstance(decision, Conflict):
            self._outcomes.lose(txn, decision, changes)
        else:
            self._outcomes.win(txn, decision)
            if request.cursors:
                apply_moves(state, request.cursors, self._clocks.now_us())
        return txn

    def explain(self, request: CommitRequest) -> Conflict | list[TableCommit]:
        """The answer that a commit would get now."""
        txn = self._state.get_txn(request.txn_id)
        check_open(txn)
        progress = self._complete(txn, request)
        return self._judge(progress) or self._rebase(txn, progress)

    def _complete(self, txn: Txn, request: CommitRequest) -> CommitProgress:
        """The request's changes with what was begun and registered; completed again only if more was registered."""
        progress = request.progress
        if progress is None:
            progress = request.progress = CommitProgress(request.changes, [change.adds for change in request.changes])
        if progress.files != txn.files:
            self._complete_with_files(txn, request, progress)
        return progress

    def _complete_with_files(self, txn: Txn, request: CommitRequest, progress: CommitProgress) -> None:
        if {c.table_id for c in request.changes} != txn.tables.keys() or len(request.changes) != len(txn.tables):
            raise invalid("CHANGES_MISMATCH", "send one change for each table of the transaction", txn_id=txn.txn_id)
        for change, own, (files, rows) in zip(request.changes, progress.own, request.counts, strict=True):
            txn_table = txn.tables[change.table_id]
            staged = list(txn_table.staged.values())
            if files is not None and files != len(staged):
                raise invalid("REGISTRATION_INCOMPLETE", expected=files, registered=len(staged))
            if rows is not None and rows != txn_table.staged_rows:
                raise invalid("REGISTRATION_INCOMPLETE", expected=rows)
            for entry in own:
                if entry.path in txn_table.staged:
                    raise invalid("PATH_TWICE", path=entry.path)
            if own:
                refuse_live(self._state, txn.txn_id, change.table_id, own)
                refuse_inlined(self._state, change.table_id, own, self._inlined_bytes_max)
            change.operation, change.read_version = txn_table.operation, txn_table.read_version
            change.adds = staged + own
            scope = change.scope
            if scope is not None and scope.written:
                change.scope = Scope(frozenset(entry.partition for entry in change.adds), written=True)
        if len(request.changes) > 1:
            transaction_facts.tell(request.changes)
        progress.files = txn.files
        progress.judged.clear()

    def _judge(self, progress: CommitProgress) -> Conflict | None:
        """The first conflict. Raises Again if judging takes longer than a turn."""
        state = self._state
        progress.applied = set()
        for change in progress.changes:
            table = state.get_table(change.table_id)
            if change.app_versions and is_applied(state, table, change):
                progress.applied.add(change.table_id)
                continue
            check_direct(table.meta, change.operation, change.alteration)
            refuse_changed(state, table, change.unchanged_since)
            if change.operation is Operation.RESTORE and change.restore_version >= 0:
                state.check_retained(table, change.restore_version)
                refuse_older_keys(state, table, change.restore_version)
            conflict = judge_commit(state, table, change, progress)
            if conflict is not None:
                return conflict
        return None

    def _rebase(self, txn: Txn, progress: CommitProgress) -> Conflict | list[TableCommit]:
        """Rebases changes that no winner conflicts with."""
        state, changes = self._state, progress.changes
        tables = [state.tables[change.table_id] for change in changes]
        last_us = tables[0].last_time_us if len(tables) == 1 else max([table.last_time_us for table in tables])
        time_us = next_commit_time(self._clocks.now_us(), last_us, state.answered_us)
        author = Author(txn.txn_id, txn.principal)
        commits, renames = [], False
        for table, change in zip(tables, changes, strict=True):
            if change.table_id in progress.applied:
                commits.append(nothing_new(table, change, author))
                continue
            judging = progress.judged.get(change.table_id)
            near = judging.near if judging is not None else ()
            snapshots = state.snapshots(table)
            meta = state.column_ids.to_alter(table, change.alteration)
            decision = commit_on_top(change, meta, near, snapshots, author, table.head, time_us)
            if isinstance(decision, Conflict):
                return decision
            renames = renames or decision.meta is not None
            decision.footprint.shared = len(changes) > 1
            if judging is not None:
                decision.passed = judging.passed
            commits.append(decision)
        if renames:
            check_renames(state, commits)
        return commits

    # -- renew, abort, expire ----------------------------------------------------------------------------------------

    def renew(self, txn_id: str) -> Renewed:
        txn = self._state.get_txn(txn_id)
        check_open(txn)
        self._state.leases.pop(txn_id, None)
        self._state.leases[txn_id] = self._clocks.mono_ms() + self.lease_ms
        return Renewed(self.lease_ms, look(self._state, txn))

    def lease_left_ms(self, txn: Txn) -> int:
        """How long an open transaction lives without a heartbeat; after a start of the service leases begin anew."""
        now_ms = self._clocks.mono_ms()
        return max(self._state.leases.get(txn.txn_id, now_ms + self.lease_ms) - now_ms, 0)

    def abort(self, txn_id: str, reason: str) -> None:
        txn = self._state.get_txn(txn_id)
        if next_state(txn, TxnEvent.ABORT) is not txn.state:
            self._end(txn, TxnEvent.ABORT, reason)

    def _end(self, txn: Txn, event: TxnEvent, reason: str) -> None:
        end(txn, event, self._clocks.now_us())
        txn.abort_reason = reason
        self._state.txns.drop_staged(txn)
        self._state.txns.put(txn)
        forget_unborn(self._state, txn, self._clocks.now_us())

    def drop_table(self, table: TableState) -> int:
        """Drops a table; returns the number of its open transactions, which end."""
        return self.drop_tables([table])

    def drop_tables(self, tables: Sequence[TableState]) -> int:
        """Drops tables; returns the number of open transactions that had any of them, and end."""
        state, lost = self._state, {table.meta.table_id for table in tables}
        ended = [txn for txn in state.open.values() if not lost.isdisjoint(txn.tables)] if lost else []
        for txn in ended:
            self._end(txn, TxnEvent.ABORT, "TABLE_DROPPED")
        for table in tables:
            forget_table(state, table, self._clocks.now_us())
        return len(ended)

    def tick(self) -> None:
        """Expires leases and forgets old outcomes, a bounded number at a time."""
        state, now_ms = self._state, self._clocks.mono_ms()
        for txn_id in state.open.keys() - state.leases.keys() if len(state.leases) < len(state.open) else ():
            state.leases[txn_id] = now_ms + self.lease_ms
        for _ in range(limits.TICK_ITEMS_MAX):
            if not state.leases:
                break
            txn_id, deadline_ms = next(iter(state.leases.items()))
            if deadline_ms > now_ms:
                break
            self._end(state.open[txn_id], TxnEvent.EXPIRE, "LEASE_RAN_OUT")
        if state.unborn:
            forget_abandoned(state, now_ms, self.lease_ms, self._clocks.now_us())
