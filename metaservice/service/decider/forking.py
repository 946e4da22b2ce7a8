"""Forks: made when a table is first asked for on a branch, or cloned. One record each; nothing is copied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.branches import Branch, branch_of, off_branch, on_branch, unknown_branch
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Idle
from metaservice.core.table.staged_names import is_unborn
from metaservice.core.table.view_definition import without_definition
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.branches import Fork
from metaservice.store.records.tables import decode_commit, decode_table

ID_BYTES = 16


def get_branch(state: State, name: str) -> Branch:
    branch = state.branches.find(name)
    if branch is None:
        raise unknown_branch(name)
    return branch


def find_table(state: State, name: str) -> TableState | None:
    """A table by its name, which may say a branch: then it is forked if nobody has asked for it there before."""
    table_id = state.names.find(name)
    if table_id is not None:
        return state.tables[table_id]
    if not branch_of(name):
        return None
    branch = get_branch(state, branch_of(name))
    branch.check_has(name)
    base = find_table(state, on_branch(off_branch(name), branch.parent))
    if base is None or _is_dropped_on(state, base, branch):
        return None
    written = on_branch(off_branch(base.meta.name), branch.name)
    if written in state.names:
        return state.tables[state.names[written]]
    if keys.uuid_text(fork_id(branch, base.raw_id)) in state.tables:  # under the name that it had
        return None
    state.flush()
    version = _shown_version(state, base, branch)
    if version is None:
        return None
    if branch.tables:  # a table that was renamed since was not held under its earlier name
        state.check_retained(base, version)
    return make_fork(state, base, version, keys.uuid_text(fork_id(branch, base.raw_id)), written, branch.name)


def fork_where_shown(state: State, table: TableState, but: str = "") -> None:
    """Forks a table on the branches that show it, but for one, before it loses its name: they find it under that."""
    name = table.meta.name
    if is_unborn(name):
        return
    state.flush()  # once: a fork adds nothing to the records of its base
    looks: dict[int, Base] = {}  # many branches may show one version
    for child in state.branches.children(branch_of(name)):
        branch = state.branches[child]
        raw_id = fork_id(branch, table.raw_id)
        if child == but or raw_id in state.forks or not branch.has(off_branch(name)):
            continue
        version = _version_at(state, table, branch.time_us)
        if version is None:
            continue
        base = looks.get(version) or looks.setdefault(version, base_at(state, table, version))
        if base.is_named(name):
            put_fork(state, base, keys.uuid_text(raw_id), on_branch(off_branch(name), child), child)


def _shown_version(state: State, table: TableState, branch: Branch) -> int | None:
    """The version that a branch shows of its parent's table; None: it was not there, or under another name.

    One that was made on another branch is older than the merge that gave it its name.
    """
    version = _version_at(state, table, branch.time_us)
    if version is None or meta_at(state, table, version).name.lower() != table.meta.name.lower():
        return None
    return version


def _version_at(state: State, table: TableState, time_us: int) -> int | None:
    if not is_there(state, table.raw_id, table.fork, time_us):
        return None
    return table.head if time_us >= table.last_time_us else version_at(state, table, time_us)


def is_there(state: State, raw_id: bytes, fork: Fork | None, time_us: int) -> bool:
    """Whether a table was there at the instant of a branch that has no fork of it.

    A drop makes a fork on each branch that shows the table. So one without a fork that is older than the return of the
    table was made before the table, or while it was dropped.
    """
    return time_us >= state.undropped.get(raw_id, 0) and (fork is None or fork.is_there(time_us))


def version_at(state: State, table: TableState, time_us: int) -> int | None:
    """The version that was current at an instant. Earlier decisions have been flushed."""
    start, end = keys.times_prefix(table.raw_id), keys.time_key(table.raw_id, time_us + 1)
    last = next(iter(state.records.cursor().scan_back(start, end)), None)
    return None if last is None else keys.decode_version(last[1])


def make_fork(state: State, base: TableState, version: int, table_id: str, name: str, branch: str) -> TableState:
    """A table that has everything of another one up to a version. Earlier decisions have been flushed."""
    return put_fork(state, base_at(state, base, version), table_id, name, branch)


def make_clone(state: State, base: TableState, version: int, table_id: str, name: str, time_us: int) -> TableState:
    """The same, made at that time as a table of its own."""
    return put_fork(state, base_at(state, base, version), table_id, name, "", time_us)


@dataclass(frozen=True, slots=True)
class Base:
    """A table at a version, for forks that begin there."""

    table: TableState
    version: int
    meta: TableMeta
    time_us: int
    idle: Idle | None

    def is_named(self, name: str) -> bool:
        """Whether it had that name then."""
        return self.meta.name.lower() == name.lower()


def base_at(state: State, table: TableState, version: int) -> Base:
    cursor = state.records.cursor()
    commit = cursor.get(keys.commit_key(table.raw_id, version))
    if commit is None:
        raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version)
    raw_idle = cursor.get(keys.idle_key(table.raw_id, version))
    idle = None if raw_idle is None else Idle(version, keys.decode_version(raw_idle))
    return Base(table, version, meta_at(state, table, version), decode_commit(commit).footprint.time_us, idle)


def put_fork(state: State, begin: Base, table_id: str, name: str, branch: str, made_us: int = 0) -> TableState:
    """A fork of a table at a version; without a branch, a clone."""
    if len(state.tables) >= limits.TABLES_MAX:
        raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_TABLES", most=limits.TABLES_MAX)
    state.need("branches")
    base, version, raw_id = begin.table, begin.version, keys.uuid_bytes(table_id)
    meta = replace(begin.meta, table_id=table_id, name=name, digest="")
    if not branch:  # a clone of a materialized view is a table of its own
        meta = replace(meta, properties=without_definition(meta.properties))
    root = state.home_of(base.raw_id)
    fork = Fork(raw_id, base.raw_id, version, begin.time_us, meta.schema_version, root, branch, made_us=made_us)
    table = TableState(raw_id, meta, version, begin.time_us, fork=fork)
    source = state.tables.get(keys.uuid_text(root), base)
    table.next_row_id = max(source.next_row_id, base.next_row_id)
    table.last_metadata_version, table.oldest, table.trimmed = version, min(version, base.oldest), None
    if begin.idle is not None:
        table.idle = begin.idle
    state.tables[table_id], state.names[name] = table, table_id
    state.put_fork(fork)
    state.batch.put(keys.name_key(name), raw_id)
    state.batch.put(keys.row_id_key(raw_id), keys.encode_version(table.next_row_id))
    state.put_meta(table, meta, version)
    state.changed.add(table_id)
    return table


def meta_at(state: State, table: TableState, version: int) -> TableMeta:
    """The definition of a table at a version. Earlier decisions have been flushed."""
    start, end = keys.table_key(table.raw_id, 0), keys.table_key(table.raw_id, version + 1)
    for _, raw in state.records.cursor().scan_back(start, end):
        return decode_table(raw)
    raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version)


def _is_dropped_on(state: State, base: TableState, branch: Branch) -> bool:
    fork = state.forks.get(fork_id(branch, base.raw_id))
    return fork is not None and fork.is_dropped


def is_on(fork: Fork, branch: Branch) -> bool:
    """Whether a fork is of this branch: another branch may have had its name."""
    return fork.branch == branch.name and fork.raw_id == fork_id(branch, fork.base)


def fork_id(branch: Branch, base: bytes) -> bytes:
    """The id of a fork: the same for a table on a branch, until the branch gets a new fork point."""
    origin = branch.branch_id.encode() + keys.encode_version(branch.time_us) + base
    return blake2b(origin, digest_size=ID_BYTES).digest()
