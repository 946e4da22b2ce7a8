"""How a row's file is told in a scan: by a number that Spark knows of each row.

The number is the file's size, which costs nothing, if what the entries say of sizes is what Spark finds; or else a hash
of the file's path. Files that neither tells apart have a scan of their own.
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

NUMBER_BITS: Final = 32
ALIKE_MAX: Final = 3  # files of one size: each has a scan of its own then
BY_NAME: Final = ALIKE_MAX << NUMBER_BITS
KEY_BITS: Final = NUMBER_BITS + ALIKE_MAX.bit_length()
WIDE_ROW_ID: Final = (64 << 64 - KEY_BITS) - 1
_SAFE: Final = re.compile(r"[A-Za-z0-9._=/-]+\Z")

Tag = tuple[int, int]  # two numbers that a file's rows are to carry
PathHash = Callable[[common_pb2.DataFile], int]


class Told(Enum):
    """How a row's file is told in a scan, where that matters."""

    NOT = auto()
    BY_SIZE = auto()  # Spark knows it as a number, for free; files of one size are of different scans
    BY_PATH = auto()  # by a hash of it
    ALONE = auto()  # the only file of its scan


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file of a plan; `number` is what its words go by, no other file that is read beside it has it."""

    file: common_pb2.DataFile
    data_version: int
    told: Told = Told.NOT
    number: int = 0
    hidden: BitMap64 | None = field(default=None, compare=False)
    tag: Tag | None = None

    @property
    def alike(self) -> int:
        """How many files of its size come before it."""
        return self.number >> NUMBER_BITS if self.told is Told.BY_SIZE else 0


def by_size(files: Sequence[ScannedFile], path_hash: PathHash) -> list[ScannedFile]:
    """All of them with numbers: sizes, but where that won't do."""
    seen: Counter[int] = Counter()
    found, others = [], []
    for one in files:
        size = one.file.bytes
        wide = size >> NUMBER_BITS or (one.file.carries_row_ids and row_ids(one.file)[1] > WIDE_ROW_ID)
        if wide or seen[size] >= ALIKE_MAX:
            others.append(one)
        else:
            found.append(replace(one, told=Told.BY_SIZE, number=seen[size] << NUMBER_BITS | size))
            seen[size] += 1
    return found + by_path(others, path_hash)


def by_path(files: Sequence[ScannedFile], path_hash: PathHash) -> list[ScannedFile]:
    """All of them with numbers: hashes of their paths."""
    taken: set[int] = set()
    found = []
    for one in files:
        wide = one.file.carries_row_ids and row_ids(one.file)[1] > WIDE_ROW_ID
        number = path_hash(one.file) & ((1 << NUMBER_BITS) - 1) if is_plain(one.file) else len(taken)
        told = Told.ALONE if wide or number in taken or not is_plain(one.file) else Told.BY_PATH
        while number in taken:
            number = (number + 1) % (1 << NUMBER_BITS)
        taken.add(number)
        found.append(replace(one, told=told, number=BY_NAME | number))
    return found


def is_plain(file: common_pb2.DataFile) -> bool:
    """Whether Spark spells the path as the entry does."""
    return not file.external and _SAFE.match(file.path) is not None


def row_ids(file: common_pb2.DataFile) -> tuple[int, int]:
    """The smallest and the largest that its rows may have."""
    first, last = file.first_row_id, file.first_row_id + max(file.rows, 1) - 1
    if not file.carries_row_ids:
        return first, last
    if not file.HasField("row_id_min") or not file.HasField("row_id_max"):
        return 0, max(last, (1 << 62) - 1)
    return min(first, file.row_id_min), max(last, file.row_id_max)
