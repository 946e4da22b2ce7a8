"""What an import has to do, from what a table has and what its source shows, and how far it has read. The plan is pure.

A file comes, goes, or stays with more hidden rows than before. Nothing else can become of a file that stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from worker.base.errors import InputError
from worker.files.footers import in_threads
from worker.imports.facts import SourceFile

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A live file of the table, and the positions of its hidden rows."""

    file: common_pb2.DataFile
    hidden: BitMap64


@dataclass(frozen=True, slots=True)
class Hide:
    """Positions of a live file that are hidden from now on."""

    file: common_pb2.DataFile
    positions: BitMap64


@dataclass(slots=True)
class ImportPlan:
    """What makes the table show what its source shows. `hide` is of files that stay."""

    add: list[SourceFile] = field(default_factory=list)
    remove: list[common_pb2.DataFile] = field(default_factory=list)
    hide: list[Hide] = field(default_factory=list)

    @property
    def has_late(self) -> bool:
        """Whether files come with hidden rows: these are hidden when the files are there, by a second commit."""
        return any(one.hidden for one in self.add)

    @property
    def is_empty(self) -> bool:
        return not (self.add or self.remove or self.hide)


def plan_import(known: Mapping[str, KnownFile], source: Iterable[SourceFile]) -> ImportPlan:
    """`known` is by path. Files without visible rows are left out."""
    plan = ImportPlan()
    left = dict(known)
    seen: set[str] = set()
    for one in source:
        if one.path in seen:
            raise InputError("PATH_TWICE", f"the source names {one.path} twice: repair it there")
        seen.add(one.path)
        if len(one.hidden) >= one.rows:
            continue
        there = left.pop(one.path, None)
        if there is None:
            plan.add.append(one)
        else:
            _check_same(there, one)
            if fresh := one.hidden - there.hidden:
                plan.hide.append(Hide(there.file, fresh))
    plan.remove = [one.file for one in left.values()]
    return plan


def _check_same(there: KnownFile, one: SourceFile) -> None:
    if (there.file.rows, there.file.bytes) != (one.rows, one.bytes):
        why = f"{one.path} has {one.rows} rows in {one.bytes} bytes; it had {there.file.rows} in {there.file.bytes}"
    elif shown := len(there.hidden - one.hidden):
        why = f"{shown} rows of {one.path} that were deleted are back"
    else:
        return
    raise InputError("IMPORT_REWOUND", f"{why}: import the source anew, under another name or after a drop")


@dataclass
class Meter:
    """Counts files that are read, of those known so far."""

    done: int = 0
    total: int = 0

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """In threads; each item is one file."""
        self.total += len(items)

        def counted(one: T) -> R:
            found = work(one)
            self.done += 1
            return found

        return in_threads(counted, items)
