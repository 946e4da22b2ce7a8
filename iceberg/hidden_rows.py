"""The hidden rows of a table's files as positions, as Iceberg has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from worker.base.inlined import rows_in
from worker.base.schema import ROW_ID
from worker.base.storage import in_pages, storage
from worker.base.table_view import TableView
from worker.read.file_identity import ScannedFile
from worker.read.hidden_ids import hidden_ids
from worker.read.key_merge import bucket_to_merge, hidden_in
from worker.read.position_blocks import Numbers, positions_of
from worker.read.written_schemas import WrittenSchemas

NOTHING: Final = BitMap64()
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


def hidden_by_keys(table: TableView, written: WrittenSchemas, files: Sequence[common_pb2.LiveEntry]) -> Hidden:
    """The files of a bucket of a primary-key table, with what newer images of their keys and tombstones hide."""
    of_one_version = len({one.data_version for one in files}) == 1
    merged = [one for one in files if not of_one_version or one.file.kind == common_pb2.FILE_KIND_DELTA]
    if of_one_version:
        yield from ((one, NOTHING) for one in files if one.file.kind != common_pb2.FILE_KIND_DELTA)
    if not merged:
        return
    scanned = [ScannedFile(one.file, one.data_version, number=at) for at, one in enumerate(merged)]
    bucket = bucket_to_merge(table, written, scanned, lambda one: one.number)
    for at, positions in hidden_in(bucket):
        yield merged[at], BitMap64(positions) if len(positions) else NOTHING


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
