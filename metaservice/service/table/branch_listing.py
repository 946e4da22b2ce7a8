"""The tables that a branch shows, for lists: those that a look-up by name would find. A list makes no forks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from metaservice.core.errors import MetaError
from metaservice.core.table.branches import Branch, branch_of, off_branch, on_branch
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.staged_names import is_unborn
from metaservice.service.decider.forking import fork_id, get_branch, is_there
from metaservice.service.decider.state import State
from metaservice.service.decider.views import TableView
from metaservice.store import keys
from metaservice.store.records.branches import Fork
from metaservice.store.records.tables import decode_table


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table as a branch shows it.

    One that nobody has looked at there has no id yet: `view` has none then, and `parent_id` is the table of which it is
    a version.
    """

    name: str  # without the branch
    view: TableView
    parent_id: str = ""

    @property
    def known_id(self) -> str:
        """The table whose readers may read it."""
        return self.view.meta.table_id or self.parent_id


@dataclass(frozen=True, slots=True)
class Shown:
    """A version of a table of one of the lines: 0 is the branch, 1 its parent, and so on up to the lake."""

    line: int
    table: TableView
    version: int
    time_us: int
    meta: TableMeta


class BranchTables:
    """What one branch shows by the durable views. Any thread; for one list."""

    def __init__(self, state: State, branch: Branch) -> None:
        self._state = state
        self._cursor = state.records.cursor()
        self._lines = list(_upwards(state, branch))
        lines = {line.name.lower(): number for number, line in enumerate(self._lines)}
        lines[""] = len(self._lines)
        self._own: list[dict[str, str]] = [{} for _ in lines]  # names as written, by those without a branch
        for written in state.views.names():
            number = lines.get(branch_of(written).lower())
            if number is not None and not is_unborn(off_branch(written)):
                self._own[number][off_branch(written).lower()] = written

    def names(self) -> list[str]:
        """All names that the branch may show, in order, without the branch: as written on the nearest line."""
        written: dict[str, str] = {}
        for own in reversed(self._own):
            written.update(own)
        return sorted(map(off_branch, written.values()))

    def find(self, name: str) -> ListedTable | None:
        """The table that the name stands for on the branch."""
        shown = self._find(0, name.lower())
        if shown is None:
            return None
        table, branch, written = shown.table, self._lines[0], off_branch(shown.table.meta.name)
        if shown.line == 0:
            return ListedTable(written, table)
        raw_id, root = fork_id(branch, table.raw_id), self._state.home_of(table.raw_id)
        fork = Fork(raw_id, table.raw_id, shown.version, shown.time_us, shown.meta.schema_version, root, branch.name)
        meta = replace(shown.meta, table_id="", name=on_branch(written, branch.name), digest="")
        view = TableView(table.raw_id, meta, shown.version, shown.time_us, table.oldest, table.trimmed, fork)
        return ListedTable(written, view, table.meta.table_id)

    def _find(self, line: int, name: str) -> Shown | None:
        own = self._state.views.find_by_name(self._own[line].get(name, ""))
        if own is not None:
            return Shown(line, own, own.head, own.time_us, own.meta)
        if line == len(self._lines) or not self._lines[line].has(name):
            return None
        above = self._find(line + 1, name)
        if above is None or above.line > line + 1:  # the parent has no fork either
            return above
        raw_id = fork_id(self._lines[line], above.table.raw_id)
        fork, view = self._state.forks.get(raw_id), self._state.views.find(keys.uuid_text(raw_id))
        if (fork is not None and fork.is_dropped) or view is not None:  # there: under the name that it had
            return None
        return self._at_instant(above, self._lines[line])

    def _at_instant(self, above: Shown, branch: Branch) -> Shown | None:
        """The parent's table at the branch's instant; None: it was not there, or under another name."""
        table = above.table
        if not is_there(self._state, table.raw_id, table.fork, branch.time_us):
            return None
        if table.time_us <= branch.time_us:
            return above
        start, end = keys.times_prefix(table.raw_id), keys.time_key(table.raw_id, branch.time_us + 1)
        key, raw = next(iter(self._cursor.scan_back(start, end)), (b"", b""))
        if not key:
            return None
        version, time_us = keys.decode_version(raw), keys.decode_version(key[-8:])
        if branch.tables:  # a table that was renamed since was not held under its earlier name
            try:
                self._state.check_readable(table, version)
            except MetaError:
                return None
        start, end = keys.table_prefix(table.raw_id), keys.table_key(table.raw_id, version + 1)
        for _, raw in self._cursor.scan_back(start, end):
            meta = decode_table(raw)
            is_same = meta.name.lower() == table.meta.name.lower()
            return Shown(above.line, table, version, time_us, meta) if is_same else None
        return None  # the branch has ended meanwhile


def _upwards(state: State, branch: Branch) -> Iterator[Branch]:
    """A branch, its parent, and so on."""
    yield branch
    while branch.parent:
        branch = get_branch(state, branch.parent)
        yield branch
