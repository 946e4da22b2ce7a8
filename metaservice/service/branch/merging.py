"""Merge: what was committed on a branch becomes commits of its parent, in one transaction over all tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.branches import Branch, BranchEventKind
from metaservice.core.table.model import TableCommit
from metaservice.core.table.properties import MERGE_CHECKS, text_property
from metaservice.core.table.property_forms import parse_checks
from metaservice.service.branch.branch_replay import BranchReplay, Merged, MovedMarks, ReplayRequest
from metaservice.service.branch.branched_names import BranchedNames
from metaservice.service.branch.branches import forget_branch, instant_from, note_event, put_branch
from metaservice.service.branch.replay import ReadsUnder, ended_fork
from metaservice.service.commit.dropping import EndingForks
from metaservice.service.commit.outcomes import Outcomes
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.branch_marks import end_marks, find_cursor, put_cursor, put_tag
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.forking import fork_where_shown
from metaservice.service.decider.held_tables import Steps
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store.records.branches import Fork

MESSAGE = "merge of the branch "


@dataclass(frozen=True, slots=True)
class MergeRequest(ReplayRequest):
    """A request for a merge. `keep`: the branch stays, and the merge is its new fork point."""

    keep: bool = False
    validate_only: bool = False
    checked: frozenset[str] = frozenset()  # ids of tables whose checks the client has run


class Merging:
    """The use case. Runs on the decider's thread: judged in turns, changed in turns, written whole."""

    def __init__(
        self, decider: Decider, transactions: Transactions, clocks: Clocks, keep_ms: int, reads_under: ReadsUnder
    ) -> None:
        self._decider = decider
        self._transactions = transactions
        self._clocks = clocks
        self._replay = BranchReplay(decider, transactions, clocks, keep_ms, reads_under, is_merge=True)
        self._outcomes = Outcomes(decider, clocks)

    @property
    def _state(self) -> State:
        return self._decider.state

    def merge(self, request: MergeRequest) -> Merged:
        if request.turns.held is not None:
            return self._replay.go_on(request, request.turns.held)
        done = self._replay.find_done(request.txn_id, request.digest)
        if done is not None:
            return done
        request.turns.resume(self._state)
        branch, tables, txn = self._replay.begin(request, MESSAGE)
        merged = self._replay.decide(branch, tables, txn, request.turns)
        refuse_unchecked(merged, request.checked)
        if merged.is_done and not request.validate_only:
            return self._write(branch, tables, txn, merged, request)
        is_asked_again = any(part.checks for part in merged.tables)  # when the client has run them
        if not request.validate_only and not is_asked_again:
            self._decider.metrics.count_merge("merge_refused")
        return merged

    def _write(
        self, branch: Branch, tables: Sequence[TableState], txn: Txn, merged: Merged, request: MergeRequest
    ) -> Merged:
        """One batch."""
        drops = self._replay.drops(branch)
        lost = list(filter(None, map(self._replay.parent_of, drops)))
        for table in lost:
            fork_where_shown(self._state, table, but=branch.name)
        changed = (*lost, *tables, *(part.table for part in merged.tables))
        return self._replay.hold(request, changed, self._steps(branch, tables, drops, txn, merged, keep=request.keep))

    def _steps(
        self,
        branch: Branch,
        tables: Sequence[TableState],
        drops: Sequence[Fork],
        txn: Txn,
        merged: Merged,
        *,
        keep: bool,
    ) -> Steps[Merged]:
        """What the merge changes, step by step."""
        state = self._state
        yield len(tables)  # to decide took as long
        for fork in drops:  # their names are free before tables that were made on the branch get them
            parent = self._replay.parent_of(fork)
            if parent is not None:
                self._transactions.drop_table(parent)
        names, named = merged.names or BranchedNames(state, branch), merged.named
        names.drop_in_parent(merged.time_us)
        commits: list[TableCommit] = []
        for replayed in merged.tables:
            for commit, author, prepared in replayed.to_write():
                self._outcomes.write(author, commit, prepared)
                commits.append(commit)
                yield 1
        names.put_in_parent(merged.time_us)
        names.forget()
        for moved in merged.marks:
            self._give_marks(moved)
        now_us = self._clocks.now_us()
        yield from self._end_forks(tables, merged, txn, now_us)
        yield len(tables)  # the transaction's end takes as long
        self._replay.end(txn, commits, named, merged.time_us)
        yield len(tables)  # and so does writing and publishing
        if keep:
            instant = instant_from(state, merged.time_us, now_us)  # after other tables' commits, too
            expire_us = now_us + limits.BRANCH_KEEP_MS * 1000 if branch.expire_us else 0
            put_branch(state, replace(branch, time_us=instant, expire_us=max(branch.expire_us, expire_us)))
        else:
            forget_branch(state, branch)
        note_event(
            state, BranchEventKind.MERGED, branch, max(merged.time_us, now_us), txn.principal, txn.txn_id, kept=keep
        )
        self._decider.metrics.count_merge("merged")
        return merged

    def _end_forks(self, tables: Sequence[TableState], merged: Merged, txn: Txn, now_us: int) -> Iterator[int]:
        """The parent's tables have what the forks had."""
        state, ending = self._state, EndingForks(self._state, txn.txn_id, now_us)
        by_parent = {replayed.table.raw_id: replayed for replayed in merged.tables}
        for table in tables:
            fork = table.fork
            if fork is None:
                continue
            part = by_parent.get(fork.base)
            parent = part.table if part is not None else self._replay.parent_of(fork)
            if parent is not None and table.next_row_id > parent.next_row_id:  # the branch gave ids to rows
                parent.next_row_id = table.next_row_id
                state.row_ids_given.add(parent.meta.table_id)
            made = None if part is None else part.ended
            if made is None or made.before is not fork:
                made = ended_fork(table, fork, part, fork.base)
            end_marks(state, table.meta.table_id)
            ending.end(made)
            yield 1
        ending.write()

    def _give_marks(self, moved: MovedMarks) -> None:
        """Moves the parent's cursors to where those of the fork are, and makes what it lacks."""
        state, table_id = self._state, moved.parent.meta.table_id
        for cursor in moved.cursors:
            theirs = find_cursor(state, table_id, cursor.name) or replace(cursor, inherited=-1, holds="")
            used_us = max(theirs.used_us, cursor.used_us)
            after = replace(theirs, table_id=table_id, version=cursor.version, used_us=used_us, request_id="")
            put_cursor(state, after)
        for tag in moved.tags:
            put_tag(state, replace(tag, table_id=table_id))


def refuse_unchecked(merged: Merged, checked: frozenset[str]) -> None:
    """Refuses to change a table that has `merge.checks` which the client doesn't know of."""
    for part in merged.tables:
        meta = part.table.meta
        if MERGE_CHECKS in meta.properties and part.count and not part.fails and meta.table_id not in checked:
            part.checks = parse_checks(text_property(meta.properties, MERGE_CHECKS))
            if part.checks:
                part.refusal = MetaError(ErrorKind.BLOCKED, "MERGE_CHECKS_NOT_RUN", table=meta.name)
                merged.is_done = False
