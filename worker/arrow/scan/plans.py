"""The entries that a read needs, by the service's plan; the columns and row ids of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.arrow.scan.inlined_rows import fetch_entries
from worker.base.values import partition_key
from worker.connection.pins import PinnedVersion
from worker.connection.table_view import TableView

PARTITIONS_MAX: Final = common_pb2.LIMIT_PARTITIONS_NAMED  # named in a plan
Columns = Sequence[catalog_pb2.Column]


class ScannedFile(NamedTuple):
    """A file of a plan, with the ids of its rows that are hidden."""

    file: common_pb2.DataFile
    data_version: int
    hidden: BitMap64 | None = None


def row_ids(file: common_pb2.DataFile) -> tuple[int, int]:
    """Return the smallest and the largest id that the file's rows may have."""
    if has_one_id(file):
        return file.row_id_min, file.row_id_max
    first, last = file.first_row_id, file.first_row_id + max(file.rows, 1) - 1
    if not file.carries_row_ids:
        return first, last
    if not file.HasField("row_id_min") or not file.HasField("row_id_max"):
        return 0, max(last, (1 << 62) - 1)
    return min(first, file.row_id_min), max(last, file.row_id_max)


def has_one_id(file: common_pb2.DataFile) -> bool:
    """Return whether the file is a single row that carries its id, the image of an update.

    If it has more rows, some may lack an id: they get the ids from `first_row_id` on.
    """
    carries = file.carries_row_ids and file.HasField("row_id_min") and file.HasField("row_id_max")
    return carries and file.rows == 1 and file.row_id_min == file.row_id_max


def entries_of(
    table: TableView,
    version: int,
    predicate: common_pb2.Predicate | None = None,
    partitions: Iterable[common_pb2.Partition] = (),
) -> list[common_pb2.LiveEntry]:
    """Return the entries that may have rows for which the predicate, on the columns of that version, is true.

    With partitions, only the entries in them, unless the partitions are many. Inlined files have their rows.
    """
    named = list({partition_key(partition): partition for partition in partitions}.values())
    if len(named) > PARTITIONS_MAX or not table.meta.partition_columns:
        named = []
    parts = table.client.plan_scan(
        table.table_id, version=version, predicate=predicate, partitions=named, without_stats=True, with_rows=True
    )
    entries = [entry for part in parts for entry in part.entries]
    fetch_entries(table, entries)  # a service of the previous release sends no rows
    return entries


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """The table at a version, and its entries for a condition."""

    version: int
    table: TableView
    predicate: common_pb2.Predicate | None
    entries: list[common_pb2.LiveEntry]
    is_whole: bool = True  # it has all entries


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPlan(VersionPlan):
    """A plan of a version that stays readable."""

    pinned: PinnedVersion


def pinned_plan(
    table: TableView,
    version: int | None,
    predicate: common_pb2.Predicate | None = None,
    *,
    whole: bool = True,
) -> PinnedPlan | None:
    """Pin a version, by default the newest, and plan it in one call; None if the service is of the previous release.

    Unless `whole`, only the first part of the plan is read, which is the whole plan of a small table.
    """
    answer = table.lake.pins.scan(table.table_id, version, predicate)
    if answer is None:
        return None
    pinned, parts = answer
    first = next(parts)
    then = replace(table, meta=first.table)
    if not whole and next(parts, None) is not None:
        return PinnedPlan(pinned.version, then, predicate, [], is_whole=False, pinned=pinned)
    entries = [entry for part in (first, *parts) for entry in part.entries]
    return PinnedPlan(pinned.version, then, predicate, entries, pinned=pinned)


def newest_plan(
    table: TableView, predicate: common_pb2.Predicate, key_files: read_pb2.KeyFiles | None
) -> VersionPlan | None:
    """Plan the newest version in one call that pins nothing; None if the service is of the previous release.

    A purge may delete its files while they are read, if old versions are kept for a short time or not at all.
    """
    parts = table.client.plan_scan(
        table.table_id,
        predicate=predicate,
        without_stats=True,
        with_tables=True,
        with_rows=True,
        key_files=key_files,
    )
    first = next(parts)
    if not first.HasField("table"):
        return None
    entries = [entry for part in (first, *parts) for entry in part.entries]
    return VersionPlan(first.version, replace(table, meta=first.table), predicate, entries)


class WrittenSchemas:
    """The schemas of one table; older ones are fetched when a file needs one."""

    def __init__(self, table: TableView) -> None:
        self._table = table
        self._schemas: Mapping[int, Columns] | None = None

    def columns_of(self, file: common_pb2.DataFile) -> Columns:
        if file.schema_version == self._table.meta.schema_version:
            return self._table.meta.columns
        if self._schemas is None:
            listed = self._table.client.list_schemas(self._table.table_id)
            self._schemas = {schema.schema_version: list(schema.columns) for schema in listed}
        return self._schemas[file.schema_version or min(self._schemas)]

    def names_in(self, file: common_pb2.DataFile) -> dict[int, str]:
        """Return the names of the columns in the file, by their ids."""
        return {column.column_id: column.name for column in self.columns_of(file)}
