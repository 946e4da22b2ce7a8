"""A scan without the rows that are hidden.

A dirty scan reads files natively, each row with its position in the file, and leaves out by a broadcast anti-join those
positions whose bit is set in `blocks`. The number of a file is something that Spark knows of each row for free: the
file's size, or else a hash of its path. The blocks come as a single row of arrays, in which a block's words are found
by two look-ups; or, where those arrays would be large, as a row each, to be joined by a key of the file's number and
the block's.

Where the blocks come from is all that tells the tables apart. In an append table the driver makes them from the delete
sets, in a primary-key table `merge_on_read` does from the key columns alone. The other columns are read natively, with
all that Spark can prune.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from worker.blocks import BLOCK_BITS, BLOCK_WORDS, WORD_BITS, Blocks, Numbers
from worker.xxhash import signed

STARTS: Final = "_laketx_starts"
INDEX: Final = "_laketx_index"
WORDS: Final = "_laketx_words"
KEY: Final = "_laketx_block"
FILES_INDEXED: Final = 512
BLOCKS_INDEXED: Final = 1 << 22  # four bytes each
NOWHERE: Final = -(1 << 31)  # what is added leaves it negative


def list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(column("element", kind))


def column(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def lists(values: np.ndarray[Any, np.dtype[Any]], length: int) -> pa.ListArray:
    """All values, so many in a list."""
    ends = np.arange(0, len(values) + 1, length, dtype=np.int32)
    return pa.ListArray.from_arrays(ends, pa.array(values), type=list_of(pa.from_numpy_dtype(values.dtype)))


LONGS: Final = list_of(pa.int64())


@dataclass(frozen=True, slots=True)
class Span:
    """A file whose rows are looked up: the number it goes by, and between which positions all its rows are."""

    number: int
    first: int
    last: int

    @property
    def blocks(self) -> int:
        return (self.last >> BLOCK_BITS) - (self.first >> BLOCK_BITS) + 1


@dataclass(frozen=True, slots=True)
class Hidden:
    """What is hidden, for Spark to look up: a frame, and which row of it says so of a row of a scan.

    The number of a row's file and its position are expressions on the rows, filled in for {number} and {position}. One
    text for all of it: each operation on a Column is several calls to the JVM.
    """

    frame: DataFrame
    says_so: str

    def without(self, rows: DataFrame, number: str, position: str) -> DataFrame:
        """The rows that are not hidden."""
        return self._joined(rows, number, position, "left_anti")

    def only(self, rows: DataFrame, number: str, position: str) -> DataFrame:
        """The rows that are."""
        return self._joined(rows, number, position, "left_semi")

    def _joined(self, rows: DataFrame, number: str, position: str, how: str) -> DataFrame:
        says_so = self.says_so.format(number=f"({number})", position=f"({position})")
        return rows.join(sf.broadcast(self.frame), sf.expr(says_so), how)


def hidden_rows(spark: SparkSession, files: Sequence[Span], blocks: Blocks) -> Hidden:
    """The blocks' files are places among the files."""
    form = form_of(files)
    return Hidden(spark.createDataFrame(form.table(blocks)), form.says_so)


class Form(Protocol):
    """How blocks become a frame. The columns are never NULL: Spark needn't look."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def says_so(self) -> str: ...

    def table(self, blocks: Blocks) -> pa.Table:
        """Of all blocks; by key, of some."""


def form_of(files: Sequence[Span]) -> Form:
    """Arrays, unless they would be long: they grow with the files and with the square of their number."""
    if len(files) <= FILES_INDEXED and sum(one.blocks for one in files) <= BLOCKS_INDEXED:
        return InArrays(files)
    return ByKey(files)


class InArrays:
    """A row alone, of three arrays: where each file's blocks begin in the second, and each block's words in the third.

    Arrays are looked up in less time than a hash table. A number that none of the files has either has another one's
    place or has none, which Spark refuses.
    """

    schema: Final = pa.schema([column(STARTS, LONGS), column(INDEX, list_of(pa.int32())), column(WORDS, LONGS)])

    def __init__(self, files: Sequence[Span]) -> None:
        modulus = _modulus(np.array([one.number for one in files]))
        self._starts, self._begins, self._end = np.full(modulus, NOWHERE, np.int64), np.zeros(len(files), np.int64), 0
        for at, one in enumerate(files):
            self._starts[one.number % modulus] = self._begins[at] = self._end - (one.first >> BLOCK_BITS)
            self._end += one.blocks
        begin = f"{STARTS}[cast({{number}} % {modulus} as int)]"
        block = f"{INDEX}[cast({begin} + shiftright({{position}}, {BLOCK_BITS}) as int)]"
        self.says_so: Final = _has_bit(block)

    def table(self, blocks: Blocks) -> pa.Table:
        index = np.zeros(self._end, np.int32)  # most blocks are those at 0, where no bit is set
        index[self._begins[blocks.files] + blocks.numbers] = np.arange(1, len(blocks) + 1) * BLOCK_WORDS
        words = np.concatenate([np.zeros(BLOCK_WORDS, np.int64), blocks.words.ravel()])
        return pa.table([lists(one, len(one)) for one in (self._starts, index, words)], schema=self.schema)


class ByKey:
    """A row a block; in its key the upper bits of a file's number may be cut."""

    schema: Final = pa.schema([column(KEY, pa.int64()), column(WORDS, LONGS)])

    def __init__(self, files: Sequence[Span]) -> None:
        bits = max(one.last >> BLOCK_BITS for one in files).bit_length()
        self._firsts = np.array([signed(one.number << bits) for one in files], np.int64)
        key = f"shiftleft({{number}}, {bits}) ^ shiftright({{position}}, {BLOCK_BITS})"
        self.says_so: Final = f"({key}) = {KEY} and {_has_bit('0')}"

    def table(self, blocks: Blocks) -> pa.Table:
        keys = self._firsts[blocks.files] ^ blocks.numbers
        return pa.table([pa.array(keys), lists(blocks.words.ravel(), BLOCK_WORDS)], schema=self.schema)


def _modulus(numbers: Numbers) -> int:
    """Of which all numbers, different as they are, leave different remainders; of that size each seventh will do."""
    modulus = max(len(numbers), len(numbers) ** 2 // 4)
    while len(np.unique(numbers % modulus)) < len(numbers):
        modulus += 1
    return modulus


def _has_bit(block: str) -> str:
    """In Spark's words: of the position, in the block whose words begin there."""
    word = f"{WORDS}[{block} + cast(shiftright({{position}}, {WORD_BITS}) & {BLOCK_WORDS - 1} as int)]"
    return f"getbit({word}, cast({{position}} & 63 as int)) = 1"
