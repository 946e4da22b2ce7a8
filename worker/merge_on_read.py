"""Rows that are hidden, as words of 64 bits, and a scan without them.

A dirty scan reads files natively, each row with its position in the file, and leaves out by a broadcast anti-join those
positions whose bit is set:

    key  = hash of the file's path << bits  XOR  position >> 6      one for 64 rows, so few and cheap to look up
    bits = bit (position & 63)

Where the words come from is all that tells the tables apart. In an append table the driver makes them from the delete
sets. In a primary-key table a task a bucket makes them from the key columns alone, with polars: an image is hidden by a
newer one of its key, a tombstone hides itself. The other columns are read natively, with all that Spark can prune.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from worker.schema import OP
from worker.staging import storage

KEY: Final = "_laketx_word"
BITS: Final = "_laketx_bits"
WORDS: Final = pa.schema([(KEY, pa.int64()), (BITS, pa.int64())])
WORDS_DDL: Final = f"{KEY} bigint, {BITS} bigint"
TOMBSTONE: Final = 1
_MASK: Final = (1 << 64) - 1


# -- keys of words -----------------------------------------------------------------------------------------------------


def word_key(path_hash: int, bits: int) -> int:
    """The key of a file's first word, as Spark computes it: signed, the hash's upper bits cut."""
    return _signed(path_hash << bits)


def key_column(path: Column, position: Column, bits: int) -> Column:
    return sf.shiftleft(sf.xxhash64(path), bits).bitwiseXOR(sf.shiftright(position, 6))


def without_hidden(rows: DataFrame, words: DataFrame, key: Column, position: Column) -> DataFrame:
    """The rows whose bit isn't set."""
    bit = sf.getbit(words[BITS], position.bitwiseAND(sf.lit(63)).cast("int"))
    return rows.join(sf.broadcast(words), (key == words[KEY]) & (bit == 1), "left_anti")


def only_hidden(rows: DataFrame, words: DataFrame, key: Column, position: Column) -> DataFrame:
    """The rows whose bit is set."""
    bit = sf.getbit(words[BITS], position.bitwiseAND(sf.lit(63)).cast("int"))
    return rows.join(sf.broadcast(words), (key == words[KEY]) & (bit == 1), "left_semi")


def words_of(positions: np.ndarray[Any, np.dtype[np.uint64]], first_key: int) -> tuple[Any, Any]:
    """Keys and bits of sorted positions."""
    words = positions >> np.uint64(6)
    masks = np.uint64(1) << (positions & np.uint64(63))
    begins = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]])) if len(words) else np.empty(0, np.int64)
    bits = np.bitwise_or.reduceat(masks, begins) if len(words) else masks
    keys = words[begins] ^ np.uint64(first_key & _MASK)
    return keys.view(np.int64), bits.view(np.int64)


def words_table(parts: Iterable[tuple[Any, Any]]) -> pa.Table:
    listed = list(parts)
    if not listed:
        return WORDS.empty_table()
    keys, bits = (np.concatenate([part[side] for part in listed]) for side in (0, 1))
    return pa.table([keys, bits], schema=WORDS)


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
    """A file of a bucket: where it lies, what hides what, its first word's key, and the key columns' names in it."""

    path: str
    data_version: int
    first_key: int
    key_columns: tuple[str, ...]
    is_delta: bool


@dataclass(frozen=True, slots=True)
class Bucket:
    """Files whose keys hide each other."""

    files: tuple[KeyFile, ...]


def hidden_by_key(spark: SparkSession, buckets: Sequence[Bucket]) -> DataFrame:
    """The words of the rows that newer images of their keys hide, and of tombstones: a task a bucket."""
    work = pa.table({"bucket": pa.array([pickle.dumps(bucket) for bucket in buckets], pa.binary())})
    return spark.createDataFrame(work).mapInArrow(_hidden_in_batches, WORDS_DDL)


def _hidden_in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for pickled in batch.column(0):
            bucket: Bucket = pickle.loads(pickled.as_py())  # noqa: S301 - made by the driver of this job
            yield from words_table(hidden_in(bucket)).to_batches()


def hidden_in(bucket: Bucket) -> Iterator[tuple[Any, Any]]:
    """The words of one bucket."""
    lowest = min(file.data_version for file in bucket.files)
    newer = [file for file in bucket.files if file.data_version > lowest]
    latest, hidden = latest_keys([_read_keys(file, at) for at, file in enumerate(newer)])
    for at, file in enumerate(newer):
        yield _words(file, hidden.filter(pl.col("_file") == at)["_at"])
    for file in bucket.files:
        if file.data_version == lowest:
            yield _words(file, hidden_at_lowest(_read_keys(file, 0), latest))


def latest_keys(parts: list[pl.DataFrame]) -> tuple[pl.DataFrame | None, pl.DataFrame]:
    """The keys of the newer files, and their rows that aren't shown."""
    if not parts:
        return None, pl.DataFrame(schema={"_file": pl.Int32, "_at": pl.UInt32})
    rows = pl.concat(parts).sort("_version", descending=True, maintain_order=True)
    keys = [name for name in rows.columns if name.startswith("k")]
    rows = rows.with_columns(pl.struct(keys).is_first_distinct().alias("_is_first"))
    hidden = rows.filter(~pl.col("_is_first") | pl.col("_is_gone")).select("_file", "_at")
    return rows.filter("_is_first").select(keys), hidden


def hidden_at_lowest(rows: pl.DataFrame, latest: pl.DataFrame | None) -> pl.Series:
    gone = rows.filter("_is_gone")["_at"]
    if latest is None:
        return gone
    newer = rows.join(latest, on=latest.columns, how="semi")["_at"]
    return newer if gone.is_empty() else pl.concat([newer, gone]).unique()


def _words(file: KeyFile, at: pl.Series) -> tuple[Any, Any]:
    return words_of(at.sort().cast(pl.UInt64).to_numpy(), file.first_key)


def _read_keys(file: KeyFile, number: int) -> pl.DataFrame:
    """The key columns as k0, k1…, with the row's place and whether it is a tombstone."""
    files, path = storage(file.path)
    names = [*file.key_columns, *([OP] if file.is_delta else [])]
    read = pq.ParquetFile(path, filesystem=files, coerce_int96_timestamp_unit="us").read(columns=names)
    keys = [_plain(read.column(name)) for name in file.key_columns]
    frame = pl.DataFrame({f"k{at}": pl.from_arrow(column) for at, column in enumerate(keys)})
    gone = pl.Series(read.column(OP).to_numpy()) == TOMBSTONE if file.is_delta else pl.lit(False)
    return frame.with_row_index("_at").with_columns(
        pl.lit(number, pl.Int32).alias("_file"),
        pl.lit(file.data_version, pl.Int64).alias("_version"),
        gone.alias("_is_gone"),
    )


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
