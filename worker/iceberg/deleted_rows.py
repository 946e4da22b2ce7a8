"""The hidden rows of a table's files as positions, the form of Iceberg."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from worker.arrow.scan.bucket_vectors import hidden_rows
from worker.arrow.scan.deleted_row_ids import hidden_ids
from worker.arrow.scan.inlined_rows import rows_in
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas
from worker.base.schema import ROW_ID
from worker.connection.table_view import TableView
from worker.files.position_blocks import Numbers, positions_of
from worker.files.storage import in_pages, storage

NOTHING: Final = BitMap64()
ROW_ID_END: Final = 1 << 62
FILES_REMEMBERED: Final = 256  # whose row ids were read
Hidden = Iterator[tuple[common_pb2.LiveEntry, BitMap64]]


def hidden_by_sets(
    table: TableView, files: Sequence[common_pb2.LiveEntry], sets: Sequence[common_pb2.LiveEntry]
) -> Hidden:
    """Yield the files of a partition of an append table, with the positions that its delete sets hide."""
    if not sets:
        yield from ((entry, NOTHING) for entry in files)
        return
    newest_first = sorted(files, key=lambda entry: -entry.data_version)
    hidden = hidden_ids(table, [(entry.file, entry.data_version) for entry in newest_first], sets)
    for entry, ids in zip(newest_first, hidden, strict=True):
        yield entry, _positions(table, entry.file, ids) if ids else NOTHING


class HidingCommits:
    """Finds the commit that hid the last rows of a file of an append table, from the facts of its delete sets.

    A set that names live files hid rows of these alone. Any other set may have hidden rows of each older file whose ids
    are in its range: in doubt its commit counts as the last one.
    """

    def __init__(self, sets: Iterable[common_pb2.LiveEntry], live: Container[str]) -> None:
        """`live`: the paths of the partition's files."""
        self._named: dict[str, int] = {}
        self._others: list[common_pb2.LiveEntry] = []
        for entry in sorted(sets, key=lambda entry: entry.added_version):
            touches = entry.delete_set.touches
            if touches and all(path in live for path in touches):
                self._named.update(dict.fromkeys(touches, entry.added_version))
            else:
                self._others.append(entry)

    def last(self, file_entry: common_pb2.LiveEntry) -> int:
        """Return the version of the last commit that hid rows of a file; 0 if none did."""
        file, version = file_entry.file, self._named.get(file_entry.file.path, 0)
        low, high = file.first_row_id, file.first_row_id + file.rows - 1
        if file.carries_row_ids:
            is_known = file.HasField("row_id_min") and file.HasField("row_id_max")
            low, high = (min(low, file.row_id_min), max(high, file.row_id_max)) if is_known else (0, ROW_ID_END)
        for entry in reversed(self._others):
            if entry.added_version <= version:
                break
            hides = entry.delete_set
            if entry.data_version > file_entry.data_version and hides.row_id_min <= high and low <= hides.row_id_max:
                return entry.added_version
        return version


def hidden_by_keys(table: TableView, written: WrittenSchemas, files: Sequence[common_pb2.LiveEntry]) -> Hidden:
    """Yield the files of a bucket of a primary-key table, with the positions that newer images and tombstones hide."""
    of_one_version = len({entry.data_version for entry in files}) == 1
    merged = [entry for entry in files if not of_one_version or entry.file.kind == common_pb2.FILE_KIND_DELTA]
    if of_one_version:
        yield from ((entry, NOTHING) for entry in files if entry.file.kind != common_pb2.FILE_KIND_DELTA)
    if not merged:
        return
    scanned = [ScannedFile(entry.file, entry.data_version) for entry in merged]
    for entry, positions in zip(merged, hidden_rows(table, written, scanned, keep=True), strict=True):
        yield entry, BitMap64(positions) if len(positions) else NOTHING


def _positions(table: TableView, file: common_pb2.DataFile, ids: BitMap64) -> BitMap64:
    """Return the positions of row ids. If the file carries row ids, they are read."""
    numbers, first = positions_of(ids), file.first_row_id
    if not file.carries_row_ids:
        return BitMap64(numbers - np.uint64(first))
    if file.inlined:
        own = _row_ids(rows_in(file.content).column(ROW_ID), first)
    else:
        own = _row_ids_of(table.path(file.path), first)
    return BitMap64(np.flatnonzero(np.isin(own.view(np.uint64), numbers)).astype(np.uint64))


def row_ids_at(path: str, file: common_pb2.DataFile, positions: BitMap64) -> BitMap64:
    """Return the ids of the rows at these positions of a file."""
    at = positions_of(positions)
    if not file.carries_row_ids:
        return BitMap64(at + np.uint64(file.first_row_id))
    return BitMap64(_row_ids_of(path, file.first_row_id).view(np.uint64)[at])


@lru_cache(FILES_REMEMBERED)
def _row_ids_of(path: str, first: int) -> Numbers:
    files, within = storage(path)
    with in_pages(within, files) as opened:
        return _row_ids(opened.read([ROW_ID]).column(ROW_ID), first)


def _row_ids(column: pa.ChunkedArray, first: int) -> Numbers:
    """Return the ids of a file's rows: the carried ids, or else ascending ids from the first."""
    counted = np.arange(first, first + len(column), dtype=np.int64)
    return np.where(column.is_null().to_numpy(), counted, column.fill_null(0).to_numpy())


def row_ids_in(rows: pa.Table, first: int) -> Numbers:
    """Return the ids of the rows of an inlined file."""
    if ROW_ID in rows.column_names:
        return _row_ids(rows.column(ROW_ID), first)
    return np.arange(first, first + len(rows), dtype=np.int64)
