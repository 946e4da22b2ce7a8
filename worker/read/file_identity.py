"""How a scan identifies the file of a row: by a number that Spark knows for each row.

The number is the file's size, which costs nothing, if Spark finds the sizes that the entries have. Files that share a
size, and all files if sizes can't be used, are identified by a hash of the path. Files that neither identifies get
scans of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from worker.read.position_blocks import BLOCK_BITS

NUMBER_BITS: Final = 32
BY_NAME: Final = 1 << NUMBER_BITS  # a bit of the numbers that are hashes
WIDE_ROW_ID: Final = (1 << BLOCK_BITS + 64 - BY_NAME.bit_length()) - 1
_SAFE: Final = re.compile(r"[A-Za-z0-9._=/-]+\Z")

Tag = tuple[int, int]  # two numbers that a file's rows are to carry
PathHash = Callable[[common_pb2.DataFile], int]


class Told(Enum):
    """How a row's file is told in a scan, where that matters."""

    NOT = auto()
    BY_SIZE = auto()  # Spark knows it as a number, for free; between some sizes by a hash of the path
    BY_PATH = auto()  # all by a hash of it
    ALONE = auto()  # the only file of its scan


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file of a plan; its blocks use `number`, which no other file read with it has."""

    file: common_pb2.DataFile
    data_version: int
    told: Told = Told.NOT
    number: int = 0
    hidden: BitMap64 | None = field(default=None, compare=False)
    tag: Tag | None = None

    @property
    def is_by_name(self) -> bool:
        """Whether its number is a hash of its path."""
        return self.number >= BY_NAME


def by_size(files: Sequence[ScannedFile], path_hash: PathHash) -> list[ScannedFile]:
    """All files with numbers: sizes, but hashes of paths between the smallest and the largest ambiguous size."""
    counts = Counter(one.file.bytes for one in files)
    shared = [size for size, count in counts.items() if count > 1 or size >= BY_NAME] or [0]
    found, others = [], []
    for one in files:
        if min(shared) <= one.file.bytes <= max(shared) or _is_wide(one.file):
            others.append(one)
        else:
            found.append(replace(one, told=Told.BY_SIZE, number=one.file.bytes))
    hashed = by_path(others, path_hash)
    return found + [replace(one, told=Told.BY_SIZE) if one.told is Told.BY_PATH else one for one in hashed]


def by_path(files: Sequence[ScannedFile], path_hash: PathHash) -> list[ScannedFile]:
    """All files with numbers: hashes of their paths."""
    taken: set[int] = set()
    found = []
    for one in files:
        number = path_hash(one.file) & ((1 << NUMBER_BITS) - 1) if is_plain(one.file) else len(taken)
        told = Told.ALONE if _is_wide(one.file) or number in taken or not is_plain(one.file) else Told.BY_PATH
        while number in taken:
            number = (number + 1) % (1 << NUMBER_BITS)
        taken.add(number)
        found.append(replace(one, told=told, number=BY_NAME | number))
    return found


def is_plain(file: common_pb2.DataFile) -> bool:
    """Whether Spark spells the path as the entry does."""
    return not file.external and _SAFE.match(file.path) is not None


def _is_wide(file: common_pb2.DataFile) -> bool:
    """Whether its row ids leave no room for a number."""
    return file.carries_row_ids and row_ids(file)[1] > WIDE_ROW_ID


def row_ids(file: common_pb2.DataFile) -> tuple[int, int]:
    """The smallest and the largest id that its rows may have."""
    first, last = file.first_row_id, file.first_row_id + max(file.rows, 1) - 1
    if not file.carries_row_ids:
        return first, last
    if not file.HasField("row_id_min") or not file.HasField("row_id_max"):
        return 0, max(last, (1 << 62) - 1)
    return min(first, file.row_id_min), max(last, file.row_id_max)
