"""Images that set single columns, folded: what a key has after its images, in the order of their commits.

    version 1   7  a=1 b=1      whole             7 has a=1 b=1
    version 2   7  b=NULL       sets b            7 has a=1 b=NULL
    version 3   7  tombstone                      7 is not there
    version 4   7  a=5          sets a            7 has a=5, and of b what the image carries unset: its default, or NULL

The fold of images is an image: a tombstone, a whole one, or one that sets what any of them sets. So any images that
follow each other can be folded first: that is what a minor compaction does, which doesn't know those before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from protos.laketx.v1 import catalog_pb2
from worker.base.schema import OP, SET, TOMBSTONE, UPSERT

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


# -- the columns that an image sets ------------------------------------------------------------------------------------


def bits_of(columns: Iterable[int]) -> bytes:
    """Return the ids of columns as bits: the lowest bit of the first byte is id 0."""
    result = sum(1 << number for number in set(columns))
    return result.to_bytes((result.bit_length() + 7) // 8, "little")


def columns_of(bits: bytes) -> frozenset[int]:
    """Return the ids of columns whose bits are set."""
    return frozenset(at for at in range(8 * len(bits)) if bits[at >> 3] >> (at & 7) & 1)


def set_in(images: pa.Table, meta: catalog_pb2.Table) -> list[int]:
    """Return the ids of columns that images in a file set, for its entry: all if one is whole or a tombstone.

    Images that set nothing name a column of the key, which nobody sets: the entry says that they are not whole.
    """
    sets = images.column(SET)
    if sets.null_count:
        return [column.column_id for column in meta.columns]
    result = frozenset[int]().union(*map(columns_of, sets.unique().to_pylist()))
    return sorted(result) or [column.column_id for column in meta.columns if column.name == meta.primary_key[0]]


class SetColumns:
    """The columns that each image sets."""

    def __init__(self, sets: pa.ChunkedArray) -> None:
        encoded = sets.combine_chunks().dictionary_encode()
        self._distinct = [columns_of(bits) for bits in encoded.dictionary.to_pylist()]
        self._places = encoded.indices.fill_null(len(self._distinct)).to_numpy(zero_copy_only=False)
        self.are_whole: Flags = sets.is_null().to_numpy()

    @property
    def ids(self) -> list[int]:
        return sorted(frozenset[int]().union(*self._distinct))

    def has(self, column: int) -> Flags:
        """Return for each image whether it sets the column as a single one: a whole image does not."""
        sets = np.array([*(column in distinct for distinct in self._distinct), False], bool)
        result: Flags = sets[self._places]
        return result


# -- the fold ----------------------------------------------------------------------------------------------------------


def folded(images: pa.Table, meta: catalog_pb2.Table, places: Sequence[str], versions: Numbers) -> pa.Table:
    """Return one image for each place, with the columns of the images, in no order.

    `places` are the columns by which a key is there once; no place is twice in one version.
    """
    if not len(images):
        return images
    groups = _numbered(images, places)
    order = np.lexsort([versions, groups])
    groups, images = groups[order], images.take(pa.array(order))
    at = np.arange(len(groups))
    begins = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    ends = np.append(begins[1:], len(groups)) - 1
    gone = images.column(OP).to_numpy() == TOMBSTONE
    sets = SetColumns(images.column(SET))
    last_gone = np.maximum.reduceat(np.where(gone, at, -1), begins)
    last_whole = np.maximum.reduceat(np.where(sets.are_whole & ~gone, at, -1), begins)
    start = np.maximum(begins, np.where(last_whole > last_gone, last_whole, last_gone + 1))
    is_gone, start = start > ends, np.minimum(start, ends)
    is_whole = np.maximum(last_gone, last_whole) >= 0
    lengths = ends - begins + 1
    counts = at >= np.repeat(start, lengths)
    starts = at == np.repeat(start, lengths)
    ids = {column.name: column.column_id for column in meta.columns}

    def last_set(name: str) -> Numbers:
        """The image that has the column's value."""
        if name in places or name not in ids:
            return ends
        result: Numbers = np.maximum.reduceat(np.where(starts | (counts & sets.has(ids[name])), at, -1), begins)
        return result

    def column(field: pa.Field) -> Any:
        if field.name == OP:
            return pa.array(np.where(is_gone, TOMBSTONE, UPSERT).astype(np.int8))
        if field.name == SET:
            return united(sets, counts, begins, is_whole)
        return images.column(field.name).take(pa.array(last_set(field.name)))

    return pa.table([column(field) for field in images.schema], schema=images.schema)


def _numbered(rows: pa.Table, places: Sequence[str]) -> Numbers:
    """Return a number for each row, equal for the rows of a place."""
    frame = pl.from_arrow(rows.select(list(places)))
    assert isinstance(frame, pl.DataFrame)
    distinct = frame.unique().with_row_index("_laketx_place")
    result = frame.join(distinct, on=list(places), how="left", nulls_equal=True, maintain_order="left")
    numbers: Numbers = result["_laketx_place"].cast(pl.Int64).to_numpy()
    return numbers


def united(sets: SetColumns, counts: Flags, begins: Numbers, is_whole: Flags) -> Any:
    """The bits of what the images of each place set, NULL where one is whole or was gone before."""
    ids = sets.ids
    width = (max(ids, default=0) >> 3) + 1
    bits = np.zeros((len(begins), 8 * width), bool)
    for column in ids:
        bits[:, column] = np.logical_or.reduceat(counts & sets.has(column), begins)
    packed = np.packbits(bits, axis=1, bitorder="little")
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(packed), [None, pa.py_buffer(packed.tobytes())])
    result = fixed.cast(pa.binary())
    return pc.if_else(pa.array(is_whole), pa.scalar(None, pa.binary()), result)


def visible(images: pa.Table) -> pa.Table:
    """Return the rows that folded images show: no tombstones, and only the table's columns."""
    alive = images.filter(pa.array(images.column(OP).to_numpy() != TOMBSTONE))
    return alive.drop_columns([OP, SET])


def whole_images(rows: pa.Table) -> pa.Table:
    """Return rows, whole images or tombstones, in the shape of images that set single columns."""
    return rows.append_column(pa.field(SET, pa.binary()), pa.nulls(len(rows), pa.binary()))
