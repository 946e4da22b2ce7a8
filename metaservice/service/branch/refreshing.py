"""Refresh: the fork point of a branch becomes now, and what was committed on it follows on top.

Each table with commits on the branch gets a new fork, at the parent's newest version, with the commits that a merge
would give to the parent. The old forks go: their ids name nothing any more, so no version is taken for another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from metaservice.core.commit.transaction import Txn
from metaservice.core.table.branches import Branch, BranchEventKind, off_branch, on_branch
from metaservice.core.table.model import TableCommit
from metaservice.service.branch.branch_replay import BranchReplay, Merged, MovedMarks, ReplayRequest
from metaservice.service.branch.branches import instant_from, note_event, put_branch
from metaservice.service.branch.replay import ReadsUnder, Replayed, ended_fork
from metaservice.service.commit.dropping import EndingForks
from metaservice.service.commit.outcomes import Outcomes
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.branch_marks import end_marks, put_cursor, put_tag
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.forking import fork_id, make_fork
from metaservice.service.decider.held_tables import Steps
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import keys

MESSAGE = "refresh of the branch "


@dataclass(frozen=True, slots=True)
class RefreshRequest(ReplayRequest):
    """A request for a refresh."""

    validate_only: bool = False


class Refreshing:
    """The use case. Runs on the decider's thread: judged in turns, changed in turns, written whole."""

    def __init__(
        self, decider: Decider, transactions: Transactions, clocks: Clocks, keep_ms: int, reads_under: ReadsUnder
    ) -> None:
        self._decider = decider
        self._clocks = clocks
        self._replay = BranchReplay(decider, transactions, clocks, keep_ms, reads_under, is_merge=False)
        self._outcomes = Outcomes(decider, clocks)

    @property
    def _state(self) -> State:
        return self._decider.state

    def refresh(self, request: RefreshRequest) -> Merged:
        if request.turns.held is not None:
            return self._replay.go_on(request, request.turns.held)
        done = self._replay.find_done(request.txn_id, request.digest)
        if done is not None:
            for replayed in done.tables:
                replayed.name = self._name_in_parent(replayed.table)
            return done
        request.turns.resume(self._state)
        branch, tables, txn = self._replay.begin(request, MESSAGE)
        decided = self._replay.decide(branch, tables, txn, request.turns)
        made_on_it = {table.meta.table_id for table in tables if table.fork is None}
        forks = [part for part in decided.tables if part.fails or part.table.meta.table_id not in made_on_it]
        refreshed = replace(decided, tables=forks)
        if refreshed.is_done and not request.validate_only:
            parents = (self._replay.parent_of(table.fork) for table in tables)
            changed = (*tables, *filter(None, parents))
            return self._replay.hold(request, changed, self._steps(branch, tables, txn, refreshed))
        if not request.validate_only:
            self._decider.metrics.count_merge("refresh_refused")
        return refreshed

    def _name_in_parent(self, table: TableState) -> str:
        parent = self._replay.parent_of(table.fork)
        return off_branch(table.meta.name) if parent is None else parent.meta.name

    def _steps(self, branch: Branch, tables: Sequence[TableState], txn: Txn, refreshed: Merged) -> Steps[Merged]:
        """What the refresh changes, step by step; one batch."""
        yield len(tables)  # to decide took as long
        state, now_us = self._state, self._clocks.now_us()
        later = replace(branch, time_us=instant_from(state, refreshed.time_us, now_us))  # after others' commits, too
        by_parent = {part.table.raw_id: part for part in refreshed.tables}
        drops, ending = self._replay.drops(branch), EndingForks(state, txn.txn_id, now_us)
        given = {table.fork.base: table.next_row_id for table in tables if table.fork is not None}
        for table in tables:  # names are free before they are given again
            if table.fork is not None:
                successor = fork_id(later, table.fork.base)
                ending.end(ended_fork(table, table.fork, by_parent.get(table.fork.base), successor))
                end_marks(state, table.meta.table_id)
                yield 1
        ending.write()
        commits: list[TableCommit] = []
        for part in refreshed.tables:
            if part.commits:
                commits += self._fork_again(later, part, given[part.table.raw_id])
                yield 1 + len(part.commits)
        for moved in refreshed.marks:
            self._give_marks(later, moved)
        yield len(tables)  # the transaction's end takes as long
        self._replay.end(txn, commits, refreshed.named, refreshed.time_us)
        yield len(tables)  # and so does writing and publishing
        for dropped in drops:
            raw_id = fork_id(later, dropped.base)
            state.put_fork(replace(dropped, raw_id=raw_id, holds=(), is_gone=True))
            state.batch.put(keys.dropped_key(raw_id), keys.encode_version(max(now_us, state.newest_us)))
        if refreshed.names is not None:
            refreshed.names.forget_unchanged()
        put_branch(state, later)
        note_event(state, BranchEventKind.REFRESHED, later, later.time_us, txn.principal, txn.txn_id)
        self._decider.metrics.count_merge("refreshed")
        return refreshed

    def _give_marks(self, branch: Branch, moved: MovedMarks) -> None:
        """Puts the cursors that moved, and the tags, on the new fork."""
        state, parent = self._state, moved.parent
        table_id = keys.uuid_text(fork_id(branch, parent.raw_id))
        if table_id not in state.tables:  # nothing was committed to it
            name = on_branch(off_branch(parent.meta.name), branch.name)
            make_fork(state, parent, parent.head, table_id, name, branch.name)
        for cursor in moved.cursors:
            put_cursor(state, replace(cursor, table_id=table_id, request_id=""))
        for tag in moved.tags:
            put_tag(state, replace(tag, table_id=table_id))

    def _fork_again(self, branch: Branch, part: Replayed, next_row_id: int) -> list[TableCommit]:
        """A fork of the parent's newest version with the commits; the answer names it then."""
        state, parent = self._state, part.table
        name = on_branch(off_branch(parent.meta.name), branch.name)
        table_id = keys.uuid_text(fork_id(branch, parent.raw_id))
        table = make_fork(state, parent, parent.head, table_id, name, branch.name)
        table.next_row_id = max(table.next_row_id, next_row_id)
        state.row_ids_given.add(table_id)
        commits = []
        for commit, author, prepared in part.to_write():
            commit.change = replace(commit.change, table_id=table_id)
            if commit.meta is not None:
                commit.meta = replace(commit.meta, table_id=table_id, name=name)
            self._outcomes.write(author, commit, prepared)
            commits.append(commit)
        part.table = table
        return commits
