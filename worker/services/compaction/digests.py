"""Digests of rows in any order, with which a compaction proves that it lost, duplicated and changed nothing.

Each row is hashed. The digest has the number of rows, the sum of the hashes, and the sum of the scrambled hashes. Sums
of parts add up to the sum of the whole, hidden rows can be subtracted, and a duplicate row counts twice.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

HASH: Final = "_laketx_hash"
KIND: Final = f"polars {pl.__version__}"
_SEED: Final = 0x1A4E
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest; initially of no rows."""

    rows: int = 0
    sum: int = 0
    scrambled: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            self.rows + other.rows, (self.sum + other.sum) & _MASK, (self.scrambled + other.scrambled) & _MASK
        )

    def __sub__(self, other: Digest) -> Digest:
        return Digest(
            self.rows - other.rows, (self.sum - other.sum) & _MASK, (self.scrambled - other.scrambled) & _MASK
        )

    def to_bytes(self) -> bytes:
        """Equal for equal rows, if the same hash was used, which the first part names."""
        return KIND.encode() + b":" + struct.pack(">qQQ", self.rows, self.sum, self.scrambled)


def digest_of(hashes: pl.Series) -> Digest:
    numbers = hashes.to_numpy()
    return Digest(len(numbers), _sum(numbers), _sum(_scrambled(numbers)))


def row_hashes(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Hashes of these columns in this order: the same in every process with the same Polars version."""
    return rows.select(map(named, columns)).hash_rows(_SEED)


def named(column: str) -> pl.Expr:
    """The column by its literal name: polars treats some names as patterns."""
    is_pattern = column == "*" or (column.startswith("^") and column.endswith("$"))
    return pl.col(f"^{re.escape(column)}$" if is_pattern else column)


def _sum(numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> int:
    return int(np.add.reduce(numbers, dtype=np.uint64)) if len(numbers) else 0


def _scrambled(numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return (numbers ^ (numbers >> _SHIFT)) * _ODD
