"""May a change follow the commits since its read version? Pure: the answer is None or a conflict that names the winner.

Winners are judged in version order; the first rule that fails names the conflict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from metaservice.core.commit.delta_rules import delta_conflict
from metaservice.core.commit.judged_change import JudgedChange, is_quiet_alter, lost, lost_to
from metaservice.core.commit.keys_across import KeysAcross
from metaservice.core.commit.row_level import RowChange, is_calm
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Change, Conflict, Footprint, Operation, PassedCommit, Rule
from metaservice.core.table.profiles import FOLLOWS
from metaservice.core.table.snapshots import Snapshots


def judge(change: Change, meta: TableMeta, winners: Sequence[Footprint], snapshots: Snapshots) -> Conflict | None:
    """The first conflict with a winner, or None."""
    if not winners:
        return None
    judging = Judging(JudgedChange(change, meta, snapshots))
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

    def __init__(self, judged: JudgedChange, winner_of: Callable[[int], Footprint] | None = None) -> None:
        self.judged = judged
        self.winner_of = winner_of
        self.singly_until = 0  # up to this version winners are judged one by one
        self.met = self.settled = judged.change.read_version
        self.near: list[Footprint] = []
        change, meta = judged.change, judged.meta
        self.grouped = frozenset(group.partition for group in change.groups)
        self.passes_inserts = (
            change.operation is Operation.INSERT
            and judged.blind
            and not (meta.keyed or change.app_ids_read)
            and meta.profile is not Profile.MAXCOMPUTE
        )
        self.by_table = meta.profile is Profile.MAXCOMPUTE  # the outcome table: no file is looked at
        self.rows: RowChange | None = None
        self.keys_across = KeysAcross(change, meta, judged.snapshots) if meta.key_spans_partitions else None
        self._put_off: deque[Footprint | range] = deque()
        if meta.profile is Profile.ROW_LEVEL:
            self.rows = RowChange(judged.change, judged.meta, judged.snapshots, judged.work)

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
        judged = self.judged
        if self.by_table:
            judged.work.begin_winner(5 + len(winner.partitions))
            conflict = _maxcompute(judged, winner)
        else:
            files = len(winner.added) + len(winner.removed) + len(winner.touched)
            judged.work.begin_winner(5 + len(winner.partitions) + 3 * files)
            conflict = delta_conflict(judged, winner) if self.rows is None else self._meet_by_rows(self.rows, winner)
        if conflict is None and self.keys_across is not None:
            conflict = lost_to(judged, winner, self.keys_across.against(winner))
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
            conflict = _row_level(self.judged, me, winner, may_skip=may_skip)
            if conflict is not None:
                return conflict
            if rest:
                self._put_off[0] = rest
            else:
                self._put_off.popleft()
        return None

    def _meet_by_rows(self, me: RowChange, winner: Footprint) -> Conflict | None:
        reads_order = bool(self.judged.change.app_versions)  # who looked an id up without finding it came before me
        if is_calm(winner, self.judged.meta) and not reads_order:
            self._put_off.append(winner)
            return None
        return self.settle(may_skip=False) or _row_level(self.judged, me, winner, may_skip=False)


def _maxcompute(judged: JudgedChange, winner: Footprint) -> Conflict | None:
    if winner.metadata_changed or winner.features_changed:
        return None if is_quiet_alter(judged) else lost(judged, winner, Rule.METADATA_CHANGED)
    if winner.operation in FOLLOWS[judged.change.operation]:
        return None
    for partition in sorted(winner.partitions):
        if judged.covers(partition):
            return lost(judged, winner, Rule.OUTCOME_TABLE, partition)
    return None


def _row_level(judged: JudgedChange, me: RowChange, winner: Footprint, *, may_skip: bool) -> Conflict | None:
    if winner.metadata_changed or winner.features_changed:
        return None if is_quiet_alter(judged) else lost(judged, winner, Rule.METADATA_CHANGED)
    if winner.app_ids and set(winner.app_ids) & set(judged.change.app_ids_read):
        return lost(judged, winner, Rule.CONCURRENT_TRANSACTION)
    return lost_to(judged, winner, me.against(winner, may_skip=may_skip))
