"""May a change follow the commits since its read version? Pure: the answer is None or a conflict that names the winner.

Winners are judged in version order; the first rule that fails names the conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from metaservice.core.model import (
    COMPACTIONS,
    ROW_CHANGES,
    SCOPED,
    Advice,
    Change,
    Conflict,
    Footprint,
    Live,
    Operation,
    Profile,
    Rule,
    Snapshots,
    TableMeta,
)
from metaservice.core.profiles import CLASS_OF, STANDS, writers_look_at
from metaservice.core.row_level import RowChange, calm_from
from metaservice.core.whole import changes_data, is_blind


@dataclass(slots=True)
class Mine:
    """My change with what judging derives from it, once."""

    change: Change
    meta: TableMeta
    snapshots: Snapshots
    written: frozenset[str] = field(init=False)
    buckets: frozenset[tuple[str, int]] = field(init=False)
    touched: frozenset[str] = field(init=False)
    hides_anywhere: frozenset[str] = field(init=False)
    blind: bool = field(init=False)
    _removals: list[Live] | None = None

    def __post_init__(self) -> None:
        change = self.change
        self.written = frozenset(e.partition for e in change.adds) | frozenset(g.partition for g in change.groups)
        hides_by_key = self.meta.keyed and change.operation not in COMPACTIONS
        self.buckets = frozenset((e.partition, e.bucket) for e in change.adds) if hides_by_key else frozenset()
        self.touched = frozenset(path for e in change.adds for path in e.touches)
        self.hides_anywhere = frozenset(e.partition for e in change.adds if e.hides_anywhere)
        self.blind = change.others_blind and is_blind(change)

    def covers(self, partition: str) -> bool:
        """Whether a partition is in the scope of my change."""
        change = self.change
        if partition in self.written:
            return True
        if change.scope is not None and change.scope.touches(partition):
            return True
        if change.operation not in ROW_CHANGES:
            return False
        return any(read.touches(partition, self.meta.partitioning) for read in change.reads)

    def reads(self, partition: str) -> bool:
        """Whether a new file there is one that I should have read."""
        change = self.change
        if change.scope is not None and change.scope.touches(partition):
            return True
        return any(read.touches(partition, self.meta.partitioning) for read in change.reads)

    def reads_files(self, partition: str) -> bool:
        """Whether the files there that were live at my read version count as read."""
        change = self.change
        if change.scope is not None and not change.scope.written and change.scope.touches(partition):
            return True
        return any(r.reads_files and r.touches(partition, self.meta.partitioning) for r in change.reads)

    def removals(self) -> list[Live]:
        """What I remove, worked out at my read version."""
        if self._removals is None:
            self._removals = list(removals_at(self.change, self.snapshots, self.change.read_version))
        return self._removals

    def hides_rows_in(self, partition: str) -> bool:
        """Whether a delete set of mine hides rows of files that were live there."""
        sets = [e for e in self.change.adds if e.is_delete_set and e.partition == partition]
        return any(e.touches for e in sets) or (bool(sets) and self.bucket_held_files(partition, 0))

    def bucket_held_files(self, partition: str, bucket: int) -> bool:
        found = self.snapshots.live(self.change.read_version, partition, bucket)
        return any(not live.entry.is_delete_set for live in found)


def removals_at(change: Change, snapshots: Snapshots, version: int) -> Iterator[Live]:
    """The live entries that a change removes, seen at a version."""
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


def judge(change: Change, meta: TableMeta, winners: Sequence[Footprint], snapshots: Snapshots) -> Conflict | None:
    """The first conflict with a winner, or None."""
    if not winners:
        return None
    mine = Mine(change, meta, snapshots)
    if meta.profile is Profile.ROW_LEVEL:
        return _row_level(mine, winners)
    check = _maxcompute if meta.profile is Profile.MAXCOMPUTE else _delta
    for winner in winners:
        conflict = check(mine, winner)
        if conflict is not None:
            return conflict
    return None


def _lost(
    mine: Mine, winner: Footprint, rule: Rule, partition: str = "", path: str = "", rows: tuple[int, ...] = ()
) -> Conflict:
    change = mine.change
    return Conflict(
        change.table_id,
        rule,
        winner,
        change.operation,
        change.read_version,
        advice_for(change, rule, blind=mine.blind),
        partition,
        path,
        rows,
    )


def advice_for(change: Change, rule: Rule, *, blind: bool) -> Advice:
    if rule in (Rule.METADATA_CHANGED, Rule.PROTOCOL_CHANGED):
        return Advice.RELOAD
    if change.operation in COMPACTIONS:
        return Advice.PLAN_AGAIN
    if change.operation is Operation.INSERT and blind:
        return Advice.RESUBMIT
    return Advice.RERUN


def _pure_alter(change: Change) -> bool:
    return change.operation is Operation.ALTER


def _quiet_alter(mine: Mine) -> bool:
    """A change of comment, retention or compaction policy alone conflicts with nobody."""
    alteration = mine.change.alteration
    return (
        _pure_alter(mine.change)
        and alteration is not None
        and not alteration.changes_features
        and not writers_look_at(mine.meta, alteration)
    )


def _maxcompute(mine: Mine, winner: Footprint) -> Conflict | None:
    if winner.metadata_changed or winner.features_changed:
        return None if _quiet_alter(mine) else _lost(mine, winner, Rule.METADATA_CHANGED)
    mine_class = CLASS_OF.get(mine.change.operation)
    winner_class = CLASS_OF.get(winner.operation)
    if mine_class is None or winner_class is None or winner_class in STANDS[mine_class]:
        return None
    for partition in sorted(winner.partitions):
        if mine.covers(partition):
            return _lost(mine, winner, Rule.OUTCOME_TABLE, partition)
    return None


def _row_level(mine: Mine, winners: Sequence[Footprint]) -> Conflict | None:
    me = RowChange(mine.change, mine.meta, mine.snapshots)
    reads_order = bool(mine.change.app_versions)  # who looked an id up without finding it came before me
    calm = len(winners) if reads_order else calm_from(winners, mine.meta)
    for place, winner in enumerate(winners):
        if winner.metadata_changed or winner.features_changed:
            if not _quiet_alter(mine):
                return _lost(mine, winner, Rule.METADATA_CHANGED)
            continue
        if winner.app_ids and set(winner.app_ids) & set(mine.change.app_ids_read):
            return _lost(mine, winner, Rule.CONCURRENT_TRANSACTION)
        found = me.against(winner, may_skip=place >= calm)
        if found is not None:
            return _lost(mine, winner, found.rule, found.partition, found.path, found.rows)
    return None


def _level(mine: Mine) -> Profile | None:
    """The level at which I am checked; None is snapshot, for whom changes data in no table of its transaction."""
    change = mine.change
    only_files = not change.app_versions and change.alteration is None
    if not only_files or changes_data(change) or change.others_change_data:
        return mine.meta.profile
    if mine.meta.profile is Profile.DELTA_SERIALIZABLE:
        return None
    says_so = change.operation is Operation.CUSTOM and not change.changes_data
    return None if says_so or change.operation in COMPACTIONS or _pure_alter(change) else mine.meta.profile


def _delta(mine: Mine, winner: Footprint) -> Conflict | None:
    change = mine.change
    alteration = change.alteration
    mine_features = alteration is not None and alteration.changes_features
    if winner.features_removed or (winner.features_changed and mine_features):
        return None if _quiet_alter(mine) else _lost(mine, winner, Rule.PROTOCOL_CHANGED)
    if winner.metadata_changed:
        return None if _quiet_alter(mine) else _lost(mine, winner, Rule.METADATA_CHANGED)
    if winner.app_ids and set(winner.app_ids) & set(change.app_ids_read):
        return _lost(mine, winner, Rule.CONCURRENT_TRANSACTION)
    if mine.blind and not mine.buckets:
        return None
    return _delta_appends(mine, winner) or _delta_removed_read(mine, winner) or _delta_removed_removed(mine, winner)


def _delta_appends(mine: Mine, winner: Footprint) -> Conflict | None:
    level = _level(mine)
    if level is None:
        return None
    if mine.buckets:
        for path, partition, bucket in winner.added:
            both_write = (partition, bucket) in mine.buckets and winner.operation not in COMPACTIONS
            if both_write and not mine.bucket_held_files(partition, bucket):
                return _lost(mine, winner, Rule.CONCURRENT_APPEND, partition, path)
    if mine.blind:
        return None
    for path, partition, bucket in _added_again(winner):
        if not _candidate(mine, winner, level, partition, bucket):
            continue
        if not mine.meta.partitioning.columns or mine.reads(partition):
            return _lost(mine, winner, Rule.CONCURRENT_APPEND, partition, path)
    return None


def _added_again(winner: Footprint) -> Iterator[tuple[str, str, int]]:
    """What the winner added, or hid rows of: that counts as taking a file out and adding it again."""
    yield from winner.added
    for touched in winner.touched:
        yield touched.path, touched.partition, touched.bucket
    for partition in sorted(winner.hid_anywhere):
        yield "", partition, 0


def _candidate(mine: Mine, winner: Footprint, level: Profile, partition: str, bucket: int) -> bool:
    if level is Profile.DELTA_SERIALIZABLE or not winner.blind:
        return True
    alteration = mine.change.alteration
    if alteration is not None and alteration.changes_metadata:
        return True
    if not mine.meta.keyed:
        return False
    return mine.reads_files(partition) or (partition, bucket) in mine.buckets


def _hides_by_key(mine: Mine, winner: Footprint) -> frozenset[tuple[str, int]]:
    """Buckets in which the winner hid older images of its keys."""
    if not mine.meta.keyed or winner.operation in COMPACTIONS:
        return frozenset()
    return frozenset((partition, bucket) for _, partition, bucket in winner.added)


def _delta_removed_read(mine: Mine, winner: Footprint) -> Conflict | None:
    read_version = mine.change.read_version
    for gone in (*winner.removed, *winner.touched):
        if not gone.is_delete_set and gone.added <= read_version and mine.reads_files(gone.partition):
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_READ, gone.partition, gone.path)
    for partition in sorted(winner.hid_anywhere):
        if mine.reads_files(partition) and mine.bucket_held_files(partition, 0):
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_READ, partition)
    if mine.change.operation in COMPACTIONS:
        return None
    for partition, bucket in sorted(_hides_by_key(mine, winner)):
        if mine.reads_files(partition) and mine.bucket_held_files(partition, bucket):
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_READ, partition)
    return None


def _delta_removed_removed(mine: Mine, winner: Footprint) -> Conflict | None:
    change = mine.change
    removals = [live.entry for live in mine.removals() if not live.entry.is_delete_set]
    removed = {entry.path for entry in removals} | mine.touched
    named = {ref.path for ref in change.removes}
    compacting = change.operation in COMPACTIONS
    for gone in (*winner.removed, *winner.touched):
        if gone.path in named:
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, gone.partition, gone.path)
        if gone.is_delete_set or gone.added > change.read_version:
            continue
        hidden_by_me = (gone.partition, gone.bucket) in mine.buckets and winner.operation not in COMPACTIONS
        if gone.path in removed or hidden_by_me or gone.partition in mine.hides_anywhere:
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, gone.partition, gone.path)
    for partition in sorted(winner.hid_anywhere):
        if any(entry.partition == partition for entry in removals) or mine.hides_rows_in(partition):
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, partition)
    if compacting:
        return None
    for partition, bucket in sorted(_hides_by_key(mine, winner)):
        removed_there = any((e.partition, e.bucket) == (partition, bucket) for e in removals)
        if removed_there or ((partition, bucket) in mine.buckets and mine.bucket_held_files(partition, bucket)):
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, partition)
    return None
