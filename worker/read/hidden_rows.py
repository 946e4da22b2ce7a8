"""A scan without hidden rows.

A dirty scan reads files natively, each row with its position in the file. A broadcast anti-join removes the positions
whose bit is set in `blocks`. The number of a file is a value that Spark knows for each row: the file's size, or else a
hash of its path. The blocks are a single row of arrays, with a bit for every row of the files; or, if those would be
too long, one row per block, joined by a key of the file's number and the block's.

The two kinds of table differ only in the source of the blocks. In an append table the driver builds them from the
delete sets; in a primary-key table `merge_on_read` builds them from the key columns alone. The other columns are read
natively, with all of Spark's pruning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from worker.base.spark_hash import signed
from worker.read.position_blocks import BLOCK_BITS, BLOCK_WORDS, WORD_BITS, Blocks, Numbers

STARTS: Final = "_laketx_starts"
WORDS: Final = "_laketx_words"
KEY: Final = "_laketx_block"
FILES_IN_ARRAYS: Final = 512
BLOCKS_IN_ARRAYS: Final = 1 << 18  # 16 MiB
NOWHERE: Final = -(1 << 31)  # what is added leaves it negative


def column(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


LONGS: Final = pa.list_(column("element", pa.int64()))


def lists(values: Numbers, length: int) -> pa.ListArray:
    """All values, in lists of the given length."""
    ends = np.arange(0, len(values) + 1, length, dtype=np.int32)
    return pa.ListArray.from_arrays(ends, pa.array(values), type=LONGS)


@dataclass(frozen=True, slots=True)
class Span:
    """A file whose rows are looked up: its number, and the range of positions of all its rows."""

    number: int
    first: int
    last: int

    @property
    def blocks(self) -> int:
        return (self.last >> BLOCK_BITS) - (self.first >> BLOCK_BITS) + 1


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """A frame of hidden rows for Spark to look up, and the condition that connects it to a row of a scan.

    The number of a row's file and its position are expressions on the rows, filled in for {number} and {position}. The
    condition is one text, because each operation on a Column is several calls to the JVM.
    """

    frame: DataFrame
    says_so: str

    def without(self, rows: DataFrame, number: str, position: str) -> DataFrame:
        """The rows that are not hidden."""
        return self._joined(rows, number, position, "left_anti")

    def only(self, rows: DataFrame, number: str, position: str) -> DataFrame:
        """The rows that are hidden."""
        return self._joined(rows, number, position, "left_semi")

    def _joined(self, rows: DataFrame, number: str, position: str, how: str) -> DataFrame:
        says_so = self.says_so.format(number=f"({number})", position=f"({position})")
        return rows.join(sf.broadcast(self.frame), sf.expr(says_so), how)


def hidden_rows(spark: SparkSession, files: Sequence[Span], blocks: Blocks) -> HiddenRows:
    """The files of the blocks are positions in `spans`; all blocks lie in their spans."""
    form = form_of(files)
    return HiddenRows(spark.createDataFrame(form.table(blocks)), form.says_so)


class InArrays:
    """A single row of two arrays: where each file's words begin in the second array, and all words of all blocks.

    Arrays are looked up faster than a hash table. A number that no file has gets another file's words, or none, which
    Spark refuses.
    """

    schema: Final = pa.schema([column(STARTS, LONGS), column(WORDS, LONGS)])

    def __init__(self, files: Sequence[Span]) -> None:
        numbers = np.array([one.number for one in files])
        modulus = _modulus(numbers)
        self._firsts = np.array([one.first >> BLOCK_BITS for one in files])
        self._ends = np.cumsum([one.blocks for one in files])
        self._begins = np.concatenate([[0], self._ends[:-1]])
        self._starts = np.full(modulus, NOWHERE, np.int64)
        self._starts[numbers % modulus] = (self._begins - self._firsts) * BLOCK_WORDS
        begin = f"{STARTS}[cast({{number}} % {modulus} as int)]"
        self.says_so: Final = _has_bit(f"{begin} + shiftright({{position}}, {WORD_BITS})")

    def table(self, blocks: Blocks) -> pa.Table:
        places = self._begins[blocks.files] + blocks.numbers - self._firsts[blocks.files]
        if (places < self._begins[blocks.files]).any() or (places >= self._ends[blocks.files]).any():
            raise AssertionError("a block of positions that its file doesn't have")  # it would hide another file's rows
        words = np.zeros((self._ends[-1], BLOCK_WORDS), np.int64)
        words[places] = blocks.words
        return pa.table([lists(one, len(one)) for one in (self._starts, words.ravel())], schema=self.schema)


class ByKey:
    """One row per block; its key may truncate the upper bits of a file's number."""

    schema: Final = pa.schema([column(KEY, pa.int64()), column(WORDS, LONGS)])

    def __init__(self, files: Sequence[Span]) -> None:
        bits = max(one.last >> BLOCK_BITS for one in files).bit_length()
        self._firsts = np.array([signed(one.number << bits) for one in files], np.int64)
        key = f"shiftleft({{number}}, {bits}) ^ shiftright({{position}}, {BLOCK_BITS})"
        word = f"shiftright({{position}}, {WORD_BITS}) & {BLOCK_WORDS - 1}"
        self.says_so: Final = f"({key}) = {KEY} and {_has_bit(word)}"

    def table(self, blocks: Blocks) -> pa.Table:
        keys = self._firsts[blocks.files] ^ blocks.numbers
        return pa.table([pa.array(keys), lists(blocks.words.ravel(), BLOCK_WORDS)], schema=self.schema)


Form = InArrays | ByKey  # how blocks become a frame; the columns are never NULL: Spark needn't look


def form_of(files: Sequence[Span]) -> Form:
    """Arrays, unless they would be long: one grows with the files, the other with the square of their number."""
    if len(files) <= FILES_IN_ARRAYS and sum(one.blocks for one in files) <= BLOCKS_IN_ARRAYS:
        return InArrays(files)
    return ByKey(files)


def _modulus(numbers: Numbers) -> int:
    """The smallest modulus, from a quarter of the square of their count on, with distinct remainders."""
    modulus = max(len(numbers), len(numbers) ** 2 // 4)
    while len(np.unique(numbers % modulus)) < len(numbers):
        modulus += 1
    return modulus


def _has_bit(word: str) -> str:
    """A Spark expression for whether the position's bit is set in its word."""
    return f"getbit({WORDS}[cast({word} as int)], cast({{position}} & 63 as int)) = 1"
