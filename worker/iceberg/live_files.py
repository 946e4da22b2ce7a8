"""The files that a version of a table shows, with the positions of their hidden rows.

It moves from version to version by the files that commits added and removed. Only touched partitions and buckets are
examined again, so the cost of a commit depends on its changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from protos.laketx.v1 import common_pb2
from worker.arrow.scan.inlined_rows import fetch_rows
from worker.arrow.scan.plans import WrittenSchemas
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView
from worker.iceberg.deleted_rows import NOTHING, Hidden, HidingCommits, hidden_by_keys, hidden_by_sets
from worker.iceberg.locations import location_in, location_of
from worker.iceberg.metadata.facts import ShownFile
from worker.iceberg.names import is_marked

Place = tuple[PartitionKey, int]  # where entries can hide rows of each other: a partition, or a bucket of one
UNBOUND: Final = ""


@dataclass(slots=True)
class _Entries:
    files: dict[str, common_pb2.LiveEntry] = field(default_factory=dict)
    sets: dict[str, common_pb2.LiveEntry] = field(default_factory=dict)


class LiveFiles:
    """The live files of a version. Files without a visible row are kept, but not shown."""

    def __init__(self, table: TableView) -> None:
        self._is_keyed = bool(table.meta.primary_key)
        self._folder = location_of(table.folder)
        self._places: dict[Place, _Entries] = defaultdict(_Entries)
        self._shown: dict[int, dict[str, ShownFile]] = defaultdict(dict)  # by the commit that added them, and path
        self._listed: dict[int, Sequence[ShownFile]] = {}  # the same, of commits that nothing changed since
        self._inlined: dict[str, ShownFile] = {}
        self.schema_versions: Counter[int] = Counter()  # how many files were written under each
        self.marked: Counter[int] = Counter()  # how many of them are imported, or have columns beside the table's
        self.external: dict[str, common_pb2.DataFile] = {}

    def apply(
        self, table: TableView, added: Iterable[common_pb2.LiveEntry], removed: Iterable[common_pb2.LiveEntry]
    ) -> None:
        """Move to the version of the view by these entries."""
        fresh: dict[Place, dict[str, None]] = defaultdict(dict)  # files to look at, where nothing else changed
        whole: dict[Place, None] = {}
        for entry in removed:
            place = self._place(entry)
            self._remove(place, entry)
            if self._is_keyed or entry.HasField("delete_set"):
                whole[place] = None
        listed = list(added)
        fetch_rows(table, [entry.file for entry in listed if entry.HasField("file")])
        for entry in listed:
            place = self._place(entry)
            self._add(place, entry)
            if self._is_keyed or entry.HasField("delete_set"):
                whole[place] = None
            else:
                fresh[place][entry.file.path] = None
        written = WrittenSchemas(table)
        for place in whole:
            self._look(table, written, place, list(self._places[place].files.values()))
        for place, paths in fresh.items():
            if place not in whole:
                self._look(table, written, place, [self._places[place].files[path] for path in paths])

    def shown(self) -> dict[int, Sequence[ShownFile]]:
        """Return the files with visible rows, without inlined ones, by the commits that added them, in order.

        A commit's files are the same object as before, if none has changed.
        """
        for version in self._shown.keys() - self._listed.keys():
            self._listed[version] = tuple(self._shown[version].values())
        return {version: self._listed[version] for version in sorted(self._shown)}

    def inlined(self) -> Sequence[ShownFile]:
        """Return the inlined files; in a primary-key table those that have visible rows.

        In an append table one whose rows are all hidden stays: a delete doesn't change the file that shows it.
        """
        return list(self._inlined.values())

    def files(self) -> Iterator[common_pb2.DataFile]:
        """Return all files."""
        return (entry.file for entries in self._places.values() for entry in entries.files.values())

    def _place(self, entry: common_pb2.LiveEntry) -> Place:
        if entry.HasField("delete_set"):
            return partition_key(entry.delete_set.partition), 0
        return partition_key(entry.file.partition), entry.file.bucket

    def _add(self, place: Place, entry: common_pb2.LiveEntry) -> None:
        if entry.HasField("delete_set"):
            self._places[place].sets[entry.delete_set.path] = entry
            return
        self._places[place].files[entry.file.path] = entry
        self._count(entry.file, 1)
        if entry.file.external:
            self.external[entry.file.path] = entry.file

    def _remove(self, place: Place, entry: common_pb2.LiveEntry) -> None:
        if entry.HasField("delete_set"):
            del self._places[place].sets[entry.delete_set.path]
            return
        path = entry.file.path
        live = self._places[place].files.pop(path)
        self._count(live.file, -1)
        self.external.pop(path, None)
        self._hide(live.added_version, path)

    def _count(self, file: common_pb2.DataFile, more: int) -> None:
        self.schema_versions[file.schema_version] += more
        if is_marked(file):
            self.marked[file.schema_version] += more

    def _look(
        self, table: TableView, written: WrittenSchemas, place: Place, files: Sequence[common_pb2.LiveEntry]
    ) -> None:
        entries = self._places[place]
        hiding = HidingCommits(entries.sets.values(), entries.files)
        for entry, hidden in self._hidden(table, written, place, files):
            file = entry.file
            path, version = file.path, entry.added_version
            if len(hidden) >= file.rows and (self._is_keyed or not file.inlined):
                self._hide(version, path)
                continue
            listed = self._inlined if file.inlined else self._shown[version]
            shown, hid_last = listed.get(path), hiding.last(entry) if hidden else 0
            if shown is None or shown.hidden != hidden or shown.hidden_version != hid_last:
                listed[path] = ShownFile(entry, self._location(file), hidden, hid_last)
                self._listed.pop(version, None)

    def _hide(self, version: int, path: str) -> None:
        self._inlined.pop(path, None)
        self._listed.pop(version, None)
        self._shown[version].pop(path, None)
        if not self._shown[version]:
            del self._shown[version]

    def _location(self, file: common_pb2.DataFile) -> str:
        if file.inlined:
            return UNBOUND
        return location_of(file.path) if file.external else location_in(self._folder, file.path)

    def _hidden(
        self, table: TableView, written: WrittenSchemas, place: Place, files: Sequence[common_pb2.LiveEntry]
    ) -> Hidden:
        if self._is_keyed:
            return hidden_by_keys(table, written, files)
        sets = self._places[place].sets
        return hidden_by_sets(table, files, list(sets.values())) if sets else ((entry, NOTHING) for entry in files)
