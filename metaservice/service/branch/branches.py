"""Branches: create, list, look at, extend, drop; and clones. Runs on the decider's thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final

from metaservice.core import limits, quotas
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.quotas import Quota
from metaservice.core.table.branches import (
    Branch,
    BranchEvent,
    BranchEventKind,
    branch_of,
    check_branch_name,
    off_branch,
)
from metaservice.core.table.model import Principal
from metaservice.service.branch.branched_names import BranchedName, BranchedNames
from metaservice.service.commit.transactions import Transactions
from metaservice.service.decider.branch_marks import end_marks
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.forking import get_branch, is_on, make_clone
from metaservice.service.decider.naming import check_free, table_name_in
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.service.decider.views import TableView
from metaservice.store import keys
from metaservice.store.records.branches import encode_branch

NOBODY: Final = Principal("", "")


@dataclass(frozen=True, slots=True)
class BranchRequest:
    """A request for a branch."""

    request_id: str
    name: str
    parent: str
    keep_ms: int
    comment: str
    principal: Principal
    digest: bytes
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BranchedTable:
    """A table of a branch, beside that of the parent."""

    name: str
    table_id: str
    parent_id: str
    base_version: int
    head: int
    parent_head: int | None
    is_dropped: bool = False

    @property
    def place(self) -> str:
        """Its place in a list."""
        return f"{self.name} {self.table_id}"


class Branches:
    """The use cases of branches and clones."""

    def __init__(
        self,
        decider: Decider,
        transactions: Transactions,
        clocks: Clocks,
        limits_of: Mapping[str, Quota] = quotas.DEFAULTS,
    ) -> None:
        self._decider = decider
        self._quotas = limits_of
        self._transactions = transactions
        self._clocks = clocks
        self._look_ms = 0

    @property
    def _state(self) -> State:
        return self._decider.state

    def create(self, request: BranchRequest) -> Branch:
        """A branch of everything as it is now; the same request again gets the same answer."""
        state = self._state
        same_named = state.branches.find(request.name)
        if same_named is not None:
            if same_named.branch_id == request.request_id and same_named.digest == request.digest:
                return same_named
            raise MetaError(ErrorKind.ALREADY_EXISTS, "BRANCH_EXISTS", branch=same_named.name)
        check_branch_name(request.name)
        self._transactions.check_room()
        parent = get_branch(state, request.parent) if request.parent else None
        state.usage.check(self._quotas, quotas.BRANCHES, request.principal.name)
        state.need("branches")
        now_us = self._clocks.now_us()
        branch = Branch(
            request.name,
            request.request_id,
            parent.name if parent is not None else "",
            instant_from(state, now_us),
            request.principal,
            request.comment,
            now_us + (request.keep_ms or limits.BRANCH_KEEP_MS) * 1000,
            request.digest,
            request.tables or (parent.tables if parent is not None else ()),
        )
        put_branch(state, branch)
        note_event(state, BranchEventKind.CREATED, branch, branch.time_us, branch.principal)
        return branch

    def list_all(self, after: str, count: int) -> list[Branch]:
        """Branches by name."""
        branches = self._state.branches
        return [branches[name] for name in nsmallest(count, (name for name in branches if name > after))]

    def get(self, name: str) -> tuple[Branch, list[BranchedTable], list[BranchedName]]:
        """A branch, its tables that were asked for, made or dropped there, and the views and namespaces it changed."""
        state = self._state
        branch = get_branch(state, name)
        tables = [self._table(table) for table in tables_on(state, branch)]
        for fork in state.forks.dropped_on(branch.name):
            if not fork.is_merged and is_on(fork, branch):
                base = state.tables.get(keys.uuid_text(fork.base))
                if base is not None:
                    name, base_id = off_branch(base.meta.name), base.meta.table_id
                    fork_id, version = keys.uuid_text(fork.raw_id), fork.version
                    tables.append(BranchedTable(name, fork_id, base_id, version, version, base.head, is_dropped=True))
        return branch, sorted(tables, key=lambda table: table.place), BranchedNames(state, branch).all

    def _table(self, table: TableState) -> BranchedTable:
        name, table_id, fork = off_branch(table.meta.name), table.meta.table_id, table.fork
        if fork is None:
            return BranchedTable(name, table_id, "", 0, table.head, None)
        base_id = keys.uuid_text(fork.base)
        base = self._state.tables.get(base_id)
        return BranchedTable(name, table_id, base_id, fork.version, table.head, None if base is None else base.head)

    def list_events(self, after: int, count: int) -> tuple[list[tuple[int, BranchEvent]], int]:
        """What happened to branches after an event, by number; and the number of the newest one."""
        state = self._state
        state.flush()
        book = state.branch_events
        return book.list_after(state.store.cursor(), after, count), book.newest

    def extend(self, name: str, keep_ms: int) -> Branch:
        """Sets the time at which a branch ends by itself."""
        branch = replace(get_branch(self._state, name), expire_us=self._clocks.now_us() + keep_ms * 1000)
        put_branch(self._state, branch)
        return branch

    def drop(self, name: str, who: Principal) -> tuple[bool, int]:
        """Drops a branch; returns whether there was one, and how many open transactions ended with it."""
        return self._end(name, BranchEventKind.DROPPED, who)

    def _end(self, name: str, kind: BranchEventKind, who: Principal) -> tuple[bool, int]:
        state = self._state
        branch = state.branches.find(name)
        if branch is None:
            return False, 0
        check_childless(state, branch)
        tables = tables_on(state, branch)
        forked = [table.meta.table_id for table in tables if table.fork is not None]
        ended = self._transactions.drop_tables(tables)
        for table_id in forked:
            end_marks(state, table_id)
        forget_branch(state, branch)
        note_event(state, kind, branch, self._clocks.now_us(), who)
        return True, ended

    def tick(self) -> None:
        """Drops branches whose time is over, one in each group; not while a transaction is open on it.

        Writes the records of some forks that have ended.
        """
        self._state.ended_forks.write_some(self._state.names, self._state.batch)
        if self._clocks.mono_ms() < self._look_ms:
            return
        state, now_us = self._state, self._clocks.now_us()
        expired = state.branches.first_over(now_us, self._is_idle)
        if expired is not None:
            self._end(expired.name, BranchEventKind.EXPIRED, NOBODY)
            return
        self._look_ms = self._clocks.mono_ms() + limits.BRANCH_LOOK_MS
        state.named_views.prune(state.batch)
        state.named_spaces.prune(state.batch)

    def _is_idle(self, branch: Branch) -> bool:
        state = self._state
        on_it = {table.meta.table_id for table in tables_on(state, branch)}
        is_used = any(not on_it.isdisjoint(txn.tables) for txn in state.open.values())
        return not is_used and not any(state.branches.children(branch.name))

    def clone(self, clone_id: str, table_id: str, version: int | None, name: str) -> TableView:
        """A table that begins as another one is at a version; the same request again gets the same answer."""
        state = self._state
        source = state.get_table(table_id)
        made = state.tables.get(clone_id)
        if made is not None:
            if made.fork is not None and made.fork.base == source.raw_id and not made.fork.branch:
                return made.view()
            raise MetaError(ErrorKind.ALREADY_EXISTS, "TABLE_ID_REUSED", table_id=clone_id)
        self._transactions.check_room()
        if state.is_dropped(keys.uuid_bytes(clone_id)):
            raise MetaError(ErrorKind.BLOCKED, "TABLE_DROPPED", table_id=clone_id)
        if branch_of(name):
            raise invalid("CLONE_ON_BRANCH", name=name)
        check_free(state, name)
        written = table_name_in(state, name)
        chosen = source.head if version is None else version
        if not 0 <= chosen <= source.head:
            raise invalid("VERSION_IN_FUTURE", version=chosen, head=source.head)
        state.check_retained(source, chosen)
        state.flush()
        instant = instant_from(state, self._clocks.now_us())
        state.newest_us = max(instant, state.answered_us) + 1  # after all branches so far
        return make_clone(state, source, chosen, clone_id, written, state.newest_us).view()


def tables_on(state: State, branch: Branch) -> list[TableState]:
    """The forks of a branch, and the tables that were made on it. Any thread."""
    ids = filter(None, map(state.names.get, state.names.on(branch.name)))
    return [table for table in map(state.tables.get, ids) if table is not None]


def instant_from(state: State, *times_us: int) -> int:
    """Return the latest of these times and that of the newest commit or name. No commit to come gets it."""
    fresh = [state.tables[table_id].last_time_us for table_id in state.changed if table_id in state.tables]
    names_us = state.named_views.newest_us, state.named_spaces.newest_us
    instant = max([*times_us, state.newest_us, *names_us, *fresh])
    state.note_answered(instant)
    return instant


def put_branch(state: State, branch: Branch) -> None:
    if branch.name not in state.branches:
        state.usage.branch(branch.principal.name)
    state.branches[branch.name] = branch
    state.batch.put(keys.branch_key(branch.name), encode_branch(branch))


def forget_branch(state: State, branch: Branch) -> None:
    state.named_views.forget(state.batch, branch)
    state.named_spaces.forget(state.batch, branch)
    state.usage.branch(branch.principal.name, -1)
    del state.branches[branch.name]
    state.batch.delete(keys.branch_key(branch.name))


def note_event(
    state: State,
    kind: BranchEventKind,
    branch: Branch,
    time_us: int,
    who: Principal,
    txn_id: str = "",
    *,
    kept: bool = False,
) -> None:
    """Notes what happened, in the batch that does it."""
    event = BranchEvent(kind, branch.name, branch.parent, time_us, who, branch.comment, txn_id, kept)
    state.branch_events.add(event, state.batch)


def check_childless(state: State, branch: Branch) -> None:
    for child in state.branches.children(branch.name):
        raise MetaError(ErrorKind.BLOCKED, "BRANCH_HAS_CHILDREN", branch=branch.name, child=child)
