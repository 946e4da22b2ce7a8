"""The hidden rows of a primary-key table: a newer image of a key hides an older one, and a tombstone hides itself.

They are found from the key columns alone, bucket by bucket, with polars.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from metaservice.shared.arrow_streams import head_of
from protos.laketx.v1 import common_pb2
from worker.arrow.scan.inlined_rows import Content, joined, rows_in
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas
from worker.base.schema import OP, TOMBSTONE
from worker.connection.table_view import TableView
from worker.files.footers import in_threads
from worker.files.position_blocks import Flags, Positions
from worker.files.storage import is_local, open_to_read, storage

FILTER_BITS: Final = 20
_PLACE: Final = "_at"
_OTHER: Final = "_other"
_HASH: Final = "_hash"


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file of a bucket: its path, its data version, its position among all files, its names of the key columns."""

    path: str
    rows: int
    data_version: int
    at: int
    key_columns: tuple[str, ...]
    is_delta: bool
    content: Content = b""  # of an inlined file


@dataclass(frozen=True, slots=True)
class BucketToMerge:
    """Files whose keys can hide each other."""

    files: tuple[KeyFile, ...]


def bucket_to_merge(
    table: TableView,
    written: WrittenSchemas,
    files: Iterable[ScannedFile],
    number: Callable[[ScannedFile], int],
) -> BucketToMerge:
    ids = {column.name: column.column_id for column in table.meta.columns}
    key_files = []
    for scanned in files:
        names = written.names_in(scanned.file)
        keys = tuple(names[ids[name]] for name in table.meta.primary_key)
        is_delta = scanned.file.kind == common_pb2.FILE_KIND_DELTA
        path = table.path(scanned.file.path)
        key_files.append(
            KeyFile(
                path, scanned.file.rows, scanned.data_version, number(scanned), keys, is_delta, scanned.file.content
            )
        )
    return BucketToMerge(tuple(key_files))


def hidden_in(bucket: BucketToMerge) -> Iterator[tuple[int, Positions]]:
    """Yield the hidden rows of one bucket, by the numbers of their files."""
    lowest = min(file.data_version for file in bucket.files)
    newer = sorted((file for file in bucket.files if file.data_version > lowest), key=lambda file: -file.data_version)
    latest = None
    if newer:
        keys, gone, counts = _read_keys(newer)
        first = is_first(keys)
        latest = keys.filter(first)
        yield from _by_file(newer, counts, ~first.to_numpy() | gone)
    for file in bucket.files:
        if file.data_version == lowest:
            keys, hidden, counts = _read_keys([file])
            if latest is not None:
                hidden[places_among(keys, latest)] = True
            yield from _by_file([file], counts, hidden)


def is_first(keys: pl.DataFrame) -> pl.Series:
    """Return for each row whether no earlier row has its key."""
    whole = keys.to_series() if keys.width == 1 else keys.to_struct()
    return whole.is_first_distinct()


def places_among(keys: pl.DataFrame, latest: pl.DataFrame) -> Flags:
    """Return the positions of the keys that are in `latest`, too.

    Ascending numbers are found by binary search. Composite keys are compared by a hash first.
    """
    if keys.schema != latest.schema:  # one of them is from before a widening
        kinds = pl.concat([keys.head(0), latest.head(0)], how="vertical_relaxed").schema
        keys, latest = keys.cast(kinds), latest.cast(kinds)
    if keys.width > 1 and not any(kind.is_float() for kind in keys.dtypes):
        return _places_by_hash(keys, latest)
    if keys.width == 1 and (keys.dtypes[0].is_integer() or keys.dtypes[0].is_temporal()):
        ours, theirs = (frame.to_series().to_physical().to_numpy() for frame in (keys, latest))
        if (ours[1:] > ours[:-1]).all():
            return _places_in_order(ours, np.sort(theirs))
    return keys.with_row_index(_PLACE).join(latest, on=latest.columns, how="semi")[_PLACE].to_numpy()


def _places_in_order(ascending: Flags, others: Flags) -> Flags:
    at = np.searchsorted(ascending, others)
    others, at = others[at < len(ascending)], at[at < len(ascending)]
    places: Flags = at[ascending[at] == others]
    return places


def _places_by_hash(keys: pl.DataFrame, latest: pl.DataFrame) -> Flags:
    """A few bits of a hash exclude most rows, the whole hash nearly all others, and the keys the rest."""
    ours, theirs = keys.hash_rows(), latest.hash_rows()
    seen = np.zeros(1 << FILTER_BITS, bool)
    seen[_lowest_bits(theirs)] = True
    near = np.flatnonzero(seen[_lowest_bits(ours)])
    rows = pl.DataFrame({_HASH: ours[near], _PLACE: near})
    pairs = rows.join(theirs.to_frame(_HASH).with_row_index(_OTHER), on=_HASH)
    candidates, others = keys[pairs[_PLACE]], latest[pairs[_OTHER]]
    same = pl.select(pl.all_horizontal([candidates[name].eq(others[name]) for name in keys.columns])).to_series()
    return pairs[_PLACE].filter(same).to_numpy()


def _lowest_bits(hashes: pl.Series) -> Flags:
    return hashes.to_numpy() & np.uint64((1 << FILTER_BITS) - 1)


def _by_file(files: Sequence[KeyFile], counts: Sequence[int], hidden: Flags) -> Iterator[tuple[int, Positions]]:
    end = 0
    for file, count in zip(files, counts, strict=True):
        begin, end = end, end + count
        yield file.at, np.flatnonzero(hidden[begin:end]).astype(np.uint64)


def _read_keys(files: Sequence[KeyFile]) -> tuple[pl.DataFrame, Flags, list[int]]:
    """Return the key columns of all rows as k0, k1…, the tombstones among them, and the number of rows of each file."""
    tables, gone, counts = [], [], []
    runs = [list(run) for _, run in groupby(files, _alike)]
    for run, read in zip(runs, _read_each(runs), strict=True):
        keys = [_plain(read.column(name)) for name in run[0].key_columns]
        tables.append(pa.table(keys, names=[f"k{at}" for at in range(len(keys))]))
        gone.append(read.column(OP).to_numpy() == TOMBSTONE if run[0].is_delta else np.zeros(len(read), bool))
        counts += [file.rows for file in run] if run[0].content else [len(read)]
    whole = pl.from_arrow(pa.concat_tables(tables, promote_options="permissive"))
    if not isinstance(whole, pl.DataFrame):
        raise TypeError("a table of keys")
    flags = np.concatenate(gone)
    if sum(counts) != len(flags):
        raise ValueError("inlined files have more or fewer rows than their entries say")
    return whole, flags, counts


def _alike(file: KeyFile) -> Hashable:
    """Return a value that is equal for inlined files that can be read as one."""
    return (file.key_columns, file.is_delta, head_of(file.content)) if file.content else file.at


def _read_each(runs: Sequence[Sequence[KeyFile]]) -> Iterable[pa.Table]:
    """Read the keys and tombstones of each run of files; from an object store, several runs at once."""
    if any(not is_local(storage(run[0].path)[0]) for run in runs if not run[0].content):
        return in_threads(_read_keys_of, runs)
    return map(_read_keys_of, runs)


def _read_keys_of(run: Sequence[KeyFile]) -> pa.Table:
    file = run[0]
    names = [*file.key_columns, *([OP] if file.is_delta else [])]
    if file.content:
        return rows_in(joined([inlined.content for inlined in run])).select(names)
    lake, path = storage(file.path)
    with open_to_read(lake, path) as stream:
        opened = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", binary_type=pa.binary_view())
        return opened.read(columns=names, use_threads=False)  # tasks run side by side as it is


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast a column to a type that is the same for files of all writers."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us"))
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):  # of inlined rows
        return column.cast(pa.string_view())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary_view())
    return column
