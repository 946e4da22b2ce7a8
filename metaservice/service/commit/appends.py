"""Appends in one call: each begins and commits at the head. Runs on the decider's thread."""

from __future__ import annotations

from collections.abc import Sequence

from metaservice.core.clock import next_commit_time
from metaservice.core.commit.change_checks import check
from metaservice.core.commit.judged_change import advice_for
from metaservice.core.commit.rebase import Author, commit_on_top
from metaservice.core.commit.transaction import Txn, TxnTable
from metaservice.core.errors import MetaError
from metaservice.core.retention.view_refreshes import check_begin
from metaservice.core.table.branches import check_direct
from metaservice.core.table.model import Change, Conflict, Footprint, Operation, Rule, TableCommit
from metaservice.core.table.properties import ONLY_BY_MERGE
from metaservice.service.commit.admission import Admission, check_features, keys_not_looked_up
from metaservice.service.commit.judging import refuse_changed
from metaservice.service.commit.new_files import give_row_ids, refuse_inlined, refuse_live
from metaservice.service.commit.outcomes import Outcomes, is_applied, nothing_new
from metaservice.service.commit.requests import Append
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.snapshots import TableState


class Appends:
    """Appends of many transactions, decided together."""

    def __init__(
        self, decider: Decider, clocks: Clocks, outcomes: Outcomes, admission: Admission, inlined_bytes_max: int
    ) -> None:
        self._decider = decider
        self._clocks = clocks
        self._outcomes = outcomes
        self._admission = admission
        self._inlined_bytes_max = inlined_bytes_max

    def append(self, request: Append) -> Txn:
        """Begins and commits at the head; only a schema change can be a conflict."""
        (result,) = self.append_many([request])
        if isinstance(result, MetaError):
            raise result
        return result

    def append_many(self, requests: Sequence[Append]) -> list[Txn | MetaError]:
        """Appends in order. Each step runs for all before the next step: half the cost of one request at a time."""
        results: list[Txn | MetaError] = []
        run: list[Append] = []
        ids: set[str] = set()
        for request in requests:
            # what it applies the next one has to see; what it depends on the ones before may change
            alone = bool(request.app_versions) or request.unchanged_since is not None
            if run and (alone or request.txn_id in ids):
                results += self._append_run(run)
                run, ids = [], set()
            run.append(request)
            ids.add(request.txn_id)
            if alone:
                results += self._append_run(run)
                run, ids = [], set()
        return results + self._append_run(run)

    def _append_run(self, requests: Sequence[Append]) -> list[Txn | MetaError]:
        """Appends of different transactions, none of which reads what another writes."""
        results: list[Txn | MetaError] = []
        begun: list[tuple[int, Txn, Change]] = []
        for place, request in enumerate(requests):
            try:
                txn, change = self._begin_append(request)
                if change is not None:
                    begun.append((place, txn, change))
                results.append(txn)
            except MetaError as refusal:
                results.append(refusal)
        won: list[tuple[Txn, TableCommit]] = []
        for place, txn, change in begun:
            try:
                decision = self._decide_append(txn, change)
            except MetaError as refusal:
                results[place] = refusal
                continue
            if decision is not None:
                won.append((txn, decision))
        for txn, commit in won:
            if not commit.already_applied:
                self._outcomes.write_commit(txn, commit)
        for txn, commit in won:
            self._outcomes.end_won(txn, (commit,))
        return results

    def _decide_append(self, txn: Txn, change: Change) -> TableCommit | None:
        """The commit to write; None after a conflict."""
        state = self._decider.state
        table = state.tables[change.table_id]
        refuse_changed(state, table, change.unchanged_since)
        give_row_ids(state, table, change.adds)
        change.read_version = table.head
        time_us = next_commit_time(self._clocks.now_us(), table.last_time_us, state.answered_us)
        author, snapshots = Author(txn.txn_id, txn.principal), state.snapshots(table)
        if change.app_versions and is_applied(state, table, change):
            return nothing_new(table, change, author)
        if ONLY_BY_MERGE in table.meta.properties:
            check_direct(table.meta, change.operation)
        check(change, table.meta, snapshots)
        decision = commit_on_top(change, table.meta, (), snapshots, author, table.head, time_us)
        if isinstance(decision, Conflict):
            self._outcomes.lose(txn, decision, [change])
            return None
        if not decision.already_applied:
            self._outcomes.advance(decision)
        return decision

    def _begin_append(self, request: Append) -> tuple[Txn, Change | None]:
        """Returns the transaction, with its change unless it has already ended."""
        repeated = self._admission.repeated(request.txn_id, request.digest)
        if repeated is not None:
            return repeated, None
        self._admission.check_room()
        state, table_id = self._decider.state, request.table_id
        table = state.get_table(table_id)
        refuse_live(state, request.txn_id, table_id, request.entries)
        refuse_inlined(state, table_id, request.entries, self._inlined_bytes_max)
        meta = table.meta
        if meta.key_spans_partitions:
            raise keys_not_looked_up(table)
        if meta.needs_features or table.fork is not None:
            check_features(table, Operation.INSERT, request.features)
        if meta.is_view:
            check_begin(meta, Operation.INSERT, {})
        head = table.head
        txn = Txn(
            request.txn_id,
            {table_id: TxnTable(table_id, Operation.INSERT, head, meta.schema_version)},
            request.principal,
            request.message,
            request.properties,
            self._clocks.now_us(),
            request.digest,
            files=len(request.entries),
            one_call=True,
        )
        change = Change(table_id, Operation.INSERT, head, app_versions=request.app_versions, adds=request.entries)
        change.unchanged_since = request.unchanged_since
        if request.schema_version in (0, meta.schema_version):
            return txn, change
        rule = Rule.METADATA_CHANGED
        advice = advice_for(change, rule, blind=True)
        winner = self._schema_change(table)
        self._outcomes.lose(txn, Conflict(table_id, rule, winner, Operation.INSERT, head, advice), [change])
        return txn, None

    def _schema_change(self, table: TableState) -> Footprint:
        """The commit that last changed the schema, or the head if that is unknown."""
        version = min(table.last_metadata_version, table.head)
        return self._decider.state.winner(table, version)
