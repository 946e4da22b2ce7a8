"""Blocks of a partition's files: what rules out the joined bounds of a block rules out each of its files.

A plan that finds one of 10,000 files then tests 160 blocks and the files of one, and not every file. Files with close
bounds stand in one block. A later version of the partition keeps the blocks, and the files that came or went since are
tested one by one; when they are many, the blocks are made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from metaservice.core.table.pruning import Row, joined

BLOCK_FILES: Final = 64
FILES_MIN: Final = 512  # fewer are tested one by one
TOUCHED_SHARE: Final = 8  # more than one in so many: new blocks pay off

Key = tuple[int, str]  # bucket and path


class Seen(NamedTuple):
    """A stored entry and its statistics."""

    raw: bytes
    data_version: int
    is_delete_set: bool
    row: Row


Entries = Mapping[Key, Seen]


class Block(NamedTuple):
    """Files with close bounds, and the bounds of all of them."""

    row: Row
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a partition. `single` are in no block, or came or went since the blocks were made."""

    blocks: tuple[Block, ...]
    single: frozenset[Key]

    def after(self, touched: Iterable[Key], files: int) -> Blocks | None:
        """With entries that came or went; None if they are many beside the files."""
        single = self.single.union(touched)
        return None if len(single) * TOUCHED_SHARE > files else Blocks(self.blocks, single)

    def split(self, entries: Entries, is_out: Callable[[Row], bool]) -> tuple[list[tuple[Key, Seen]], int]:
        """Return the entries to test one by one, in the order of keys, and how many files the blocks rule out."""
        single = self.single
        left: list[Key] = [key for key in single if key in entries]
        dropped = 0
        for block in self.blocks:
            keys = [key for key in block.keys if key not in single] if single else block.keys
            if is_out(block.row):
                dropped += len(keys)
            else:
                left += keys
        return [(key, entries[key]) for key in sorted(left)], dropped


def blocks_of(entries: Entries) -> Blocks | None:
    """Return the blocks of entries; None if there are few files, or no bounds."""
    files = [(key, seen) for key, seen in entries.items() if not seen.is_delete_set]
    if len(files) < FILES_MIN or not files[0][1].row:
        return None
    slot = max(range(len(files[0][1].row)), key=lambda at: len({seen.row[at][0] for _, seen in files}))
    bounded = [pair for pair in files if pair[1].row[slot][0] is not None]
    bounded.sort(key=lambda pair: pair[1].row[slot][0])
    unbounded = [pair for pair in files if pair[1].row[slot][0] is None]
    single = frozenset(key for key, seen in entries.items() if seen.is_delete_set)
    return Blocks(tuple(_cut(bounded + unbounded)), single)


def _cut(files: list[tuple[Key, Seen]]) -> Iterator[Block]:
    for start in range(0, len(files), BLOCK_FILES):
        part = files[start : start + BLOCK_FILES]
        yield Block(joined([seen.row for _, seen in part]), tuple(key for key, _ in part))
