"""Positions of rows as blocks of bits: 8 words of 64, for 512 positions of a file.

words[position >> 6 & 7], bit position & 63
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64

WORD_BITS: Final = 6  # of a position: its place in its word
BLOCK_BITS: Final = 9  # of a position: its place in its block
BLOCK_WORDS: Final = 1 << BLOCK_BITS - WORD_BITS

Flags = np.ndarray[Any, np.dtype[Any]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Positions = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks with at least one bit set: the file of each, its number in that file, its words."""

    files: Numbers
    numbers: Numbers
    words: Numbers  # a row a block

    def __len__(self) -> int:
        return len(self.files)


def blocks_of(positions: Positions, file: int = 0) -> Blocks:
    """Return the blocks of sorted positions in a file."""
    words = positions >> np.uint64(WORD_BITS)
    begins = np.flatnonzero(_is_new(words))
    bits = np.bitwise_or.reduceat(np.uint64(1) << (positions & np.uint64(63)), begins) if len(begins) else words
    words = words[begins]
    numbers = words >> np.uint64(BLOCK_BITS - WORD_BITS)
    is_new = _is_new(numbers)
    block_words = np.zeros((np.count_nonzero(is_new), BLOCK_WORDS), np.uint64)
    block_words[np.cumsum(is_new) - 1, words & np.uint64(BLOCK_WORDS - 1)] = bits
    of_file = np.full(len(block_words), file, np.int64)
    return Blocks(of_file, numbers[is_new].view(np.int64), block_words.view(np.int64))


def _is_new(sorted_numbers: Positions) -> Flags:
    """Return whether each number differs from the previous one."""
    return np.concatenate([np.ones(min(len(sorted_numbers), 1), bool), sorted_numbers[1:] != sorted_numbers[:-1]])


def has_bits(blocks: Blocks, positions: Positions) -> Flags:
    """Return whether each position has its bit set in the blocks of one file."""
    numbers = (positions >> np.uint64(BLOCK_BITS)).view(np.int64)
    at = np.minimum(np.searchsorted(blocks.numbers, numbers), len(blocks) - 1)
    word = blocks.words.view(np.uint64)[at, positions >> np.uint64(WORD_BITS) & np.uint64(BLOCK_WORDS - 1)]
    flags: Flags = (blocks.numbers[at] == numbers) & (word >> (positions & np.uint64(63)) & np.uint64(1) == 1)
    return flags


def positions_of(bitmap: BitMap64) -> Positions:
    """Return the positions in a bitmap, sorted."""
    return np.frombuffer(bitmap.to_array(), dtype=np.uint64) if len(bitmap) else np.empty(0, np.uint64)


def places_of(numbers: Positions, sought: Positions) -> Numbers:
    """Return the places of the sought numbers, which ascend, among others. A file's numbers mostly ascend, too."""
    if (numbers[1:] > numbers[:-1]).all():
        count = np.searchsorted(sought, numbers[-1:], "right").sum()  # the others are greater than all numbers
        near = np.searchsorted(numbers, sought[:count])
        places: Numbers = near[numbers[near] == sought[:count]]
    else:
        places = np.flatnonzero(np.isin(numbers, sought))
    return places


def within(bitmap: BitMap64, first: int, last: int) -> BitMap64:
    """Return the row ids from first to last."""
    if not len(bitmap) or last < bitmap.min() or first > bitmap.max():
        return BitMap64()
    span = BitMap64()
    span.add_range(max(first, bitmap.min()), min(last, bitmap.max()) + 1)
    return bitmap & span
