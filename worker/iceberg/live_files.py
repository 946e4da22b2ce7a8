"""What a version of a table shows, as facts: its files, and the positions of their hidden rows.

It goes from version to version by what commits added and removed. Only partitions and buckets that they touched are
looked at again, so a commit costs what it changed.
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
    """The live files of a version. Files without a visible row are known, but not shown."""

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
        """Goes to the version of the view, to which these entries lead."""
        fresh: dict[Place, dict[str, None]] = defaultdict(dict)  # files to look at, where nothing else changed
        whole: dict[Place, None] = {}
        for one in removed:
            place = self._place(one)
            self._remove(place, one)
            if self._is_keyed or one.HasField("delete_set"):
                whole[place] = None
        listed = list(added)
        fetch_rows(table, [one.file for one in listed if one.HasField("file")])
        for one in listed:
            place = self._place(one)
            self._add(place, one)
            if self._is_keyed or one.HasField("delete_set"):
                whole[place] = None
            else:
                fresh[place][one.file.path] = None
        written = WrittenSchemas(table)
        for place in whole:
            self._look(table, written, place, list(self._places[place].files.values()))
        for place, paths in fresh.items():
            if place not in whole:
                self._look(table, written, place, [self._places[place].files[path] for path in paths])

    def shown(self) -> dict[int, Sequence[ShownFile]]:
        """The files that have visible rows, but the inlined ones, by the commits that added them, in order.

        A commit's files are the same object as before, if none has changed.
        """
        for version in self._shown.keys() - self._listed.keys():
            self._listed[version] = tuple(self._shown[version].values())
        return {version: self._listed[version] for version in sorted(self._shown)}

    def inlined(self) -> Sequence[ShownFile]:
        """The inlined files; in a primary-key table those that have visible rows.

        In an append table one whose rows are all hidden stays: a delete doesn't change the file that shows it.
        """
        return list(self._inlined.values())

    def files(self) -> Iterator[common_pb2.DataFile]:
        """All files."""
        return (one.file for entries in self._places.values() for one in entries.files.values())

    def _place(self, one: common_pb2.LiveEntry) -> Place:
        if one.HasField("delete_set"):
            return partition_key(one.delete_set.partition), 0
        return partition_key(one.file.partition), one.file.bucket

    def _add(self, place: Place, one: common_pb2.LiveEntry) -> None:
        if one.HasField("delete_set"):
            self._places[place].sets[one.delete_set.path] = one
            return
        self._places[place].files[one.file.path] = one
        self._count(one.file, 1)
        if one.file.external:
            self.external[one.file.path] = one.file

    def _remove(self, place: Place, one: common_pb2.LiveEntry) -> None:
        if one.HasField("delete_set"):
            del self._places[place].sets[one.delete_set.path]
            return
        path = one.file.path
        known = self._places[place].files.pop(path)
        self._count(known.file, -1)
        self.external.pop(path, None)
        self._hide(known.added_version, path)

    def _count(self, file: common_pb2.DataFile, more: int) -> None:
        self.schema_versions[file.schema_version] += more
        if is_marked(file):
            self.marked[file.schema_version] += more

    def _look(
        self, table: TableView, written: WrittenSchemas, place: Place, files: Sequence[common_pb2.LiveEntry]
    ) -> None:
        entries = self._places[place]
        hiding = HidingCommits(entries.sets.values(), entries.files)
        for one, hidden in self._hidden(table, written, place, files):
            file = one.file
            path, version = file.path, one.added_version
            if len(hidden) >= file.rows and (self._is_keyed or not file.inlined):
                self._hide(version, path)
                continue
            listed = self._inlined if file.inlined else self._shown[version]
            known, hid_last = listed.get(path), hiding.last(one) if hidden else 0
            if known is None or known.hidden != hidden or known.hidden_version != hid_last:
                listed[path] = ShownFile(one, self._location(file), hidden, hid_last)
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
        return hidden_by_sets(table, files, list(sets.values())) if sets else ((one, NOTHING) for one in files)
