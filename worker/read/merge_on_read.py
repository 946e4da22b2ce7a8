"""Hidden rows of a primary-key table: a newer image of a key hides an older one, and a tombstone hides itself.

One Spark task per bucket finds them from the key columns alone, with polars; or the driver does, if there are few rows
or no executors.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from worker.base.schema import OP, TOMBSTONE
from worker.base.session import own_cores
from worker.base.storage import storage
from worker.read.hidden_rows import LONGS, WORDS, Form, HiddenRows, InArrays, Span, column, form_of, hidden_rows, lists
from worker.read.position_blocks import BLOCK_WORDS, Blocks, Flags, blocks_of, together

FILE: Final = "_laketx_file"
NUMBER: Final = "_laketx_number"
FILES_HERE: Final = 64
ROWS_HERE: Final = 1 << 20
THREADS_HERE: Final = 16
FILTER_BITS: Final = 20
_PLACE: Final = "_at"
_OTHER: Final = "_other"
_HASH: Final = "_hash"
_FOUND: Final = pa.schema([column(FILE, pa.int64()), column(NUMBER, pa.int64()), column(WORDS, LONGS)])


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file of a bucket: its path, its data version, its position among all files, its names of the key columns."""

    path: str
    rows: int
    data_version: int
    at: int
    key_columns: tuple[str, ...]
    is_delta: bool


@dataclass(frozen=True, slots=True)
class BucketToMerge:
    """Files whose keys can hide each other."""

    files: tuple[KeyFile, ...]


def hidden_by_key(spark: SparkSession, files: Sequence[Span], buckets: Sequence[BucketToMerge]) -> HiddenRows | None:
    """The rows hidden by newer images of their keys, and tombstones; None if there are known to be none."""
    threads = threads_here(spark, buckets)
    if threads:
        with ThreadPoolExecutor(min(len(buckets), threads)) as pool:
            found = pool.map(lambda bucket: list(hidden_in(bucket)), buckets)
            blocks = together(part for parts in found for part in parts)
        return hidden_rows(spark, files, blocks) if len(blocks) else None
    form = form_of(files)
    work = pa.table({"bucket": pa.array([pickle.dumps(bucket) for bucket in buckets], pa.binary())})
    by_tasks = spark.createDataFrame(work).mapInArrow(_hidden_in_batches, from_arrow_schema(_FOUND))
    if isinstance(form, InArrays):
        by_tasks = by_tasks.repartition(1)
    return HiddenRows(by_tasks.mapInArrow(partial(_formed, form), from_arrow_schema(form.schema)), form.says_so)


def threads_here(spark: SparkSession, buckets: Sequence[BucketToMerge]) -> int:
    """The number of threads in which the driver itself finds hidden rows; 0 if Spark tasks should.

    Few rows are read in less time than it takes to begin a job. Without executors the driver always does it.
    """
    files = [file for bucket in buckets for file in bucket.files]
    if len(files) <= FILES_HERE and sum(file.rows for file in files) <= ROWS_HERE:
        return THREADS_HERE
    return own_cores(spark)


def _hidden_in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for pickled in batch.column(0):
            bucket: BucketToMerge = pickle.loads(pickled.as_py())  # noqa: S301 - made by the driver of this job
            found = together(hidden_in(bucket))
            arrays = [pa.array(found.files), pa.array(found.numbers), lists(found.words.ravel(), BLOCK_WORDS)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_FOUND)


def _formed(form: Form, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from form.table(together(map(_of_batch, batches))).to_batches()


def _of_batch(batch: pa.RecordBatch) -> Blocks:
    files, numbers = (batch.column(name).to_numpy() for name in (FILE, NUMBER))
    return Blocks(files, numbers, batch.column(WORDS).flatten().to_numpy().reshape(-1, BLOCK_WORDS))


def hidden_in(bucket: BucketToMerge) -> Iterator[Blocks]:
    """The hidden rows of one bucket."""
    lowest = min(file.data_version for file in bucket.files)
    newer = sorted((one for one in bucket.files if one.data_version > lowest), key=lambda one: -one.data_version)
    latest = None
    if newer:
        keys, gone, counts = _read_keys(newer)
        first = is_first(keys)
        latest = keys.filter(first)
        yield from _blocks(newer, counts, ~first.to_numpy() | gone)
    for file in bucket.files:
        if file.data_version == lowest:
            keys, hidden, counts = _read_keys([file])
            if latest is not None:
                hidden[places_among(keys, latest)] = True
            yield from _blocks([file], counts, hidden)


def is_first(keys: pl.DataFrame) -> pl.Series:
    """Whether no earlier row has the key."""
    whole = keys.to_series() if keys.width == 1 else keys.to_struct()
    return whole.is_first_distinct()


def places_among(keys: pl.DataFrame, latest: pl.DataFrame) -> Flags:
    """The positions of keys that are among others: ascending numbers are searched, composite keys compared by a hash
    first.
    """
    if keys.schema != latest.schema:  # the one or the other from before a widening
        kinds = pl.concat([keys.head(0), latest.head(0)], how="vertical_relaxed").schema
        keys, latest = keys.cast(kinds), latest.cast(kinds)
    if keys.width > 1 and not any(kind.is_float() for kind in keys.dtypes):
        return _places_by_hash(keys, latest)
    if keys.width == 1 and (keys.dtypes[0].is_integer() or keys.dtypes[0].is_temporal()):
        ours, theirs = (one.to_series().to_physical().to_numpy() for one in (keys, latest))
        if (ours[1:] > ours[:-1]).all():
            return _places_in_order(ours, np.sort(theirs))
    return keys.with_row_index(_PLACE).join(latest, on=latest.columns, how="semi")[_PLACE].to_numpy()


def _places_in_order(ascending: Flags, wanted: Flags) -> Flags:
    at = np.searchsorted(ascending, wanted)
    wanted, at = wanted[at < len(ascending)], at[at < len(ascending)]
    found: Flags = at[ascending[at] == wanted]
    return found


def _places_by_hash(keys: pl.DataFrame, latest: pl.DataFrame) -> Flags:
    """A few bits of a hash exclude most rows, the whole hash nearly all others, and the keys the rest."""
    ours, theirs = keys.hash_rows(), latest.hash_rows()
    seen = np.zeros(1 << FILTER_BITS, bool)
    seen[_lowest_bits(theirs)] = True
    near = np.flatnonzero(seen[_lowest_bits(ours)])
    rows = pl.DataFrame({_HASH: ours[near], _PLACE: near})
    pairs = rows.join(theirs.to_frame(_HASH).with_row_index(_OTHER), on=_HASH)
    found, others = keys[pairs[_PLACE]], latest[pairs[_OTHER]]
    same = pl.select(pl.all_horizontal([found[name].eq(others[name]) for name in keys.columns])).to_series()
    return pairs[_PLACE].filter(same).to_numpy()


def _lowest_bits(hashes: pl.Series) -> Flags:
    return hashes.to_numpy() & np.uint64((1 << FILTER_BITS) - 1)


def _blocks(files: Sequence[KeyFile], counts: Sequence[int], hidden: Flags) -> Iterator[Blocks]:
    end = 0
    for file, count in zip(files, counts, strict=True):
        begin, end = end, end + count
        yield blocks_of(np.flatnonzero(hidden[begin:end]).astype(np.uint64), file.at)


def _read_keys(files: Sequence[KeyFile]) -> tuple[pl.DataFrame, Flags, list[int]]:
    """The key columns of all rows as k0, k1…, the tombstones among them, and the number of rows of each file."""
    tables, gone = [], []
    for file in files:
        names = [*file.key_columns, *([OP] if file.is_delta else [])]
        lake, path = storage(file.path)
        opened = pq.ParquetFile(path, filesystem=lake, coerce_int96_timestamp_unit="us", binary_type=pa.binary_view())
        read = opened.read(columns=names, use_threads=False)  # tasks run side by side as it is
        keys = [_plain(read.column(name)) for name in file.key_columns]
        tables.append(pa.table(keys, names=[f"k{at}" for at in range(len(keys))]))
        gone.append(read.column(OP).to_numpy() == TOMBSTONE if file.is_delta else np.zeros(len(read), bool))
    whole = pl.from_arrow(pa.concat_tables(tables, promote_options="permissive"))
    if not isinstance(whole, pl.DataFrame):
        raise TypeError("a table of keys")
    return whole, np.concatenate(gone), [len(one) for one in tables]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """One type per column for files of different writers."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us"))
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    return column
