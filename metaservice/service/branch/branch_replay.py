"""The changes of a branch on top of its parent's present, decided for all its tables; nothing is written.

A merge writes them to the parent. A refresh writes them to new forks of the parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from metaservice.core.clock import next_commit_time
from metaservice.core.commit.rebase import Author, commit_on_top
from metaservice.core.commit.transaction import NameOutcome, TableOutcome, Txn, TxnEvent, TxnTable, check_txn_age, end
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.retention.branch_marks import merged_cursor, merged_tag
from metaservice.core.retention.marks import Cursor, Tag
from metaservice.core.table.branches import Branch, off_branch, on_branch
from metaservice.core.table.meta import Alteration
from metaservice.core.table.model import Change, Operation, Principal, TableCommit
from metaservice.service.branch.branched_names import BranchedName, BranchedNames
from metaservice.service.branch.branches import check_childless, tables_on
from metaservice.service.branch.merge_turns import MergeTurns, TableTurns, line_of
from metaservice.service.branch.replay import ReadsUnder, Replay, Replayed
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.branch_marks import find_cursor, find_tag
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.forking import get_branch, is_on
from metaservice.service.decider.held_tables import HeldTables, Steps
from metaservice.service.decider.naming import check_free, find_view
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.branches import Fork


@dataclass(slots=True)
class MovedMarks:
    """The cursors that moved and the tags that were made on a fork, for its parent's table."""

    fork: TableState
    parent: TableState
    cursors: list[Cursor]
    tags: list[Tag]


@dataclass(slots=True)
class Merged:
    """What a merge or a refresh did, would do, or why it can't."""

    is_done: bool
    tables: list[Replayed] = field(default_factory=list)
    time_us: int = 0
    marks: list[MovedMarks] = field(default_factory=list)
    names: BranchedNames | None = None  # of views and namespaces; None: answered again
    done: tuple[NameOutcome, ...] = ()  # in their place then

    @property
    def named(self) -> list[BranchedName]:
        """The views and namespaces that the parent gets or loses."""
        return [] if self.names is None else self.names.to_come


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request for a merge or a refresh of the branch of that name."""

    txn_id: str
    name: str
    principal: Principal
    digest: bytes
    turns: MergeTurns = field(default_factory=MergeTurns, compare=False, kw_only=True)


class BranchReplay:
    """Decides what becomes of the commits of a branch. Runs on the decider's thread, in turns."""

    def __init__(
        self,
        decider: Decider,
        transactions: Transactions,
        clocks: Clocks,
        keep_ms: int,
        reads_under: ReadsUnder,
        *,
        is_merge: bool,
    ) -> None:
        self._decider = decider
        self._transactions = transactions
        self._clocks = clocks
        self._keep_ms = keep_ms
        self._reads_under = reads_under
        self._is_merge = is_merge

    @property
    def _state(self) -> State:
        return self._decider.state

    def begin(self, request: ReplayRequest, message: str) -> tuple[Branch, list[TableState], Txn]:
        """The branch, its tables, and a new transaction over them."""
        state, now_us = self._state, self._clocks.now_us()
        check_txn_age(request.txn_id, now_us // 1000, self._keep_ms, state.forgotten_ms)
        self._transactions.check_room()
        branch = get_branch(state, request.name)
        check_childless(state, branch)
        txn = Txn(request.txn_id, {}, request.principal, f"{message}{branch.name}", {}, now_us, request.digest)
        return branch, tables_on(state, branch), txn

    def hold(self, request: ReplayRequest, tables: Iterable[TableState], steps: Steps[Merged]) -> Merged:
        """Begins with what was decided, and changes these tables. `go_on` is the following turns."""
        request.turns.held = HeldTables(self._state, {table.meta.table_id for table in tables}, steps)
        return self.go_on(request, request.turns.held)

    def go_on(self, request: ReplayRequest, held: HeldTables[Merged]) -> Merged:
        merged = held.go_on()
        request.turns.held = None  # a repeat finds what is done
        return merged

    def find_done(self, txn_id: str, digest: bytes) -> Merged | None:
        """The answer to a repeat of what is done. Tables that were dropped since are left out."""
        txn = self._state.find_txn(txn_id)
        if txn is None:
            return None
        if txn.begin_digest != digest:
            raise invalid("TRANSACTION_ID_REUSED", txn_id=txn_id)
        merged = Merged(is_done=True, time_us=txn.commit_time_us, done=txn.names)
        for table_id in dict.fromkeys(outcome.table_id for outcome in txn.outcomes):
            done = tuple(outcome for outcome in txn.outcomes if outcome.table_id == table_id)
            table = self._state.tables.get(table_id)
            if table is not None:
                is_forward = not any(outcome.rebased_over for outcome in done)  # a replay passes the parent's commits
                merged.tables.append(Replayed(table, table.meta.name, is_forward=is_forward, done=done))
        merged.tables.sort(key=lambda part: part.name)
        return merged

    def decide(self, branch: Branch, tables: Sequence[TableState], txn: Txn, turns: MergeTurns) -> Merged:
        """The commits of all tables with the transaction as their author, or why there are none.

        Raises ContinueNextGroup while there is much to judge.
        """
        state = self._state
        self._check_closed(branch, tables)
        state.flush()
        pairs = [(table, self.parent_of(table.fork)) for table in tables]
        turns.go_on(
            state,
            [table for table, parent in pairs if parent is not None and has_commits(table)],
            lambda table: self._turns_of(branch, table, txn),
        )
        parents = [parent for _, parent in pairs if parent is not None]
        last_us = max([table.last_time_us for table in (*parents, *tables)], default=0)
        time_us = txn.begin_us = next_commit_time(self._clocks.now_us(), last_us, state.answered_us)
        names = BranchedNames(state, branch)
        freed = {parent.meta.table_id for parent in map(self.parent_of, self.drops(branch)) if parent is not None}
        replayed: list[Replayed] = []
        marks: list[MovedMarks] = []
        for table, parent in pairs:
            if table.fork is None:
                replayed.append(self._new_table(names, branch, table, freed, txn, time_us))
            elif table.head == table.fork.version:
                part = None if parent is None else self._unchanged(table, parent, marks)
                replayed += [part] if part is not None and part.fails else []
            elif parent is None:
                refusal = MetaError(ErrorKind.BLOCKED, "MERGE_PARENT_DROPPED", table=table.meta.name)
                replayed.append(Replayed(table, off_branch(table.meta.name), refusal=refusal))
            else:
                part = turns.find(table, time_us) or self._replay(table, txn).run(branch.name, time_us)
                self._move_marks(table, part, marks)
                replayed.append(part)
        for fork in self.drops(branch):
            parent = self.parent_of(fork)
            if parent is not None and parent.head != fork.version:
                refusal = MetaError(
                    ErrorKind.BLOCKED, "MERGE_NEEDS_UNCHANGED_PARENT", table=parent.meta.name, operation="drop"
                )
                replayed.append(Replayed(parent, parent.meta.name, refusal=refusal))
        replayed.sort(key=lambda part: part.name)
        names.check(freed)
        fails = any(part.fails for part in replayed) or any(named.refusal is not None for named in names.to_come)
        return Merged(not fails, replayed, time_us, marks, names)

    def _replay(self, table: TableState, txn: Txn) -> Replay:
        parent = self.parent_of(table.fork)
        if parent is None:
            raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", table_id=table.meta.table_id)
        return Replay(self._state, table, parent, self._reads_under, txn, is_merge=self._is_merge)

    def _turns_of(self, branch: Branch, table: TableState, txn: Txn) -> TableTurns:
        replay = self._replay(table, txn)
        return TableTurns(line_of(self._state, table), replay, replay.steps(branch.name, txn.begin_us))

    def _unchanged(self, table: TableState, parent: TableState, marks: list[MovedMarks]) -> Replayed:
        """A fork without commits: its cursors may have moved."""
        part = Replayed(parent, parent.meta.name)
        part.is_forward = table.fork is not None and table.fork.version == parent.head
        self._move_marks(table, part, marks)
        return part

    def _move_marks(self, table: TableState, part: Replayed, marks: list[MovedMarks]) -> None:
        """Adds what becomes of the fork's tags and cursors, or notes why it can't be."""
        state, fork_id, parent_id = self._state, table.meta.table_id, part.table.meta.table_id
        if part.fails or not state.marks.has_any(fork_id):
            return
        cursors, tags = state.marks.own_cursors(fork_id), state.marks.names_of_tags(fork_id)
        if table.fork is None or not (cursors or tags):
            return
        base, is_forward = table.fork.version, part.is_forward
        moved = MovedMarks(table, part.table, [], [])
        try:
            for cursor in cursors:
                if merged_cursor(cursor, find_cursor(state, parent_id, cursor.name), base, is_forward=is_forward):
                    moved.cursors.append(cursor)
            for name in tags:
                tag = state.marks.tags[fork_id, name]
                if merged_tag(tag, find_tag(state, parent_id, name), base, is_forward=is_forward):
                    moved.tags.append(tag)
        except MetaError as refusal:
            part.refusal = refusal
            part.commits.clear()
        if moved.cursors or moved.tags:
            marks.append(moved)

    def _check_closed(self, branch: Branch, tables: Sequence[TableState]) -> None:
        on_it = {table.meta.table_id for table in tables}
        busy = [txn.txn_id for txn in self._state.open.values() if not on_it.isdisjoint(txn.tables)]
        if busy:
            raise MetaError(ErrorKind.BLOCKED, "BRANCH_IN_USE", branch=branch.name, open=len(busy), txn_id=min(busy))

    def parent_of(self, fork: Fork | None) -> TableState | None:
        """The table that a fork is of, unless it was dropped."""
        return None if fork is None else self._state.tables.get(keys.uuid_text(fork.base))

    def drops(self, branch: Branch) -> list[Fork]:
        """The forks that were dropped on the branch."""
        return [fork for fork in self._state.forks.dropped_on(branch.name) if is_on(fork, branch)]

    def _new_table(
        self, names: BranchedNames, branch: Branch, table: TableState, freed: set[str], txn: Txn, time_us: int
    ) -> Replayed:
        """A table that was made on the branch gets its name in the parent, by an ALTER. `freed` tables go with it."""
        name = on_branch(off_branch(table.meta.name), branch.parent)
        merged = Replayed(table, name, is_forward=True)
        try:
            name = merged.name = on_branch(names.placed(off_branch(name)), branch.parent)
            holder, view = self._state.names.find(name), find_view(self._state, name)
            lost = view.name if view is not None and view.name in names.dropped_views() else ""
            check_free(self._state, name, holder if holder in freed else table.meta.table_id, view=lost)
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

    def end(self, txn: Txn, commits: Sequence[TableCommit], named: Sequence[BranchedName], time_us: int) -> None:
        """Ends the transaction with what was written."""
        txn.names = tuple(NameOutcome(name.kind, name.name, name.change) for name in named)
        txn.outcomes = tuple(
            TableOutcome(commit.change.table_id, commit.version, commit.change.logical, commit.rebased_over)
            for commit in commits
        )
        txn.tables = {part.table_id: TxnTable(part.table_id, Operation.CUSTOM, 0, 0) for part in txn.outcomes}
        txn.commit_time_us = time_us
        end(txn, TxnEvent.WIN, time_us)
        self._state.txns.put(txn)


def has_commits(table: TableState) -> bool:
    """Whether something was committed to a fork."""
    return table.fork is not None and table.head > table.fork.version
