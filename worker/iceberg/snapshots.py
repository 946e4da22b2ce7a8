"""The snapshots of a table, made one after the other: each reuses the previous one and adds the changes.

A snapshot that is made right after the previous one also lists the removed files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from metaservice.client import GoneError
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.iceberg.inlined_files import InlinedFiles
from worker.iceberg.live_files import LiveFiles
from worker.iceberg.metadata.facts import MadeFile, MadeSnapshot, RemovedFiles, ShownFile, SnapshotFacts, TableFacts
from worker.iceberg.metadata.manifests import Manifests
from worker.iceberg.metadata.schemas import check_promotions
from worker.iceberg.metadata.sort_orders import SortOrders
from worker.iceberg.names import NameMapping, check_names, doubtful, lacks_ids, name_mapping, written_by

Put = Callable[[MadeFile], None]
Schemas = Sequence[catalog_pb2.SchemaVersion]
Files = Mapping[int, Sequence[ShownFile]]  # by the commits that added them


class Snapshots:
    """The snapshots of one table in one location and one format. Their versions must be pinned."""

    def __init__(self, location: str, form: int, put: Put) -> None:
        """`put` writes a generated file below the location."""
        self._location = location
        self._form = form
        self._put = put
        self._at: _State | None = None
        self._made: tuple[int, Files] = -1, {}  # the version that was made last, and its files
        self._inlined = InlinedFiles(location, put)
        self._manifests: Manifests | None = None
        self._doubtful: dict[int, set[int]] = {}  # by version: schemas of files that may need names
        self._checked: set[str] = set()  # imported files whose names are fine

    def make(self, table: TableView, schemas: Schemas, version: int) -> MadeSnapshot:
        """Make the snapshot of a version and write its files."""
        state = self._state_at(table, schemas, version)
        schema = schema_at(schemas, version)
        check_shown(state.view, state.live, schemas, schema, self._checked)
        files = self._files(state)
        before, previous_files = self._made
        removed = removed_between(previous_files, files) if version == before + 1 else None
        if self._manifests is None:
            self._manifests = Manifests(TableFacts(table.meta, self._location, self._form), self._put)
        self._doubtful[version] = doubtful(written_by(schemas), state.live.schema_versions, state.live.marked)
        commit = commit_of(table, version)
        made = self._manifests.snapshot(SnapshotFacts(commit, schema, files, SortOrders(schemas), removed))
        if version > before:
            self._made = version, files
        return made

    def shown(self, table: TableView, schemas: Schemas, version: int) -> list[ShownFile]:
        """Return the files of the snapshot of a version."""
        files = self._files(self._state_at(table, schemas, version))
        return [file for of_commit in files.values() for file in of_commit]

    def _files(self, state: _State) -> Files:
        """Return the files by the commits that added them, in order. Files of inlined rows are written."""
        files = state.live.shown()
        for file in self._inlined.shown(state.view, state.live.inlined(), state.version + 1):
            added = file.entry.added_version
            files[added] = (*files.get(added, ()), file)
        return {number: files[number] for number in sorted(files)}

    def mapping(self, table: TableView, schemas: Schemas, versions: Sequence[int]) -> NameMapping:
        """Return the name mapping for readers of these versions, with the last one's columns; empty if none is needed.

        Files are opened only if a name would mean two columns.
        """
        now, by_version = schema_at(schemas, versions[-1]), written_by(schemas)
        try:
            return name_mapping(
                table.name, now, by_version, set().union(*(self._doubtful[version] for version in versions))
            )
        except InputError:
            lacking = {
                file.schema_version
                for version in versions
                for file in self._state_at(table, schemas, version).live.files()
                if file.schema_version in self._doubtful[version] and not file.inlined and lacks_ids(table, file)
            }
            return name_mapping(table.name, now, by_version, lacking)

    # -- from version to version

    def _state_at(self, table: TableView, schemas: Schemas, version: int) -> _State:
        current = self._at
        if current is not None and current.version == version:
            return current
        view = view_at(table, schemas, version)
        if current is not None and current.version < version:
            self._at = None  # an error midway leaves nothing half changed
            with suppress(GoneError):  # the commits between a tag and what is kept beside it are gone
                self._at = _moved(current, view, version)
                return self._at
        live = LiveFiles(table)
        live.apply(view, table.client.list_files(table.table_id, version=version), ())
        state = _State(view, version, live)
        if current is None or current.version < version:  # an older version, such as a tag's, is looked at aside
            self._at = state
        return state


@dataclass(frozen=True, slots=True)
class _State:
    """The live files of a version, and its view."""

    view: TableView
    version: int
    live: LiveFiles


def removed_between(before: Files, now: Files) -> RemovedFiles:
    """Return what a version lacks of the previous one. Commits whose files are the same object are skipped."""
    old = {file.path: file for version, files in before.items() if now.get(version) is not files for file in files}
    new = {file.path: file for version, files in now.items() if before.get(version) is not files for file in files}
    gone = [file for path, file in old.items() if path not in new]
    stays = ((file, new[path]) for path, file in old.items() if path in new)
    return RemovedFiles(gone, [file for file, is_now in stays if file is not is_now and file.hidden != is_now.hidden])


def _moved(state: _State, view: TableView, version: int) -> _State:
    """Move the state to a later version."""
    added: list[common_pb2.LiveEntry] = []
    removed: list[common_pb2.LiveEntry] = []
    mode = read_pb2.CHANGES_MODE_DIFFERENCE
    for part in view.client.plan_changes(view.table_id, state.version, version, mode=mode):
        added += part.added
        removed += part.removed
    state.live.apply(view, added, removed)
    return _State(view, version, state.live)


def check_shown(
    table: TableView, live: LiveFiles, schemas: Schemas, now: catalog_pb2.SchemaVersion, checked: set[str]
) -> None:
    """Refuse what Iceberg can't express, so that no reader sees other rows than readers of LakeTX.

    `checked` contains the imported files whose names are fine.
    """
    by_version = written_by(schemas)
    used = [by_version[number].columns for number, count in live.schema_versions.items() if count]
    check_promotions(table.name, now.columns, used)
    for path, file in live.external.items():
        if path not in checked:
            check_names(table, file)
            checked.add(path)


def commit_of(table: TableView, version: int) -> read_pb2.Version:
    version_filter = read_pb2.VersionFilter(from_version=version, to_version=version)
    return next(iter(table.client.list_versions(table.table_id, matching=version_filter)))


def schema_at(schemas: Schemas, version: int) -> catalog_pb2.SchemaVersion:
    return max((schema for schema in schemas if schema.version <= version), key=lambda schema: schema.version)


def view_at(table: TableView, schemas: Schemas, version: int) -> TableView:
    """Return the view under the schema of a version."""
    schema = schema_at(schemas, version)
    return table if schema.schema_version == table.meta.schema_version else table.at(version)
