"""Merge: what was committed on a branch becomes commits of its parent, in one transaction over all tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from metaservice.core import limits
from metaservice.core.clock import next_commit_time
from metaservice.core.commit.rebase import Author, commit_on_top
from metaservice.core.commit.transaction import TableOutcome, Txn, TxnEvent, TxnTable, check_txn_age, end
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.branches import Branch, off_branch, on_branch
from metaservice.core.table.meta import Alteration, TableMeta
from metaservice.core.table.model import Change, Operation, Principal, Read
from metaservice.core.table.properties import MERGE_CHECKS, parse_checks, text_property
from metaservice.service.branch.branches import check_childless, forget_branch, put_branch, tables_on
from metaservice.service.branch.replay import Replay, Replayed
from metaservice.service.commit.dropping import forget_table
from metaservice.service.commit.outcomes import Outcomes
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.forking import get_branch, is_on
from metaservice.service.decider.naming import check_free
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.branches import Fork

MESSAGE = "merge of the branch "
ReadsUnder = Callable[[Sequence[bytes], TableMeta], tuple[Read, ...]]  # the wire's messages, of a table


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A request for a merge. `keep`: the branch stays, and leaves its parent anew."""

    txn_id: str
    name: str
    principal: Principal
    digest: bytes
    keep: bool = False
    validate_only: bool = False
    checked: frozenset[str] = frozenset()  # ids of tables whose checks the client has run


@dataclass(slots=True)
class Merged:
    """What a merge did, would do, or why it can't."""

    is_done: bool
    tables: list[Replayed] = field(default_factory=list)
    time_us: int = 0


class Merging:
    """The use case. Runs on the decider's thread, whole."""

    def __init__(
        self, decider: Decider, transactions: Transactions, clocks: Clocks, keep_ms: int, reads_under: ReadsUnder
    ) -> None:
        self._decider = decider
        self._transactions = transactions
        self._clocks = clocks
        self._keep_ms = keep_ms
        self._reads_under = reads_under
        self._outcomes = Outcomes(decider, clocks)

    @property
    def _state(self) -> State:
        return self._decider.state

    def merge(self, request: MergeRequest) -> Merged:
        state = self._state
        done = state.find_txn(request.txn_id)
        if done is not None:
            if done.begin_digest != request.digest:
                raise invalid("TRANSACTION_ID_REUSED", txn_id=request.txn_id)
            return self._again(done)
        check_txn_age(request.txn_id, self._clocks.now_us() // 1000, self._keep_ms, state.forgotten_ms)
        self._transactions.check_room()
        branch = get_branch(state, request.name)
        if not request.keep:
            check_childless(state, branch)
        tables = tables_on(state, branch)
        self._check_closed(branch, tables)
        txn = Txn(
            request.txn_id,
            {},
            request.principal,
            f"{MESSAGE}{branch.name}",
            {},
            self._clocks.now_us(),
            request.digest,
        )
        state.flush()
        replayed = self._replay(branch, tables, txn)
        refuse_unchecked(replayed, request.checked)
        merged = Merged(
            not any(part.fails for part in replayed), sorted(replayed, key=lambda part: part.name), txn.begin_us
        )
        if not merged.is_done or request.validate_only:
            return merged
        self._write(branch, tables, txn, merged, keep=request.keep)
        return merged

    def _again(self, txn: Txn) -> Merged:
        """The answer to a repeat of a merge that is done. Tables that the parent has dropped since are left out."""
        merged = Merged(is_done=True, time_us=txn.commit_time_us)
        for table_id in dict.fromkeys(outcome.table_id for outcome in txn.outcomes):
            done = tuple(outcome for outcome in txn.outcomes if outcome.table_id == table_id)
            table = self._state.tables.get(table_id)
            if table is not None:
                is_forward = not any(outcome.rebased_over for outcome in done)  # a replay passes the parent's commits
                merged.tables.append(Replayed(table, table.meta.name, is_forward=is_forward, done=done))
        merged.tables.sort(key=lambda part: part.name)
        return merged

    def _check_closed(self, branch: Branch, tables: Sequence[TableState]) -> None:
        on_it = {table.meta.table_id for table in tables}
        busy = [txn.txn_id for txn in self._state.open.values() if not on_it.isdisjoint(txn.tables)]
        if busy:
            raise MetaError(ErrorKind.BLOCKED, "BRANCH_IN_USE", branch=branch.name, open=len(busy), txn_id=min(busy))

    # -- deciding: nothing is written

    def _replay(self, branch: Branch, tables: Sequence[TableState], txn: Txn) -> list[Replayed]:
        state = self._state
        pairs = [(table, self._parent_of(table.fork)) for table in tables]
        parents = [parent for _, parent in pairs if parent is not None]
        last_us = max([table.last_time_us for table in (*parents, *tables)], default=0)
        time_us = txn.begin_us = next_commit_time(self._clocks.now_us(), last_us, state.answered_us)
        merged = []
        for table, parent in pairs:
            if table.fork is None:
                merged.append(self._new_table(branch, table, txn, time_us))
            elif table.head == table.fork.version:
                continue
            elif parent is None:
                refusal = MetaError(ErrorKind.BLOCKED, "MERGE_PARENT_DROPPED", table=table.meta.name)
                merged.append(Replayed(table, off_branch(table.meta.name), refusal=refusal))
            else:
                reads_of = self._reads_of(parent)
                merged.append(Replay(state, table, parent, reads_of, txn).run(branch.name, time_us))
        for fork in _drops(state, branch):
            parent = self._parent_of(fork)
            if parent is not None and parent.head != fork.version:
                refusal = MetaError(
                    ErrorKind.BLOCKED, "MERGE_NEEDS_UNCHANGED_PARENT", table=parent.meta.name, operation="drop"
                )
                merged.append(Replayed(parent, parent.meta.name, refusal=refusal))
        return merged

    def _reads_of(self, parent: TableState) -> Callable[[Sequence[bytes]], tuple[Read, ...]]:
        return lambda messages: self._reads_under(messages, parent.meta)

    def _parent_of(self, fork: Fork | None) -> TableState | None:
        return None if fork is None else self._state.tables.get(keys.uuid_text(fork.base))

    def _new_table(self, branch: Branch, table: TableState, txn: Txn, time_us: int) -> Replayed:
        """A table that was made on the branch gets its name in the parent, by an ALTER."""
        name = on_branch(off_branch(table.meta.name), branch.parent)
        merged = Replayed(table, name, is_forward=True)
        try:
            check_free(self._state, name, table.meta.table_id)
            alteration = Alteration(name=name)
            change = Change(
                table.meta.table_id, Operation.ALTER, table.head, alteration=alteration, changes_data=False, key_sets=()
            )
            author, snapshots = Author(txn.txn_id, txn.principal), self._state.snapshots(table)
            commit = commit_on_top(change, table.meta, (), snapshots, author, table.head, time_us)
            merged.commits = [(commit, txn)]  # type: ignore[list-item]  # an ALTER has no lineage to lose
        except MetaError as refusal:
            merged.refusal = refusal
        return merged

    # -- writing: one batch

    def _write(self, branch: Branch, tables: Sequence[TableState], txn: Txn, merged: Merged, *, keep: bool) -> None:
        state = self._state
        outcomes = []
        for replayed in merged.tables:
            for commit, author in replayed.commits:
                self._outcomes.write(author, commit)
                outcomes.append(
                    TableOutcome(commit.change.table_id, commit.version, commit.change.logical, commit.rebased_over)
                )
        txn.tables = {part.table_id: TxnTable(part.table_id, Operation.CUSTOM, 0, 0) for part in outcomes}
        txn.commit_time_us, txn.outcomes = merged.time_us, tuple(outcomes)
        end(txn, TxnEvent.WIN, merged.time_us)
        state.put_txn(txn)
        now_us = self._clocks.now_us()
        left_out = {replayed.table.raw_id: replayed.left_out for replayed in merged.tables}
        drops = _drops(state, branch)
        for table in tables:
            parent = self._parent_of(table.fork)
            if parent is not None:  # it has rows with ids that the branch gave
                parent.next_row_id = max(parent.next_row_id, table.next_row_id)
                state.row_ids_given.add(parent.meta.table_id)
            if table.fork is not None:
                state.put_fork(replace(table.fork, is_merged=True, left_out=left_out.get(table.fork.base, ())))
                forget_table(state, table, now_us)
        for fork in drops:
            parent = self._parent_of(fork)
            state.put_fork(replace(fork, is_merged=True))
            if parent is not None:
                self._transactions.drop_table(parent)
        if keep:
            instant = max(merged.time_us, now_us)
            state.note_answered(instant)
            expire_us = now_us + limits.BRANCH_KEEP_MS * 1000 if branch.expire_us else 0
            put_branch(state, replace(branch, time_us=instant, expire_us=max(branch.expire_us, expire_us)))
        else:
            forget_branch(state, branch)


def refuse_unchecked(replayed: Sequence[Replayed], checked: frozenset[str]) -> None:
    """Refuses to change a table that has `merge.checks` which the client doesn't know of."""
    for part in replayed:
        meta = part.table.meta
        if part.count and not part.fails and meta.table_id not in checked:
            part.checks = parse_checks(text_property(meta.properties, MERGE_CHECKS))
            if part.checks:
                part.refusal = MetaError(ErrorKind.BLOCKED, "MERGE_CHECKS_NOT_RUN", table=meta.name)


def _drops(state: State, branch: Branch) -> list[Fork]:
    """The forks that were dropped on the branch."""
    dropped = [fork for fork in state.forks.values() if fork.is_dropped and not fork.is_merged]
    return [fork for fork in dropped if is_on(fork, branch)]
