"""May a change follow the commits since its read version? Pure: the answer is None or a conflict that names the winner.

Winners are judged in version order; the first rule that fails names the conflict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from metaservice.core.commit.keys_across import KeysAcross
from metaservice.core.commit.matching import PartitionReads, Work
from metaservice.core.commit.row_level import Found, RowChange, is_calm
from metaservice.core.commit.transaction_facts import changes_data, is_blind
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import (
    COMPACTIONS,
    ROW_CHANGES,
    SCOPED,
    UNSORTED,
    Advice,
    Change,
    Conflict,
    Footprint,
    Live,
    Operation,
    PassedCommit,
    Removed,
    Rule,
)
from metaservice.core.table.profiles import FOLLOWS, writers_look_at
from metaservice.core.table.snapshots import Snapshots


@dataclass
class Mine:
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
        """The files that the change removes, at its read version, by partition and bucket."""
        found: dict[tuple[str, int], set[str]] = {}
        for live in removals_at(self.change, self.snapshots, self.change.read_version):
            entry = live.entry
            if not entry.is_delete_set:
                found.setdefault((entry.partition, entry.bucket), set()).add(entry.path)
        return found

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
        """The partitions of the change's delete sets; whether one of the sets names files."""
        found: dict[str, bool] = {}
        for entry in self.change.adds:
            if entry.is_delete_set:
                found[entry.partition] = found.get(entry.partition, False) or bool(entry.touches)
        return found

    def follow(self, compaction: Footprint) -> None:
        """Lets the outputs of a compaction stand for its inputs."""
        known = {gone.path for gone in compaction.removed if self.knew(gone)}
        for group in compaction.groups:
            if not known.isdisjoint(group.inputs):
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
        found = self.snapshots.live(self.change.read_version, partition, bucket)
        return any(not live.entry.is_delete_set for live in found)


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


def judge(change: Change, meta: TableMeta, winners: Sequence[Footprint], snapshots: Snapshots) -> Conflict | None:
    """The first conflict with a winner, or None."""
    if not winners:
        return None
    judging = Judging(Mine(change, meta, snapshots))
    for winner in winners:
        conflict = judging.meet(winner)
        if conflict is not None:
            return conflict
    return judging.end()


class Judging:
    """A change that is judged against winners one by one, in version order; results are kept in between.

    Under `row_level` a winner may be deferred: whether it counts depends on the following ones. No later winner changes
    the answer up to `settled`. `near` are the winners that changed a partition of the change's groups. `winner_of`
    loads a deferred winner.
    """

    def __init__(self, mine: Mine, winner_of: Callable[[int], Footprint] | None = None) -> None:
        self.mine = mine
        self.winner_of = winner_of
        self.singly_until = 0  # up to this version winners are judged one by one
        self.met = self.settled = mine.change.read_version
        self.near: list[Footprint] = []
        change, meta = mine.change, mine.meta
        self.grouped = frozenset(group.partition for group in change.groups)
        self.passes_inserts = (
            change.operation is Operation.INSERT
            and mine.blind
            and not (meta.keyed or change.app_ids_read)
            and meta.profile is not Profile.MAXCOMPUTE
        )
        self.by_table = meta.profile is Profile.MAXCOMPUTE  # the outcome table: no file is looked at
        self.rows: RowChange | None = None
        self.keys_across = KeysAcross(change, meta, mine.snapshots) if meta.key_spans_partitions else None
        self._put_off: deque[Footprint | range] = deque()
        if meta.profile is Profile.ROW_LEVEL:
            self.rows = RowChange(mine.change, mine.meta, mine.snapshots, mine.work)

    @property
    def passed(self) -> tuple[PassedCommit, ...]:
        """Commits that changed the same rows, each in other columns than the change."""
        return () if self.rows is None else self.rows.cells.passed

    @property
    def puts_off(self) -> bool:
        return bool(self._put_off)

    def meet(self, winner: Footprint) -> Conflict | None:
        """Judges against a winner. May raise Paused: then the same winner is judged again."""
        if self.passes_inserts and winner.blind and winner.operation is Operation.INSERT:
            self.met = self.settled = winner.version
            return None
        mine = self.mine
        if self.by_table:
            mine.work.begin_winner(5 + len(winner.partitions))
            conflict = _maxcompute(mine, winner)
        else:
            files = len(winner.added) + len(winner.removed) + len(winner.touched)
            mine.work.begin_winner(5 + len(winner.partitions) + 3 * files)
            conflict = _delta(mine, winner) if self.rows is None else self._meet_by_rows(self.rows, winner)
        if conflict is None and self.keys_across is not None:
            conflict = _lost_to(mine, winner, self.keys_across.against(winner))
        if conflict is None:
            self.pass_until(winner.version)
            if self.grouped and not self.grouped.isdisjoint(winner.partitions):
                self.near.append(winner)
        return conflict

    def pass_until(self, version: int) -> None:
        """Notes that the winners up to a version are judged, or deferred."""
        self.met = self.settled = version
        if self._put_off:
            first = self._put_off[0]
            self.settled = (first[0] if isinstance(first, range) else first.version) - 1

    def put_off_until(self, version: int) -> None:
        """Defers winners, all of them blind appends that the change may skip."""
        self._put_off.append(range(self.met + 1, version + 1))
        self.pass_until(version)

    def end(self) -> Conflict | None:
        """Ends judging, after the last winner. May raise Paused."""
        return self.settle(may_skip=True)

    def settle(self, *, may_skip: bool) -> Conflict | None:
        """Judges the deferred winners. May raise Paused."""
        me = self.rows
        while self._put_off and me is not None:
            first = self._put_off[0]
            rest = range(0)
            if isinstance(first, range):
                if may_skip:
                    self._put_off.popleft()
                    continue
                assert self.winner_of is not None
                winner, rest = self.winner_of(first[0]), first[1:]
            else:
                winner = first
            conflict = _row_level(self.mine, me, winner, may_skip=may_skip)
            if conflict is not None:
                return conflict
            if rest:
                self._put_off[0] = rest
            else:
                self._put_off.popleft()
        return None

    def _meet_by_rows(self, me: RowChange, winner: Footprint) -> Conflict | None:
        reads_order = bool(self.mine.change.app_versions)  # who looked an id up without finding it came before me
        if is_calm(winner, self.mine.meta) and not reads_order:
            self._put_off.append(winner)
            return None
        return self.settle(may_skip=False) or _row_level(self.mine, me, winner, may_skip=False)


def _lost(
    mine: Mine, winner: Footprint, rule: Rule, partition: str = "", path: str = "", rows: tuple[int, ...] = ()
) -> Conflict:
    change = mine.change
    return Conflict(
        table_id=change.table_id,
        rule=rule,
        winner=winner,
        operation=change.operation,
        read_version=change.read_version,
        advice=advice_for(change, rule, blind=mine.blind),
        partition=partition,
        path=path,
        rows=rows,
    )


def _lost_to(mine: Mine, winner: Footprint, race: Found | None) -> Conflict | None:
    if race is None:
        return None
    return replace(_lost(mine, winner, race.rule, race.partition, race.path, race.rows), columns=race.columns)


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


def _quiet_alter(mine: Mine) -> bool:
    """A change of only comment, retention or compaction policy conflicts with nothing."""
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
    if winner.operation in FOLLOWS[mine.change.operation]:
        return None
    for partition in sorted(winner.partitions):
        if mine.covers(partition):
            return _lost(mine, winner, Rule.OUTCOME_TABLE, partition)
    return None


def _row_level(mine: Mine, me: RowChange, winner: Footprint, *, may_skip: bool) -> Conflict | None:
    if winner.metadata_changed or winner.features_changed:
        return None if _quiet_alter(mine) else _lost(mine, winner, Rule.METADATA_CHANGED)
    if winner.app_ids and set(winner.app_ids) & set(mine.change.app_ids_read):
        return _lost(mine, winner, Rule.CONCURRENT_TRANSACTION)
    return _lost_to(mine, winner, me.against(winner, may_skip=may_skip))


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
    if _ids_keep_both(mine, winner):
        mine.follow(winner)
        return None
    return _delta_appends(mine, winner) or _delta_removed_read(mine, winner) or _delta_removed_removed(mine, winner)


def _ids_keep_both(mine: Mine, winner: Footprint) -> bool:
    """Whether one is a compaction that does not sort and the other one changes rows of an append table by their ids.

    The outputs keep the ids of the rows, and have a lower data version than the delete set, whichever commits first.
    """
    change = mine.change
    if mine.meta.keyed or change.removes or not all(gone.is_delete_set or winner.groups for gone in winner.removed):
        return False
    if winner.operation in UNSORTED:
        return change.operation in ROW_CHANGES or change.operation is Operation.INSERT
    return change.operation in UNSORTED and winner.operation in ROW_CHANGES


def _delta_appends(mine: Mine, winner: Footprint) -> Conflict | None:
    level = mine.level
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
    """The entries that the winner added or hid rows of: hiding counts as removing a file and adding it again."""
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
    for gone in (*winner.removed, *winner.touched):
        if not gone.is_delete_set and mine.knew(gone) and mine.reads_files(gone.partition):
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
    compacting = change.operation in COMPACTIONS
    for gone in (*winner.removed, *winner.touched):
        if gone.path in mine.named:
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, gone.partition, gone.path)
        if gone.is_delete_set or not mine.knew(gone):
            continue
        hidden_by_me = (gone.partition, gone.bucket) in mine.buckets and winner.operation not in COMPACTIONS
        if mine.hid_rows_of(gone.path) or hidden_by_me or gone.partition in mine.hides_anywhere:
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, gone.partition, gone.path)
    for partition in sorted(winner.hid_anywhere):
        if partition in mine.removed_in or mine.hides_rows_in(partition):
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, partition)
    if compacting:
        return None
    for place in sorted(_hides_by_key(mine, winner)):
        if place in mine.removed_places or (place in mine.buckets and mine.bucket_held_files(*place)):
            return _lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, place[0])
    return None
