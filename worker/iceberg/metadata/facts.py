"""The input of Iceberg's metadata: a table, and the files that a version shows.

Version V is snapshot V + 1 with the sequence number V + 1, because Iceberg's numbers begin at 1. A file's sequence
number is its data version + 1: deletes apply to files of the same or a lower one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.iceberg.metadata.sort_orders import SortOrder, SortOrders

FORMATS: Final = (2, 3)
NAME_DIGITS: Final = 32
METADATA: Final = "metadata"  # the folder of generated files, below the location


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table, the location of its metadata, and the format that it is shown in."""

    meta: catalog_pb2.Table
    location: str
    format: int = 3


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A data file with at least one visible row, its location, and the positions of its hidden rows.

    `hidden_version`: the commit that hid the last of them, as far as it is known; 0: the one that added the file.
    """

    entry: common_pb2.LiveEntry
    path: str
    hidden: BitMap64
    hidden_version: int = 0

    @property
    def file(self) -> common_pb2.DataFile:
        return self.entry.file

    @property
    def sequence(self) -> int:
        return sequence_of(self.entry.data_version)

    @property
    def hidden_at(self) -> int:
        """Return the version whose snapshot added its delete file."""
        return max(self.hidden_version, self.entry.added_version)

    @property
    def sequence_of_deletes(self) -> int:
        """Return the sequence number of its delete file."""
        return max(self.sequence, sequence_of(self.hidden_at))


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """Files that the previous version had and a version lacks: data files, and delete files of files that stay."""

    files: Sequence[ShownFile] = ()
    changed: Sequence[ShownFile] = ()  # files that stay, with the hidden rows that they had

    def __bool__(self) -> bool:
        return bool(self.files or self.changed)


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """A version: its commit, its schema, and the files that it shows, by the commits that added them, in order.

    `removed` is None if the previous version is not known.
    """

    commit: read_pb2.Version
    schema: catalog_pb2.SchemaVersion
    files: Mapping[int, Sequence[ShownFile]]
    orders: SortOrders = field(default_factory=SortOrders)
    removed: RemovedFiles | None = None

    @property
    def version(self) -> int:
        return self.commit.version


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A generated file: its name below the location, and its content."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of files."""

    files: int = 0
    rows: int = 0
    hidden: int = 0
    delete_files: int = 0
    row_ids: int = 0  # all row ids are below it

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.files + other.files,
            self.rows + other.rows,
            self.hidden + other.hidden,
            self.delete_files + other.delete_files,
            max(self.row_ids, other.row_ids),
        )


@dataclass(frozen=True, slots=True)
class MadeSnapshot:
    """A snapshot whose manifests are made: the name of their list, and their totals.

    `follows`: its manifests list the removed files of the previous version, so clients can rely on them.
    """

    commit: read_pb2.Version
    schema: catalog_pb2.SchemaVersion
    manifest_list: str
    totals: Totals
    orders: frozenset[SortOrder] = frozenset()  # of its files
    follows: bool = False
    adds_files: bool = False
    removes_files: bool = False  # or changes which rows of files are hidden

    @property
    def version(self) -> int:
        return self.commit.version

    @property
    def snapshot_id(self) -> int:
        return sequence_of(self.version)


def sequence_of(version: int) -> int:
    """Return the sequence number of a version, which is also the id of its snapshot."""
    return version + 1


def version_of(snapshot_id: int) -> int:
    """Return the version that a snapshot shows."""
    return snapshot_id - 1


def named(kind: str, ending: str, content: bytes) -> MadeFile:
    """Return a generated file, named by its content."""
    return MadeFile(f"{METADATA}/{kind}-{hashlib.sha256(content).hexdigest()[:NAME_DIGITS]}.{ending}", content)
