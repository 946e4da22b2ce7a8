"""The profile row_level: write-serialisable at the grain of rows. Data that says who meets whom, and pure checks.

Worked example, an append table; f0 holds the ids 1 to 100:

    version 1  insert  + f0
    version 2  update  hides {7}, + f2 with the new image of 7      began at version 1
    version 3  update  hides {8}, + f3 with the new image of 8      began at version 1, shares no row with version 2

Version 3 commits because the sets {7} and {8} have no id in common and because the statistics of f2 say that the image
of 7 doesn't match what version 3 searched for. Nothing is merged: both sets stand in the snapshot, each with the data
version of its commit. What isn't known (no statistics, no keys, no ids) counts as anything that it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from metaservice.core import limits
from metaservice.core.commit.cells import Cells
from metaservice.core.commit.file_tests import Reading, new_reading
from metaservice.core.commit.matching import Work
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import COMPACTIONS, Change, Entry, Footprint, Operation, Rule
from metaservice.core.table.profiles import CLASS_OF, OpClass
from metaservice.core.table.rows import Hidden, Payloads, Place, Written, written_by
from metaservice.core.table.snapshots import Snapshots


class Meeting(Enum):
    """How a change meets a winner, by the classes of both."""

    PASSES = "commits"
    ROWS = "judged by rows"
    SCOPE = "conflict if it reads or hides rows in the winner's scope"
    READS = "commits if it read nothing; otherwise judged by scope and rows"
    LINEAGE = "conflict if they share an input"


_USERS: Final = {
    OpClass.INSERT_OVERWRITE: Meeting.SCOPE,
    OpClass.INSERT_INTO: Meeting.ROWS,
    OpClass.UPDATE_DELETE: Meeting.ROWS,
    OpClass.MINOR_COMPACT: Meeting.PASSES,
    OpClass.MAJOR_COMPACT: Meeting.PASSES,
}
_COMPACTS: Final = {
    OpClass.INSERT_OVERWRITE: Meeting.SCOPE,
    OpClass.INSERT_INTO: Meeting.PASSES,
    OpClass.UPDATE_DELETE: Meeting.PASSES,
    OpClass.MINOR_COMPACT: Meeting.LINEAGE,
    OpClass.MAJOR_COMPACT: Meeting.LINEAGE,
}
MEETINGS: Final[Mapping[OpClass, Mapping[OpClass, Meeting]]] = {  # my class -> the winner's
    OpClass.INSERT_OVERWRITE: {
        OpClass.INSERT_OVERWRITE: Meeting.READS,
        OpClass.INSERT_INTO: Meeting.READS,
        OpClass.UPDATE_DELETE: Meeting.READS,
        OpClass.MINOR_COMPACT: Meeting.PASSES,
        OpClass.MAJOR_COMPACT: Meeting.PASSES,
    },
    OpClass.INSERT_INTO: _USERS,
    OpClass.UPDATE_DELETE: _USERS,
    OpClass.MINOR_COMPACT: _COMPACTS,
    OpClass.MAJOR_COMPACT: _COMPACTS,
}
if any(row.keys() != set(OpClass) for row in (MEETINGS, *MEETINGS.values())):
    raise AssertionError("the meetings of row_level lack a class")


@dataclass(frozen=True, slots=True)
class Race:
    """A lost race, before its conflict names the winner."""

    rule: Rule
    partition: str = ""
    path: str = ""
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()


class RowChange:
    """The change to judge, with values that judging by rows derives once."""

    def __init__(self, change: Change, meta: TableMeta, snapshots: Snapshots, work: Work) -> None:
        self.change = change
        self.meta = meta
        self.snapshots = snapshots
        self._work = work
        self.cells = Cells(meta, snapshots.payloads)
        self.readings = [new_reading(read, meta, work) for read in change.reads]
        hides = change.adds if meta.keyed else [entry for entry in change.adds if entry.is_delete_set]
        self.places: frozenset[Place] = frozenset((entry.partition, entry.bucket) for entry in hides)
        self.hides_in = frozenset(partition for partition, _ in self.places)
        self.compacts_in = frozenset(group.partition for group in change.groups)
        self._written: Written | None = None
        self._hidden: dict[str, list[Hidden]] | None = None
        self._key_hashes: dict[Place, frozenset[int]] = {}
        self._comparisons_left = limits.ROW_COMPARISONS_MAX
        self._tried: dict[tuple[int, str, bool], bool] = {}

    @property
    def written(self) -> Written:
        if self._written is None:
            self._written = written_by(self.change.adds, self.change.key_sets or (), self.snapshots.payloads)
        return self._written

    @property
    def payloads(self) -> Payloads:
        return self.snapshots.payloads

    def key_hashes(self, place: Place) -> frozenset[int] | None:
        """The keys that the change writes to a bucket; None if it doesn't name them."""
        hashes = self.written.keys.get(place)
        if hashes is None:
            return None
        if place not in self._key_hashes:
            self._key_hashes[place] = frozenset(hashes)
        return self._key_hashes[place]

    def found_all(self, theirs: Written, entry: Entry) -> bool:
        """Whether the change has an image of each key of a file, all of rows that it found: none of them is new."""
        if self.change.operation not in (Operation.UPDATE, Operation.MERGE):
            return False
        if self.change.key_sets is None:  # the commit will say
            return True
        place = (entry.partition, entry.bucket)
        files = [file for file in self.written.files if (file.partition, file.bucket) == place]
        own, keys = self.key_hashes(place), theirs.keys.get(place)
        if own is None or keys is None or not own.issuperset(keys):
            return False
        return all(self.cells.make_no_rows(self.change.operation, file) for file in files)

    def hidden_in(self, partition: str) -> list[Hidden]:
        if self._hidden is None:
            self._hidden = {}
            for hidden in self.written.hidden:
                self._hidden.setdefault(hidden.partition, []).append(hidden)
        return self._hidden.get(partition, [])

    def may_match(self, reading: Reading, entry: Entry, *, by_key: bool = False) -> bool:
        """Return whether a row of a file may match a read; also true once the tries have cost too much."""
        if not reading.touches(entry.partition):
            return False
        key = (id(reading), entry.path, by_key)
        may = self._tried.get(key)
        if may is None:
            self._work.begin_try(reading.tests.cost)
            self._comparisons_left -= reading.tests.cost
            too_much = self._comparisons_left < 0
            may = too_much or reading.may_match(entry, self.meta, self.payloads, by_key=by_key)
            self._tried[key] = may
        return may

    def against(self, winner: Footprint, *, may_skip: bool) -> Race | None:
        """Return the first conflict with a winner. `may_skip`: a blind append may count as later than this change."""
        reads_only = OpClass.INSERT_INTO if self.readings else None  # an ALTER that says what it read
        own, theirs = CLASS_OF.get(self.change.operation, reads_only), CLASS_OF.get(winner.operation)
        if own is None or theirs is None or not winner.partitions:
            return None
        match MEETINGS[own][theirs]:
            case Meeting.PASSES | Meeting.LINEAGE:
                return None
            case Meeting.SCOPE:
                return self._in_their_scope(winner)
            case Meeting.ROWS:
                return self._by_rows(winner, may_skip=may_skip)
            case Meeting.READS:
                if not self.readings:
                    return None
                by_scope = theirs is OpClass.INSERT_OVERWRITE
                beside = self._in_their_scope(winner) if by_scope else self._by_rows(winner, may_skip=may_skip)
                return self._in_my_scope(winner) or beside

    def _by_rows(self, winner: Footprint, *, may_skip: bool) -> Race | None:
        for check in CHECKS:
            race = check.find(self, winner, may_skip)
            if race is not None:
                return replace(race, columns=self._columns_met(winner, race)) if self.meta.is_partial else race
        return None

    def _columns_met(self, winner: Footprint, race: Race) -> tuple[int, ...]:
        return self.cells.met(self.change, self.snapshots.wrote(winner.version).files, race.partition)

    def _in_their_scope(self, winner: Footprint) -> Race | None:
        for partition in sorted(winner.partitions):
            if partition in self.compacts_in or any(reading.touches(partition) for reading in self.readings):
                return Race(Rule.CONCURRENT_DELETE_READ, partition)
            if partition in self.hides_in:
                return Race(Rule.CONCURRENT_ROW_CHANGE, partition)
        return None

    def _in_my_scope(self, winner: Footprint) -> Race | None:
        scope = self.change.scope
        for partition in sorted(winner.partitions):
            if scope is not None and scope.touches(partition):
                added = any(added_to == partition for _, added_to, _ in winner.added)
                return Race(Rule.CONCURRENT_APPEND if added else Rule.CONCURRENT_DELETE_READ, partition)
        return None


def is_blind_append(winner: Footprint, meta: TableMeta) -> bool:
    """In a primary-key table an INSERT is never blind towards transactions that its keys concern."""
    return winner.blind and winner.operation is Operation.INSERT and not meta.keyed and not winner.shared


def is_calm(winner: Footprint, meta: TableMeta) -> bool:
    """A blind append, a compaction, or a commit without effect. If only these follow, a blind append is ignored."""
    if winner.metadata_changed or winner.features_changed:
        return False
    if winner.operation in COMPACTIONS or is_blind_append(winner, meta):
        return True
    return not winner.partitions and not winner.shared


# -- the checks --------------------------------------------------------------------------------------------------------


def _same_rows(me: RowChange, winner: Footprint, _may_skip: bool) -> Race | None:
    if not me.hides_in & winner.partitions:
        return None
    if me.meta.keyed:
        return _same_keys(me, winner)
    if winner.blind:
        return None
    theirs = me.snapshots.wrote(winner.version)
    if not theirs.is_known:
        return Race(Rule.CONCURRENT_ROW_CHANGE, min(me.hides_in & winner.partitions))
    for hidden in theirs.hidden:
        for own in me.hidden_in(hidden.partition):
            rows = own.common(hidden, limits.ROWS_SAMPLED_MAX)
            if rows is not None:
                return Race(Rule.CONCURRENT_ROW_CHANGE, own.partition, _first(hidden.touches), rows)
    return None


def _same_keys(me: RowChange, winner: Footprint) -> Race | None:
    if me.change.key_sets is None:
        return None
    theirs = me.snapshots.wrote(winner.version)
    if not theirs.is_known:
        return Race(Rule.CONCURRENT_ROW_CHANGE, min(me.hides_in & winner.partitions))
    for place, entry in {(file.partition, file.bucket): file for file in theirs.files}.items():
        if place not in me.places:
            continue
        my_keys, keys = me.key_hashes(place), theirs.keys.get(place)
        if me.cells.are_apart(me.written.files, theirs.files, place):
            me.cells.note_passed(winner, place, me.written.files, theirs.files, (my_keys, keys))
            continue
        if my_keys is None or keys is None:
            return Race(Rule.CONCURRENT_ROW_CHANGE, entry.partition, entry.path)
        both = sorted(my_keys.intersection(keys))
        if both:
            return Race(Rule.CONCURRENT_ROW_CHANGE, entry.partition, "", tuple(both[: limits.ROWS_SAMPLED_MAX]))
    return None


def _new_rows(me: RowChange, winner: Footprint, may_skip: bool) -> Race | None:
    if not me.readings or not winner.added or (may_skip and is_blind_append(winner, me.meta)):
        return None
    touched = {p for p in winner.partitions if any(reading.touches(p) for reading in me.readings)}
    if not touched:
        return None
    theirs = me.snapshots.wrote(winner.version)
    if not theirs.is_known:
        return Race(Rule.CONCURRENT_APPEND, min(touched))
    for entry in theirs.files:
        if entry.partition not in touched or (me.meta.keyed and me.payloads.only_tombstones(entry.payload)):
            continue
        near = [reading for reading in me.readings if me.may_match(reading, entry)]
        if not all(_finds_no_more(me, reading, winner, theirs, entry) for reading in near):
            return Race(Rule.CONCURRENT_APPEND, entry.partition, entry.path)
    return None


def _finds_no_more(me: RowChange, reading: Reading, winner: Footprint, theirs: Written, entry: Entry) -> bool:
    """Whether a read would find the same rows after a winner's images, with the same values in what it used.

    They set none of its columns. And they are of rows that were there, as the winner says or this change, which found
    and changes each of their keys.
    """
    if not me.cells.leave(reading.read, entry):
        return False
    return me.cells.make_no_rows(winner.operation, entry) or me.found_all(theirs, entry)


def _read_rows(me: RowChange, winner: Footprint, _may_skip: bool) -> Race | None:
    readings = [candidate for candidate in me.readings if candidate.read.reads_files and not candidate.read.changes_all]
    touched = {p for p in winner.partitions if any(reading.touches(p) for reading in readings)}
    if not touched or (winner.blind and not me.meta.keyed):
        return None
    theirs = me.snapshots.wrote(winner.version)
    if not theirs.is_known:
        return Race(Rule.CONCURRENT_DELETE_READ, min(touched))
    for reading in readings:
        race = _read_keys(me, reading, theirs) if me.meta.keyed else _read_ids(me, reading, theirs, winner.version)
        if race is not None:
            return race
    return None


def _read_ids(me: RowChange, reading: Reading, theirs: Written, version: int) -> Race | None:
    """Hidden rows keep their images, so the statistics of any file that held them tell whether they may match."""
    for hidden in theirs.hidden:
        if not reading.touches(hidden.partition):
            continue
        if not hidden.touches:
            return Race(Rule.CONCURRENT_DELETE_READ, hidden.partition)
        for path in hidden.touches:
            then = me.snapshots.find(me.change.read_version, hidden.partition, 0, path)
            live = then or me.snapshots.find(version, hidden.partition, 0, path)
            if live is None or me.may_match(reading, live.entry):
                return Race(Rule.CONCURRENT_DELETE_READ, hidden.partition, path)
    return None


def _read_keys(me: RowChange, reading: Reading, theirs: Written) -> Race | None:
    tried = set[Place]()
    for entry in theirs.files:
        place = (entry.partition, entry.bucket)
        if place in tried or not me.may_match(reading, entry, by_key=True) or me.cells.leave(reading.read, entry):
            continue
        tried.add(place)
        for live in me.snapshots.live(me.change.read_version, *place):
            if me.may_match(reading, live.entry):
                return Race(Rule.CONCURRENT_DELETE_READ, entry.partition, live.entry.path)
    return None


@dataclass(frozen=True, slots=True)
class RowCheck:
    """One of the checks by rows; the first that fails names the conflict."""

    name: str
    rule: Rule
    says: str
    find: Callable[[RowChange, Footprint, bool], Race | None]


CHECKS: Final = (
    RowCheck(
        "same row",
        Rule.CONCURRENT_ROW_CHANGE,
        "the winner hid or replaced a row that this change hides or replaces",
        _same_rows,
    ),
    RowCheck(
        "new rows",
        Rule.CONCURRENT_APPEND,
        "the winner's new rows or images (not tombstones) may match a condition of this change's reads",
        _new_rows,
    ),
    RowCheck(
        "read rows",
        Rule.CONCURRENT_DELETE_READ,
        "the winner hid rows in a file that may hold rows that this change reads and leaves alone",
        _read_rows,
    ),
)


def _first(paths: Sequence[str]) -> str:
    return paths[0] if paths else ""
