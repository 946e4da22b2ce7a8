"""The commits of a fork as commits of its parent: appended as they are, or judged and rebased one by one.

    the parent is as the fork found it     the fork's commits follow it as they are, compactions too
    the parent has moved                   each logical commit is judged against the parent's commits since, as a
                                           transaction that read the fork's base; the fork's earlier commits are
                                           what it read, not its winners. Compactions are left out.

Nothing is written: the answer are the parent's next commits, or why there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from metaservice.core.commit.change_checks import check
from metaservice.core.commit.judge import judge
from metaservice.core.commit.rebase import Author, commit_on_top
from metaservice.core.commit.transaction import TableOutcome, Txn
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import (
    COMPACTIONS,
    Advice,
    Change,
    CommitSummary,
    Conflict,
    Entry,
    Footprint,
    Live,
    Operation,
    Read,
    Ref,
    TableCommit,
)
from metaservice.service.branch.ahead import RESTORED, Ahead
from metaservice.service.branch.replayed_columns import ReplayedColumns
from metaservice.service.commit.outcomes import PreparedCommit, put_entries
from metaservice.service.decider.ended_forks import EndedFork
from metaservice.service.decider.forking import meta_at
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.port import Batch
from metaservice.store.records.branches import EndedRecord, Fork, decode_declared, encode_fork
from metaservice.store.records.commits import encode_commit
from metaservice.store.records.row_facts import load_rows
from metaservice.store.records.tables import added_chunks, added_of, decode_commit, decode_table

# The wire's messages, under the definition that a table had, as reads of one under another.
ReadsUnder = Callable[[Sequence[bytes], TableMeta, TableMeta], tuple[Read, ...]]
CHECKED_ONCE = frozenset({Operation.ALTER, Operation.RESTORE})  # when they were made; here they have other forms
ON_CONFLICT = "write.on_conflict"
COST_OF_A_TABLE, COST_OF_A_COMMIT, COST_OF_A_RECORD = 1_500, 600, 200  # in comparisons that take as long
BRANCH, BRANCH_VERSION = "laketx.branch", "laketx.branch.version"


@dataclass(slots=True)
class Logged:
    """A commit of a fork as the log has it."""

    summary: CommitSummary
    added: list[Live]

    @property
    def version(self) -> int:
        return self.summary.footprint.version

    @property
    def operation(self) -> Operation:
        return self.summary.footprint.operation


@dataclass(slots=True)
class Replayed:
    """What a merge does to one table of the parent, or why it can't."""

    table: TableState  # the parent's; of a table made on the branch that table
    name: str
    commits: list[tuple[TableCommit, Txn]] = field(default_factory=list)
    is_forward: bool = False
    left_out: tuple[int, ...] = ()
    conflict: Conflict | None = None
    refusal: MetaError | None = None
    branch_version: int = 0
    checks: tuple[str, ...] = ()  # that the client has to run first
    done: tuple[TableOutcome, ...] = ()  # in place of the commits, where the merge is answered again
    prepared: list[PreparedCommit] = field(default_factory=list)  # the commits, as far as that is done
    ended: EndedFork | None = None  # what the fork becomes, if that is done

    @property
    def count(self) -> int:
        """The commits that the parent's table gets."""
        return len(self.done or self.commits)

    @property
    def version(self) -> int:
        """The last of them; the newest one there is if it gets none."""
        if self.done:
            return self.done[-1].version
        return self.commits[-1][0].version if self.commits else self.table.head

    @property
    def fails(self) -> bool:
        return self.conflict is not None or self.refusal is not None

    def at(self, time_us: int) -> Replayed:
        """The same, with the time at which it is written."""
        for commit, author in self.commits:
            commit.time_us = commit.footprint.time_us = author.begin_us = time_us
        return self

    def to_write(self) -> Iterable[tuple[TableCommit, Txn, PreparedCommit | None]]:
        """The commits with their authors."""
        for (commit, author), prepared in zip_longest(self.commits, self.prepared):
            yield commit, author, prepared


class Replay:
    """The commits of one fork on top of its parent."""

    def __init__(
        self,
        state: State,
        fork: TableState,
        parent: TableState,
        reads_under: ReadsUnder,
        author: Txn,
        *,
        is_merge: bool,
    ) -> None:
        """`is_merge`: it is the parent that gets the commits; else a new fork does, whose id nobody knows yet."""
        if fork.fork is None:
            raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", table_id=fork.meta.table_id)
        self._state = state
        self._fork = fork
        self._parent = parent
        self._base = fork.fork.version
        self._reads_under = reads_under
        self._merge = author
        self._is_merge = is_merge
        self._meta = fork.meta  # the fork's, before the commit that is looked at
        self.done = Replayed(parent, parent.meta.name)

    def run(self, branch: str, time_us: int) -> Replayed:
        for _ in self.steps(branch, time_us):
            pass
        return self.done

    def steps(self, branch: str, time_us: int) -> Iterator[int]:
        """Decides the commits one by one: `done` has the result at the end. Yields what each step cost, in comparisons.

        Between two steps neither the fork nor its parent may change.
        """
        replayed = self.done
        replayed.is_forward = self._parent.head == self._base
        yield COST_OF_A_TABLE
        try:
            yield from self._forward(branch, time_us) if replayed.is_forward else self._judge(branch, time_us)
        except MetaError as refusal:
            replayed.refusal = refusal
        if replayed.fails:
            replayed.commits.clear()
        for commit, author in replayed.commits:
            encoded, index = encode_commit(commit, author, timed=False), None
            if self._is_merge:
                put_entries(index := Batch(), self._parent, commit, encoded[1])
            replayed.prepared.append(PreparedCommit(encoded, index))
            yield COST_OF_A_RECORD
        fork = self._fork.fork
        if self._is_merge and fork is not None and not replayed.fails:
            replayed.ended = ended_fork(self._fork, fork, replayed, fork.base)

    def _forward(self, branch: str, time_us: int) -> Iterator[int]:
        for logged in self._logged():
            self.done.commits.append((self._as_it_is(logged, time_us), self._author(logged, branch)))
            yield COST_OF_A_COMMIT

    def _logged(self) -> Iterable[Logged]:
        self._state.flush()
        self._meta = meta_at(self._state, self._fork, self._base)
        for version in range(self._base + 1, self._fork.head + 1):
            self.done.branch_version = version
            logged = load_commit(self._state, self._fork, version)
            yield logged
            if logged.summary.footprint.altered:
                self._meta = meta_at(self._state, self._fork, version)

    def _author(self, logged: Logged, branch: str) -> Txn:
        """The transaction of the merge, as the author of this commit: each keeps its message and its principal."""
        origin = {BRANCH: branch, BRANCH_VERSION: str(logged.version)}
        return replace(
            self._merge,
            principal=logged.summary.footprint.principal,
            message=logged.summary.message,
            properties={**logged.summary.properties, **origin},
            outcomes=(),
        )

    def _as_it_is(self, logged: Logged, time_us: int) -> TableCommit:
        """The same commit: the parent has the same entries, and gives the same versions."""
        summary, table_id = logged.summary, self._parent.meta.table_id
        footprint = replace(summary.footprint, time_us=time_us, txn_id=self._merge.txn_id)
        change = self._declared(logged, self._meta)
        fill_inlined(self._state, self._fork, [live.entry for live in logged.added])
        change.adds = [live.entry for live in logged.added]
        change.changes_data = summary.logical
        snapshots = self._state.snapshots(self._fork)
        removed = []
        for gone in footprint.removed:
            live = snapshots.find(logged.version - 1, gone.partition, gone.bucket, gone.path)
            if live is None:
                raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=logged.version, path=gone.path)
            removed.append(live)
        meta = None
        if footprint.altered:
            raw = self._state.records.get(keys.table_key(self._fork.raw_id, logged.version))
            if raw is None:
                raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=logged.version)
            parent = self._parent.meta
            meta = replace(decode_table(raw), table_id=table_id, name=parent.name, digest=parent.digest)
        return TableCommit(logged.version, time_us, change, 0, footprint, logged.added, removed, meta)

    def _declared(self, logged: Logged, onto: TableMeta) -> Change:
        """What the commit declared, as a change of the parent, defined so, that read the fork's base."""
        table_id, raw_id, before = self._parent.meta.table_id, self._fork.raw_id, self._meta
        raw = self._state.store.get(keys.declared_key(raw_id, logged.version))

        def reads_of(messages: Sequence[bytes]) -> tuple[Read, ...]:
            return self._reads_under(messages, before, onto)

        change = decode_declared(raw or b"", table_id, logged.operation, self._base, reads_of)
        rows = load_rows(self._state.records.cursor(), raw_id, logged.version, 2**31)
        change.key_sets = tuple(rows[1]) if rows is not None else ()
        if logged.operation is Operation.CUSTOM:
            change.changes_data = logged.summary.logical
            change.removes = tuple(
                Ref(gone.path, gone.partition, gone.bucket, gone.data_change)
                for gone in logged.summary.footprint.removed
                if not gone.is_delete_set
            )
        return change

    def _judge(self, branch: str, time_us: int) -> Iterator[int]:
        parent, base, replayed = self._parent, self._base, self.done
        head = parent.head
        columns = ReplayedColumns(self._state, self._fork, parent, base)
        winners: list[Footprint] = []
        yield from self._load_winners(winners, columns)
        ahead = self._ahead()
        meta = parent.meta
        rewritten: set[str] = set()  # outputs of the fork's own compactions: the parent has none of them
        left_out: list[int] = []
        for logged in self._logged():
            yield COST_OF_A_COMMIT + len(winners)
            footprint = logged.summary.footprint
            if logged.operation in COMPACTIONS:
                rewritten |= {path for group in footprint.groups for path in group.outputs}
                left_out.append(logged.version)
                continue
            change = self._declared(logged, meta)
            if logged.operation is Operation.CUSTOM and not change.changes_data:
                raise _no_replay(logged, meta)  # what it read is not kept
            if footprint.altered:
                change.alteration = columns.alteration(logged.version, meta)
            if change.app_versions and self._has(change, replayed.commits):
                left_out.append(logged.version)
                continue
            change.adds = [replace(live.entry) for live in logged.added if logged.operation is not Operation.RESTORE]
            if not all(columns.place(entry, ahead.payloads) for entry in change.adds):
                raise _no_replay(logged, meta)
            named = {ref.path for ref in change.removes}.union(*(entry.touches for entry in change.adds))
            if not rewritten.isdisjoint(named):
                raise _no_replay(logged, meta)
            ahead.read_version, ahead.compacts = logged.version - 1, change.scope is None
            restored = self._restore(change, logged, winners, ahead)
            author = Author(self._merge.txn_id, footprint.principal)
            if logged.operation not in CHECKED_ONCE:
                check(change, meta, ahead)
            conflict = judge(change, meta, winners, ahead)
            decision: TableCommit | Conflict
            if conflict is not None and not self._resubmits(conflict):
                decision = conflict
            else:
                decision = commit_on_top(change, meta, (), ahead, author, head + len(replayed.commits), time_us)
            if isinstance(decision, Conflict):
                replayed.conflict = decision
                return
            decision.rebased_over, change.restore_version = len(winners), restored
            fill_inlined(self._state, self._fork, change.adds)
            ahead.then(decision)
            meta = decision.meta or meta
            replayed.commits.append((decision, self._author(logged, branch)))
        replayed.left_out = tuple(left_out)

    def _ahead(self) -> Ahead:
        snapshots = self._state.snapshots
        return Ahead(snapshots(self._parent), snapshots(self._fork), self._base, self._parent.head)

    def _restore(self, change: Change, logged: Logged, winners: Sequence[Footprint], ahead: Ahead) -> int:
        """Shows `ahead` what a RESTORE brings back; returns the parent's version that has it.

        It is refused where the parent has changed rows since: the RESTORE would take them back, too.
        """
        version, scope = change.restore_version, change.scope
        if logged.operation is not Operation.RESTORE or scope is None:
            return version
        for winner in winners:
            if winner.changes_rows and any(scope.touches(partition) for partition in winner.partitions):
                raise _no_replay(logged, self._parent.meta, parent_version=winner.version)
        change.restore_version = RESTORED
        if version <= self._base:
            ahead.restored = list(self._state.snapshots(self._parent).live(version))
            return version
        then, count = self._ahead(), 0
        for commit, author in self.done.commits:
            if int(author.properties[BRANCH_VERSION]) <= version:
                then.then(commit)
                count += 1
        ahead.restored = list(then.live(self._parent.head + 1))
        return self._parent.head + count

    def _load_winners(self, winners: list[Footprint], columns: ReplayedColumns) -> Iterator[int]:
        parent = self._parent
        for version in range(self._base + 1, parent.head + 1):
            if version not in parent.footprints:
                yield COST_OF_A_RECORD
            winners.append(columns.as_judged(self._state.winner(parent, version)))

    def _resubmits(self, conflict: Conflict) -> bool:
        """Whether the commit goes on, as writers of blind INSERTs do after a lost race unless the table says no."""
        return conflict.advice is Advice.RESUBMIT and self._parent.meta.properties.get(ON_CONFLICT) != "fail"

    def _has(self, change: Change, before: Sequence[tuple[TableCommit, Txn]]) -> bool:
        """Whether the parent, or an earlier commit of this merge, has the versions of applications."""
        given = {app_id: version for commit, _ in before for app_id, version in commit.change.app_versions}
        for app_id, version in change.app_versions:
            raw = self._state.app_version(self._parent.meta.table_id, app_id)
            newest = max(given.get(app_id, -1), -1 if raw is None else keys.decode_version(raw))
            if newest < version:
                return False
        return True


def ended_fork(table: TableState, fork: Fork, part: Replayed | None, successor: bytes) -> EndedFork:
    """What becomes of a fork, and the record of that."""
    after = succeeded(fork, part, successor)
    return EndedFork(fork, after, EndedRecord(table.raw_id, table.meta.name, encode_fork(after)))


def succeeded(fork: Fork, part: Replayed | None, successor: bytes) -> Fork:
    """A fork that goes, and what table has its commits now."""
    versions, left_out = fork.successor_versions, () if part is None else part.left_out
    if part is not None and part.commits:
        versions = part.commits[0][0].version, part.commits[-1][0].version
    else:
        successor = fork.successor
    return replace(
        fork,
        is_dropped=True,
        is_merged=True,
        left_out=left_out,
        successor=successor,
        successor_versions=versions,
    )


def fill_inlined(state: State, fork: TableState, entries: Iterable[Entry]) -> None:
    """Gives inlined files their rows, for another table to keep."""
    for entry in entries:
        if entry.inlined:
            content = state.records.get(keys.inlined_key(fork.raw_id, entry.path))
            if content is None:
                raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", path=entry.path)
            entry.content = content


def load_commit(state: State, table: TableState, version: int) -> Logged:
    """A commit with the entries that it added."""
    cursor = state.records.cursor()
    raw = cursor.get(keys.commit_key(table.raw_id, version))
    if raw is None:
        raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version)
    chunks = []
    for number in range(added_chunks(raw)):
        chunk = cursor.get(keys.chunk_key(table.raw_id, version, number))
        if chunk is None:
            raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version, chunk=number)
        chunks.append(chunk)
    return Logged(decode_commit(raw, chunks), added_of(raw, chunks))


def _no_replay(logged: Logged, meta: TableMeta, **facts: object) -> MetaError:
    operation = logged.operation.name.lower()
    return MetaError(ErrorKind.BLOCKED, "MERGE_NEEDS_UNCHANGED_PARENT", table=meta.name, operation=operation, **facts)
