"""The hidden rows of a table's files as positions, as Iceberg has them."""

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
    """The files of a partition of an append table, with what its delete sets hide."""
    if not sets:
        yield from ((one, NOTHING) for one in files)
        return
    newest_first = sorted(files, key=lambda one: -one.data_version)
    found = hidden_ids(table, [(one.file, one.data_version) for one in newest_first], sets)
    for one, ids in zip(newest_first, found, strict=True):
        yield one, _positions(table, one.file, ids) if ids else NOTHING


class HidingCommits:
    """Which commit hid the last rows of a file of an append table, by what its delete sets say of themselves.

    A set that names live files hid rows of these alone. Any other may have hidden rows of each older file whose ids are
    in its range: the commit is then taken for the last one, if in doubt.
    """

    def __init__(self, sets: Iterable[common_pb2.LiveEntry], live: Container[str]) -> None:
        """`live`: the paths of the partition's files."""
        self._named: dict[str, int] = {}
        self._others: list[common_pb2.LiveEntry] = []
        for one in sorted(sets, key=lambda each: each.added_version):
            touches = one.delete_set.touches
            if touches and all(path in live for path in touches):
                self._named.update(dict.fromkeys(touches, one.added_version))
            else:
                self._others.append(one)

    def last(self, one: common_pb2.LiveEntry) -> int:
        """The version; 0: none hid a row."""
        file, found = one.file, self._named.get(one.file.path, 0)
        low, high = file.first_row_id, file.first_row_id + file.rows - 1
        if file.carries_row_ids:
            is_known = file.HasField("row_id_min") and file.HasField("row_id_max")
            low, high = (min(low, file.row_id_min), max(high, file.row_id_max)) if is_known else (0, ROW_ID_END)
        for entry in reversed(self._others):
            if entry.added_version <= found:
                break
            hides = entry.delete_set
            if entry.data_version > one.data_version and hides.row_id_min <= high and low <= hides.row_id_max:
                return entry.added_version
        return found


def hidden_by_keys(table: TableView, written: WrittenSchemas, files: Sequence[common_pb2.LiveEntry]) -> Hidden:
    """The files of a bucket of a primary-key table, with what newer images of their keys and tombstones hide."""
    of_one_version = len({one.data_version for one in files}) == 1
    merged = [one for one in files if not of_one_version or one.file.kind == common_pb2.FILE_KIND_DELTA]
    if of_one_version:
        yield from ((one, NOTHING) for one in files if one.file.kind != common_pb2.FILE_KIND_DELTA)
    if not merged:
        return
    scanned = [ScannedFile(one.file, one.data_version) for one in merged]
    for one, positions in zip(merged, hidden_rows(table, written, scanned, keep=True), strict=True):
        yield one, BitMap64(positions) if len(positions) else NOTHING


def _positions(table: TableView, file: common_pb2.DataFile, ids: BitMap64) -> BitMap64:
    """The positions of row ids. A file that carries row ids is asked for them."""
    wanted, first = positions_of(ids), file.first_row_id
    if not file.carries_row_ids:
        return BitMap64(wanted - np.uint64(first))
    if file.inlined:
        own = _row_ids(rows_in(file.content).column(ROW_ID), first)
    else:
        own = _row_ids_of(table.path(file.path), first)
    return BitMap64(np.flatnonzero(np.isin(own.view(np.uint64), wanted)).astype(np.uint64))


def row_ids_at(path: str, file: common_pb2.DataFile, positions: BitMap64) -> BitMap64:
    """The ids of the rows at these positions of a file that lies at the path."""
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
    """The ids of a file's rows: those it carries, and for others the first one's and so on."""
    counted = np.arange(first, first + len(column), dtype=np.int64)
    return np.where(column.is_null().to_numpy(), counted, column.fill_null(0).to_numpy())


def row_ids_in(rows: pa.Table, first: int) -> Numbers:
    """The ids of the rows of an inlined file."""
    if ROW_ID in rows.column_names:
        return _row_ids(rows.column(ROW_ID), first)
    return np.arange(first, first + len(rows), dtype=np.int64)
