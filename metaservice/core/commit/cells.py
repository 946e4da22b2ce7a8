"""Concurrency by cells: changes of different columns of one row commute, where images set single columns.

Worked example under row_level, a table with merge.engine=partial; version 1 has the row id=7 a=1 b=1:

    version 2  update  sets a of 7                 began at version 1
    version 3  update  sets b of 7 to b + 1        began at version 1: it read b, and version 2 set only a
    conflict   update  sets c of 7 to a + 1        began at version 1: it read a, which version 2 set
    version 4  merge   sets c of 7, which it found by its key   began at version 1; one that adds a row says so

Readers fold the images in the order of the commits, so nothing is merged here either. A whole image and a tombstone set
every column. Files say what their images set, so this holds for any number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from metaservice.core import limits
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Change, Entry, Footprint, Operation, PassedCommit, Read
from metaservice.core.table.rows import Payloads, Place


@dataclass(frozen=True, slots=True)
class Cells:
    """The columns that images of a table set."""

    meta: TableMeta
    payloads: Payloads
    _passed: dict[int, PassedCommit] = field(default_factory=dict)

    @property
    def passed(self) -> tuple[PassedCommit, ...]:
        """The newest commits that changed the same rows and set other columns of them."""
        newest = sorted(self._passed)[-limits.COMMITS_PASSED_MAX :]
        return tuple(self._passed[version] for version in newest)

    def are_apart(self, changed: Iterable[Entry], theirs: Iterable[Entry], place: Place) -> bool:
        """Whether the images that both write to a bucket set different columns, whatever their keys."""
        if not self.meta.is_partial:
            return False
        first, second = self._set_in(changed, place), self._set_in(theirs, place)
        return bool(first) and bool(second) and first.isdisjoint(second)

    def note_passed(
        self,
        winner: Footprint,
        place: Place,
        changed: Iterable[Entry],
        theirs: Iterable[Entry],
        keys: tuple[Collection[int] | None, Collection[int] | None],
    ) -> None:
        """Notes a winner whose images of a bucket are apart from the change's, if both may be of the same rows.

        `keys`: the hashes of those of both; None: not all are known.
        """
        own_keys, their_keys = keys
        if own_keys is not None and their_keys is not None and frozenset(own_keys).isdisjoint(their_keys):
            return
        before = self._passed.get(winner.version)
        own, set_by_it = self._set_in(changed, place), self._set_in(theirs, place)
        if before is not None:
            own, set_by_it = own.union(before.own_columns), set_by_it.union(before.columns)
        columns, own_columns = tuple(sorted(set_by_it)), tuple(sorted(own))
        self._passed[winner.version] = PassedCommit(winner.version, winner.txn_id, columns, own_columns)

    def leave(self, read: Read, entry: Entry) -> bool:
        """Whether a file's images set none of the columns that a read used."""
        if not self.meta.is_partial or not read.columns:
            return False
        cells = self.payloads.set_columns(entry.payload)
        return bool(cells) and cells.isdisjoint(read.columns)

    def make_no_rows(self, operation: Operation, entry: Entry) -> bool:
        """Whether a file's images are of rows that its writer found: those of an UPDATE are, others say it."""
        return operation is Operation.UPDATE or self.payloads.no_new_rows(entry.payload)

    def met(self, change: Change, theirs: Iterable[Entry], partition: str) -> tuple[int, ...]:
        """The columns that images of a winner in a partition set, and that a change sets or has read.

        None where it may have written whole rows or tombstones, whose files name the key among the columns.
        """
        cells = self._united(entry for entry in theirs if entry.partition == partition)
        if {column.column_id for column in self.meta.columns if column.name in self.meta.primary_key} < cells:
            return ()
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
