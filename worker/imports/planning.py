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
        return any(file.hidden for file in self.add)

    @property
    def is_empty(self) -> bool:
        return not (self.add or self.remove or self.hide)


def plan_import(live_files: Mapping[str, KnownFile], source: Iterable[SourceFile]) -> ImportPlan:
    """Compare the live files, by path, with the source's. Files without visible rows are left out."""
    plan = ImportPlan()
    left = dict(live_files)
    seen: set[str] = set()
    for source_file in source:
        if source_file.path in seen:
            raise InputError("PATH_TWICE", f"the source names {source_file.path} twice: repair it there")
        seen.add(source_file.path)
        if len(source_file.hidden) >= source_file.rows:
            continue
        live = left.pop(source_file.path, None)
        if live is None:
            plan.add.append(source_file)
        else:
            _check_same(live, source_file)
            if fresh := source_file.hidden - live.hidden:
                plan.hide.append(Hide(live.file, fresh))
    plan.remove = [source_file.file for source_file in left.values()]
    return plan


def _check_same(live: KnownFile, source_file: SourceFile) -> None:
    if (live.file.rows, live.file.bytes) != (source_file.rows, source_file.bytes):
        sizes = f"{source_file.rows} rows in {source_file.bytes} bytes; it had {live.file.rows} in {live.file.bytes}"
        why = f"{source_file.path} has {sizes}"
    elif shown := len(live.hidden - source_file.hidden):
        why = f"{shown} rows of {source_file.path} that were deleted are back"
    else:
        return
    raise InputError("IMPORT_REWOUND", f"{why}: import the source anew, under another name or after a drop")


@dataclass
class Meter:
    """Counts the files that are read so far, and their total."""

    done: int = 0
    total: int = 0

    def each(self, work: Callable[[T], R], files: Sequence[T]) -> list[R]:
        """Return the result of `work` for each file, in order. The calls run in threads."""
        self.total += len(files)

        def counted(file: T) -> R:
            result = work(file)
            self.done += 1
            return result

        return in_threads(counted, files)
