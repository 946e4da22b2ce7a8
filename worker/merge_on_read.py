"""Rows that are hidden, as blocks of bits, and a scan without them.

A dirty scan reads files natively, each row with its position in the file, and leaves out by a broadcast anti-join those
positions whose bit is set:

    key   = number of the file << bits  XOR  position >> 9      one for 512 rows, so few and cheap to look up
    words = 8 words of 64 bits: bit (position & 63) of the word (position >> 6 & 7)

The number of a file is something that Spark knows of each row for free: the file's size, or else a hash of its path.

Where the blocks come from is all that tells the tables apart. In an append table the driver makes them from the delete
sets. In a primary-key table a task a bucket makes them from the key columns alone, with polars, or the driver where
there are few rows: an image is hidden by a newer one of its key, a tombstone hides itself. The other columns are read
natively, with all that Spark can prune.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from worker.schema import OP
from worker.storage import storage

KEY: Final = "_laketx_block"
WORDS: Final = "_laketx_words"
WORD_BITS: Final = 6  # of a position: its place in its word
BLOCK_BITS: Final = 9  # of a position: its place in its block
BLOCK_WORDS: Final = 1 << BLOCK_BITS - WORD_BITS
BLOCKS: Final = t.StructType(
    [t.StructField(KEY, t.LongType(), False), t.StructField(WORDS, t.ArrayType(t.LongType(), False), False)]
)
TOMBSTONE: Final = 1
FILES_HERE: Final = 64
ROWS_HERE: Final = 1 << 20
THREADS_HERE: Final = 16
_MASK: Final = (1 << 64) - 1
_PLACE: Final = "_at"
_OTHER: Final = "_other"
_HASH: Final = "_hash"

Flags = np.ndarray[Any, np.dtype[Any]]
Blocks = tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]  # keys; words, a row a block


# -- blocks of bits ----------------------------------------------------------------------------------------------------


def key_bits(last_position: int) -> int:
    """How many bits of a key tell the blocks of one file apart."""
    return (last_position >> BLOCK_BITS).bit_length()


def first_key(number: int, bits: int) -> int:
    """The key of a file's first block, as Spark computes it: signed, the number's upper bits cut."""
    return _signed(number << bits)


def without_hidden(rows: DataFrame, blocks: DataFrame, number: str, bits: int, position: str) -> DataFrame:
    """The rows whose bit isn't set. The number of a row's file and its position are expressions on the rows."""
    return rows.join(sf.broadcast(blocks), _is_hidden(number, bits, position), "left_anti")


def only_hidden(rows: DataFrame, blocks: DataFrame, number: str, bits: int, position: str) -> DataFrame:
    """The rows whose bit is set."""
    return rows.join(sf.broadcast(blocks), _is_hidden(number, bits, position), "left_semi")


def _is_hidden(number: str, bits: int, position: str) -> Column:
    """One text for all of it: each operation on a Column is several calls to the JVM."""
    key = f"shiftleft({number}, {bits}) ^ shiftright({position}, {BLOCK_BITS})"
    word = f"{WORDS}[cast(shiftright({position}, {WORD_BITS}) & {BLOCK_WORDS - 1} as int)]"
    return sf.expr(f"({key}) = {KEY} and getbit({word}, cast(({position}) & 63 as int)) = 1")


def blocks_of(positions: np.ndarray[Any, np.dtype[np.uint64]], first: int) -> Blocks:
    """Of sorted positions in a file; `first` is the key of its first block."""
    words = positions >> np.uint64(WORD_BITS)
    begins = np.flatnonzero(_is_new(words))
    bits = np.bitwise_or.reduceat(np.uint64(1) << (positions & np.uint64(63)), begins) if len(begins) else words
    words = words[begins]
    numbers = words >> np.uint64(BLOCK_BITS - WORD_BITS)
    is_new = _is_new(numbers)
    found = np.zeros((np.count_nonzero(is_new), BLOCK_WORDS), np.uint64)
    found[np.cumsum(is_new) - 1, words & np.uint64(BLOCK_WORDS - 1)] = bits
    keys = numbers[is_new] ^ np.uint64(first & _MASK)
    return keys.view(np.int64), found.view(np.int64)


def _is_new(sorted_numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> Flags:
    """Whether each differs from the one before."""
    return np.concatenate([np.ones(min(len(sorted_numbers), 1), bool), sorted_numbers[1:] != sorted_numbers[:-1]])


def has_bits(blocks: Blocks, positions: np.ndarray[Any, np.dtype[np.uint64]]) -> Flags:
    """Which positions have their bit set in blocks whose keys are sorted, as a scan looks them up."""
    keys, words = blocks
    wanted = (positions >> np.uint64(BLOCK_BITS)).view(np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    word = words.view(np.uint64)[at, positions >> np.uint64(WORD_BITS) & np.uint64(BLOCK_WORDS - 1)]
    found: Flags = (keys[at] == wanted) & (word >> (positions & np.uint64(63)) & np.uint64(1) == 1)
    return found


def blocks_table(parts: Iterable[Blocks]) -> pa.Table:
    listed = list(parts)
    keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in listed)])
    words = np.concatenate([np.empty((0, BLOCK_WORDS), np.int64), *(words for _, words in listed)])
    ends = np.arange(0, words.size + 1, BLOCK_WORDS, dtype=np.int32)
    return pa.table([pa.array(keys), pa.ListArray.from_arrays(ends, words.ravel())], names=[KEY, WORDS])


def blocks_frame(spark: SparkSession, blocks: pa.Table) -> DataFrame:
    return spark.createDataFrame(blocks, BLOCKS)


def positions_of(bitmap: BitMap64) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Sorted."""
    return np.frombuffer(bitmap.to_array(), dtype=np.uint64) if len(bitmap) else np.empty(0, np.uint64)


def xxhash64(text: str, seed: int = 42) -> int:
    """Spark's xxhash64 of a string, signed."""
    payload = text.encode()
    at, end = 0, len(payload)
    if end >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at <= end - 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(payload[at : at + 8], "little"))
                at += 8
        found = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        found = (seed + _P5) & _MASK
    found = (found + end) & _MASK
    while at <= end - 8:
        found ^= _round(0, int.from_bytes(payload[at : at + 8], "little"))
        found = (_rotated(found, 27) * _P1 + _P4) & _MASK
        at += 8
    if at <= end - 4:
        found ^= int.from_bytes(payload[at : at + 4], "little") * _P1 & _MASK
        found = (_rotated(found, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in payload[at:]:
        found = _rotated(found ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    found = (found ^ (found >> 33)) * _P2 & _MASK
    found = (found ^ (found >> 29)) * _P3 & _MASK
    return _signed(found ^ (found >> 32))


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(number: int, by: int) -> int:
    number &= _MASK
    return ((number << by) | (number >> (64 - by))) & _MASK


def _round(lane: int, part: int) -> int:
    return _rotated(lane + part * _P2, 31) * _P1 & _MASK


def _signed(number: int) -> int:
    number &= _MASK
    return number - (1 << 64) if number >> 63 else number


# -- primary keys ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file of a bucket: where it lies, what hides what, its first block's key, and the key columns' names in it."""

    path: str
    rows: int
    data_version: int
    first_key: int
    key_columns: tuple[str, ...]
    is_delta: bool


@dataclass(frozen=True, slots=True)
class Bucket:
    """Files whose keys hide each other."""

    files: tuple[KeyFile, ...]


def hidden_by_key(spark: SparkSession, buckets: Sequence[Bucket]) -> DataFrame | None:
    """The blocks of the rows that newer images of their keys hide, and of tombstones: a task a bucket.

    Few of them the driver makes itself, in less time than it takes to begin a job; None where there are none.
    """
    files = [file for bucket in buckets for file in bucket.files]
    if len(files) <= FILES_HERE and sum(file.rows for file in files) <= ROWS_HERE:
        with ThreadPoolExecutor(min(len(buckets), THREADS_HERE)) as pool:
            found = pool.map(lambda bucket: list(hidden_in(bucket)), buckets)
            blocks = blocks_table(part for parts in found for part in parts)
        return blocks_frame(spark, blocks) if len(blocks) else None
    work = pa.table({"bucket": pa.array([pickle.dumps(bucket) for bucket in buckets], pa.binary())})
    return spark.createDataFrame(work).mapInArrow(_hidden_in_batches, BLOCKS)


def _hidden_in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for pickled in batch.column(0):
            bucket: Bucket = pickle.loads(pickled.as_py())  # noqa: S301 - made by the driver of this job
            yield from blocks_table(hidden_in(bucket)).to_batches()


def hidden_in(bucket: Bucket) -> Iterator[Blocks]:
    """Of one bucket."""
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
    """Whether no row before has the key."""
    whole = keys.to_series() if keys.width == 1 else keys.to_struct()
    return whole.is_first_distinct()


def places_among(keys: pl.DataFrame, latest: pl.DataFrame) -> Flags:
    """Where the keys that are among others stand: ascending numbers are searched, composite keys go by a hash first."""
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
    rows, others = (
        one.hash_rows().to_frame(_HASH).with_row_index(at) for one, at in ((keys, _PLACE), (latest, _OTHER))
    )
    pairs = rows.join(others, on=_HASH)
    ours, theirs = keys[pairs[_PLACE]], latest[pairs[_OTHER]]
    same = pl.select(pl.all_horizontal([ours[name].eq(theirs[name]) for name in keys.columns])).to_series()
    return pairs[_PLACE].filter(same).to_numpy()


def _blocks(files: Sequence[KeyFile], counts: Sequence[int], hidden: Flags) -> Iterator[Blocks]:
    end = 0
    for file, count in zip(files, counts, strict=True):
        begin, end = end, end + count
        yield blocks_of(np.flatnonzero(hidden[begin:end]).astype(np.uint64), file.first_key)


def _read_keys(files: Sequence[KeyFile]) -> tuple[pl.DataFrame, Flags, list[int]]:
    """The key columns of all rows as k0, k1…, which of them are tombstones, and how many rows each file has."""
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
    """Files of different writers: one type for one column."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us"))
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    return column


# -- delete sets -------------------------------------------------------------------------------------------------------


def within(bitmap: BitMap64, first: int, last: int) -> BitMap64:
    """The row ids from first to last."""
    if not len(bitmap) or last < bitmap.min() or first > bitmap.max():
        return BitMap64()
    span = BitMap64()
    span.add_range(max(first, bitmap.min()), min(last, bitmap.max()) + 1)
    return bitmap & span
