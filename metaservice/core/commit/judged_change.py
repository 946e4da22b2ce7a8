"""The change to judge, with values that judging derives once, and the conflict that it loses by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from metaservice.core.commit.matching import PartitionReads, Work
from metaservice.core.commit.row_level import Race
from metaservice.core.commit.transaction_facts import changes_data, is_blind
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import (
    COMPACTIONS,
    ROW_CHANGES,
    SCOPED,
    Advice,
    Change,
    Conflict,
    Footprint,
    Live,
    Operation,
    Removed,
    Rule,
)
from metaservice.core.table.profiles import writers_look_at
from metaservice.core.table.snapshots import Snapshots


@dataclass
class JudgedChange:
    """The change to judge, with values that judging derives once."""

    change: Change
    meta: TableMeta
    snapshots: Snapshots
    work: Work = field(default_factory=Work)
    written: frozenset[str] = field(init=False)
    blind: bool = field(init=False)
    rewritten: set[str] = field(default_factory=set)  # files of winners with rows of files that it may have read
    rewritten_touched: set[str] = field(default_factory=set)  # the same of files whose rows it hides

    def __post_init__(self) -> None:
        change = self.change
        self.written = frozenset(e.partition for e in change.adds) | frozenset(g.partition for g in change.groups)
        # a writer of a key that spans partitions has looked its keys up
        self.blind = change.others_blind and is_blind(change) and not self.meta.key_spans_partitions

    @cached_property
    def _reads(self) -> PartitionReads:
        return PartitionReads(self.change.reads, self.meta.partitioning, self.work)

    @cached_property
    def _file_reads(self) -> PartitionReads:
        of_files = [read for read in self.change.reads if read.reads_files]
        if len(of_files) == len(self.change.reads):
            return self._reads
        return PartitionReads(of_files, self.meta.partitioning, self.work)

    @cached_property
    def buckets(self) -> frozenset[tuple[str, int]]:
        """The buckets in which the change hides older images of its keys."""
        hides_by_key = self.meta.keyed and self.change.operation not in COMPACTIONS
        return frozenset((e.partition, e.bucket) for e in self.change.adds) if hides_by_key else frozenset()

    @cached_property
    def touched(self) -> frozenset[str]:
        return frozenset(path for e in self.change.adds for path in e.touches)

    @cached_property
    def hides_anywhere(self) -> frozenset[str]:
        return frozenset(e.partition for e in self.change.adds if e.hides_anywhere)

    def covers(self, partition: str) -> bool:
        """Whether a partition is in the scope of the change."""
        change = self.change
        if partition in self.written:
            return True
        if change.scope is not None and change.scope.touches(partition):
            return True
        depends = change.operation in ROW_CHANGES or change.operation is Operation.INSERT  # on what it read
        return depends and self._reads.touches(partition)

    def reads(self, partition: str) -> bool:
        """Whether a new file in the partition is one that the transaction should have read."""
        change = self.change
        if change.scope is not None and change.scope.touches(partition):
            return True
        return self._reads.touches(partition)

    def may_concern(self, partition: str) -> bool:
        """Whether anything that a winner does in the partition may matter to the change."""
        change = self.change
        if partition in self.written or partition in self._removed_from:
            return True
        if change.scope is not None and change.scope.touches(partition):
            return True
        return self._reads.may_touch(partition)

    @cached_property
    def _removed_from(self) -> frozenset[str]:
        return frozenset(ref.partition for ref in self.change.removes)

    def reads_files(self, partition: str) -> bool:
        """Whether the partition's files that were live at the read version count as read."""
        change = self.change
        if change.scope is not None and not change.scope.written and change.scope.touches(partition):
            return True
        return self._file_reads.touches(partition)

    @cached_property
    def removed_places(self) -> dict[tuple[str, int], set[str]]:
        """The paths that the change removes, at its read version, by partition and bucket."""
        by_place: dict[tuple[str, int], set[str]] = {}
        for live in removals_at(self.change, self.snapshots, self.change.read_version):
            entry = live.entry
            if not entry.is_delete_set:
                by_place.setdefault((entry.partition, entry.bucket), set()).add(entry.path)
        return by_place

    @cached_property
    def removed(self) -> frozenset[str]:
        """Their paths, and those of files whose rows the change hides."""
        return self.touched.union(*self.removed_places.values())

    @cached_property
    def removed_in(self) -> frozenset[str]:
        return frozenset(partition for partition, _ in self.removed_places)

    @cached_property
    def named(self) -> frozenset[str]:
        return frozenset(ref.path for ref in self.change.removes)

    @cached_property
    def level(self) -> Profile | None:
        """The level of the checks; None is snapshot level, for a transaction that changes no data in any table."""
        change = self.change
        only_files = not change.app_versions and change.alteration is None
        if not only_files or changes_data(change) or change.others_change_data:
            return self.meta.profile
        if self.meta.profile is Profile.DELTA_SERIALIZABLE:
            return None
        says_so = change.operation is Operation.CUSTOM and not change.changes_data
        return None if says_so or change.operation in COMPACTIONS or _pure_alter(change) else self.meta.profile

    @cached_property
    def _sets_in(self) -> dict[str, bool]:
        """The partitions of the change's delete sets, each with whether one of its sets names files."""
        names_files: dict[str, bool] = {}
        for entry in self.change.adds:
            if entry.is_delete_set:
                names_files[entry.partition] = names_files.get(entry.partition, False) or bool(entry.touches)
        return names_files

    def follow(self, compaction: Footprint) -> None:
        """Treats the outputs of a compaction as its inputs."""
        followed = {gone.path for gone in compaction.removed if self.knew(gone)}
        for group in compaction.groups:
            if not followed.isdisjoint(group.inputs):
                self.rewritten.update(group.outputs)
            if any(self.hid_rows_of(path) for path in group.inputs):
                self.rewritten_touched.update(group.outputs)

    def knew(self, gone: Removed) -> bool:
        """Whether the file's rows were live at the read version."""
        return gone.added <= self.change.read_version or gone.path in self.rewritten

    def hid_rows_of(self, path: str) -> bool:
        """Whether the change removes the file, or hides rows of it."""
        return path in self.removed or path in self.rewritten_touched

    def hides_rows_in(self, partition: str) -> bool:
        """Whether a delete set of the change hides rows of files that were live in the partition."""
        names_files = self._sets_in.get(partition)
        return names_files is not None and (names_files or self.bucket_held_files(partition, 0))

    def bucket_held_files(self, partition: str, bucket: int) -> bool:
        entries = self.snapshots.live(self.change.read_version, partition, bucket)
        return any(not live.entry.is_delete_set for live in entries)


def removals_at(change: Change, snapshots: Snapshots, version: int) -> Iterator[Live]:
    """The live entries that a change removes, as of a version."""
    if change.operation in SCOPED and change.scope is not None:
        if change.scope.partitions is None:
            yield from snapshots.live(version)
        else:
            for partition in sorted(change.scope.partitions):
                yield from snapshots.live(version, partition)
    named = [(g.partition, g.bucket, path) for g in change.groups for path in g.inputs]
    for partition, bucket, path in named + [(r.partition, r.bucket, r.path) for r in change.removes]:
        live = snapshots.find(version, partition, bucket, path)
        if live is not None:
            yield live


def lost(
    judged: JudgedChange, winner: Footprint, rule: Rule, partition: str = "", path: str = "", rows: tuple[int, ...] = ()
) -> Conflict:
    change = judged.change
    return Conflict(
        table_id=change.table_id,
        rule=rule,
        winner=winner,
        operation=change.operation,
        read_version=change.read_version,
        advice=advice_for(change, rule, blind=judged.blind),
        partition=partition,
        path=path,
        rows=rows,
    )


def lost_to(judged: JudgedChange, winner: Footprint, race: Race | None) -> Conflict | None:
    if race is None:
        return None
    return replace(lost(judged, winner, race.rule, race.partition, race.path, race.rows), columns=race.columns)


def advice_for(change: Change, rule: Rule, *, blind: bool) -> Advice:
    """The advice. RESUBMIT if the transaction consists only of blind INSERTs: no other files can be adopted."""
    if rule in (Rule.METADATA_CHANGED, Rule.PROTOCOL_CHANGED):
        return Advice.RELOAD
    if change.operation in COMPACTIONS:
        return Advice.PLAN_AGAIN
    if change.operation is Operation.INSERT and blind and change.others_insert:
        return Advice.RESUBMIT
    return Advice.RERUN


def _pure_alter(change: Change) -> bool:
    return change.operation is Operation.ALTER


def is_quiet_alter(judged: JudgedChange) -> bool:
    """Return whether only comment, retention or compaction policy change, which conflicts with nothing."""
    alteration = judged.change.alteration
    return (
        _pure_alter(judged.change)
        and alteration is not None
        and not alteration.changes_features
        and not writers_look_at(judged.meta, alteration)
    )
