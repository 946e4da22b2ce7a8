"""Readers: versions, past metadata, live files. Everything is limited to durable state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.branches import branch_of
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import CommitSummary
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.forking import find_table
from metaservice.service.decider.snapshots import stored_entries
from metaservice.service.decider.views import TableView, of_fork
from metaservice.store import external_files, keys
from metaservice.store.records.plans import StoredEntry, inlined_content
from metaservice.store.records.tables import decode_commit, decode_table


@dataclass(frozen=True, slots=True)
class Resolved:
    """A version to read; for a time, `time_read_us` is the time actually read."""

    version: int
    commit_time_us: int
    time_read_us: int | None = None
    cut: bool = False


class Reads:
    """The use cases of ReadService."""

    def __init__(self, decider: Decider, clocks: Clocks) -> None:
        self._decider = decider
        self._clocks = clocks

    def get_table(self, *, name: str = "", table_id: str = "") -> TableView:
        state = self._decider.state
        table = state.views.find_by_name(name) if name else state.views.find(table_id)
        if table is None and branch_of(name):  # on a branch, where nobody may have asked for it yet
            table = self._decider.call(lambda: self._fork(name))
        if table is not None:
            return table
        if name:
            raise MetaError(ErrorKind.NOT_FOUND, "TABLE_UNKNOWN", name=name)
        raise state.no_table(table_id)

    def _fork(self, name: str) -> TableView | None:
        table = find_table(self._decider.state, name)
        return None if table is None else table.view()

    def imported(self, tables: Iterable[TableView]) -> set[bytes]:
        """The ids of those that have external files."""
        cursor = self._decider.state.records.cursor()
        return {table.raw_id for table in tables if external_files.has_imports(cursor, table.raw_id)}

    def check_version(self, table: TableView, version: int | None) -> int:
        if version is None:
            return table.head
        if version > table.head:
            raise invalid("VERSION_IN_FUTURE", version=version, head=table.head)
        if version < 0:
            raise invalid("VERSION_INVALID", version=version)
        self._decider.state.check_readable(table, version)
        return version

    def resolve_version(self, table: TableView, version: int | None) -> Resolved:
        version = self.check_version(table, version)
        return Resolved(version, self.commit(table, version).footprint.time_us)

    def app_version(self, table: TableView, app_id: str) -> int | None:
        """The highest version that an application wrote. On the decider's thread: it is durable when it is answered."""
        self._decider.state.flush()
        raw = self._decider.state.app_version(table.meta.table_id, app_id)
        return None if raw is None else keys.decode_version(raw)

    def resolve_time(self, table: TableView, time_us: int) -> Resolved:
        """On the decider's thread: no later commit gets a time at or below the one answered."""
        state = self._decider.state
        state.flush()
        read_us = min(time_us, max(self._clocks.now_us(), state.get_table(table.meta.table_id).last_time_us))
        start = keys.times_prefix(table.raw_id)
        if read_us < 0:
            raise invalid("TIME_INVALID", time_us=time_us)
        newest = next(iter(state.records.cursor().scan_back(start, keys.time_key(table.raw_id, read_us + 1))), None)
        if newest is None or not self._is_kept(table, keys.decode_version(newest[1])):
            raise MetaError(
                ErrorKind.GONE,
                "VERSION_RETIRED",
                "the table keeps no version that old: ask for a newer time",
                oldest=(oldest := state.views.oldest(table)),
                oldest_time_us=self.commit(table, oldest).footprint.time_us,
            )
        state.note_answered(read_us)
        version, commit_us = keys.decode_version(newest[1]), keys.decode_version(newest[0][-8:])
        cut = time_us > read_us
        return Resolved(version, commit_us, read_us, cut)

    def meta_at(self, table: TableView, version: int) -> TableMeta:
        """The table's metadata as of a durable version."""
        if version == table.head:
            return table.meta
        cursor = self._decider.state.records.cursor()
        self._decider.state.check_readable(table, version)  # it may have been retired just now
        for _, raw in cursor.scan_back(keys.table_prefix(table.raw_id), keys.table_key(table.raw_id, version + 1)):
            return of_fork(decode_table(raw), table)
        raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version)

    def commit(self, table: TableView, version: int) -> CommitSummary:
        raw = self._decider.state.records.get(keys.commit_key(table.raw_id, version))
        if raw is None:
            self._decider.state.check_readable(table, version)  # it may have been retired just now
            raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=version)
        return decode_commit(raw)

    def _is_kept(self, table: TableView, version: int) -> bool:
        state = self._decider.state
        return version >= state.views.oldest(table) or state.is_held(table.meta.table_id, version)

    def list_files(self, table: TableView, version: int) -> Iterator[StoredEntry]:
        cursor = self._decider.state.records.cursor()
        self._decider.state.check_readable(table, version)
        return stored_entries(cursor, table.raw_id, version)

    def inlined(self, table: TableView, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """The rows of inlined files."""
        cursor = self._decider.state.records.cursor()
        for path in paths:
            yield path, inlined_content(cursor, table.raw_id, path, table.meta.name)
