"""Concurrency by cells: changes of different columns of one row commute, where images set single columns.

Worked example under row_level, a table with merge.engine=partial; version 1 has the row id=7 a=1 b=1:

    version 2  update  sets a of 7                 began at version 1
    version 3  update  sets b of 7 to b + 1        began at version 1: it read b, and version 2 set only a
    conflict   update  sets c of 7 to a + 1        began at version 1: it read a, which version 2 set

Readers fold the images in the order of the commits, so nothing is merged here either. A whole image and a tombstone set
every column. Files say what their images set, so this holds for any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Change, Entry, Read
from metaservice.core.table.rows import Payloads, Place


@dataclass(frozen=True, slots=True)
class Cells:
    """The columns that images of a table set."""

    meta: TableMeta
    payloads: Payloads

    def are_apart(self, changed: Iterable[Entry], theirs: Iterable[Entry], place: Place) -> bool:
        """Whether the images that both write to a bucket set different columns, whatever their keys."""
        if not self.meta.is_partial:
            return False
        first, second = self._set_in(changed, place), self._set_in(theirs, place)
        return bool(first) and bool(second) and first.isdisjoint(second)

    def leave(self, read: Read, entry: Entry) -> bool:
        """Whether a file's images set none of the columns that a read used."""
        if not self.meta.is_partial or not read.columns:
            return False
        cells = self.payloads.set_columns(entry.payload)
        return bool(cells) and cells.isdisjoint(read.columns)

    def met(self, change: Change, theirs: Iterable[Entry], partition: str) -> tuple[int, ...]:
        """The columns that images of a winner in a partition set, and that a change sets or has read."""
        cells = self._united(entry for entry in theirs if entry.partition == partition)
        own = self._united(entry for entry in change.adds if entry.partition == partition)
        reads = [read.columns for read in change.reads]
        used = own.union(*reads) if own and all(reads) else cells
        return tuple(sorted(cells & used))

    def _set_in(self, entries: Iterable[Entry], place: Place) -> frozenset[int]:
        """Empty: all, as some images are whole."""
        return self._united(entry for entry in entries if (entry.partition, entry.bucket) == place)

    def _united(self, entries: Iterable[Entry]) -> frozenset[int]:
        sets = [self.payloads.set_columns(entry.payload) for entry in entries]
        return frozenset[int]().union(*sets) if sets and all(sets) else frozenset()
