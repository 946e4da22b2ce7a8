"""Retention, in steps of bounded size between the decider's groups.

A round moves the horizon of each table, and makes that durable before anything below it is retired. Then it sweeps:
entries that no kept version holds go to the purge list, which a confirmed deletion empties. More rarely it trims:
outcomes, staged files of lost races, commits that no request can read any more.

    horizon      the version that was current `data.retain.hours` ago, or an older one that a cursor needs;
                 versions from it on are kept for everyone
    held         versions below it that a pin, a tag or an open transaction holds: they stay complete
    floor        the oldest version that is kept or held, or whose successors an adoption would be judged against

A round is a generator: at each `yield` it can pause, and it does when the tick's room is used up. Jobs run between two
steps, so nothing that they change is kept across a `yield`, except the holders of versions below the horizon, which
only become fewer. A round starts from scratch after the store was reopened.

Rounds use the wall clock. None runs while the clock is not trusted, or shortly after a start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from metaservice.core import limits
from metaservice.core.retention.kept import is_held, retain_us
from metaservice.core.table.branches import off_branch
from metaservice.core.table.model import Entry
from metaservice.service.decider.clocks import ClockGuard, Clocks, Uptime, unknown_uptime
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.views import TableView
from metaservice.service.retention.detaching import Detaching
from metaservice.service.retention.dropped_tables import DroppedTables
from metaservice.service.retention.holders import tables_restoring, who_holds
from metaservice.service.retention.pins import Pins
from metaservice.service.retention.purge import is_file_of_base, list_unless_live
from metaservice.service.retention.record_pages import RecordPages, Steps
from metaservice.service.retention.staged_files import StagedFiles
from metaservice.service.retention.trimming import Trimming
from metaservice.shared.log import HOUSEKEEPING_FAILED
from metaservice.shared.table_patterns import is_among
from metaservice.store import entry_keys, keys
from metaservice.store.external_files import forget_import
from metaservice.store.port import StoreUnusable, prefix_end
from metaservice.store.records.tables import decode_live


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long things are kept."""

    outcome_keep_ms: int = limits.OUTCOME_KEEP_MS
    adopt_grace_ms: int = limits.ADOPT_GRACE_MS
    clock_tolerance_ms: int = limits.CLOCK_TOLERANCE_MS
    delay_ms: int = limits.PURGE_DELAY_MS


@dataclass(slots=True)
class TableProgress:
    """How far a table has been swept since the start."""

    swept: int = 0  # past entries removed up to this version were looked at, with `held` in force
    held: frozenset[int] = frozenset()
    still_us: int = 0  # the horizon does not move before, with this retention
    retain_us: int = -1


@dataclass(slots=True)
class Round:
    """The state of a round."""

    now_us: int
    trims: bool
    floors: dict[str, int] = field(default_factory=dict)


class Housekeeping:
    """Ticks on the decider's thread; `halted` says that the clock is not trusted."""

    def __init__(
        self,
        decider: Decider,
        pins: Pins,
        clocks: Clocks,
        keeping: Keeping,
        report: Callable[..., None],
        uptime: Uptime = unknown_uptime,
    ) -> None:
        self._decider = decider
        self._pins = pins
        self._clocks = clocks
        self._keeping = keeping
        self._report = report
        now_ms = clocks.mono_ms()
        self.guard = ClockGuard(decider, clocks, keeping.clock_tolerance_ms, report, uptime)
        self._due_ms = now_ms + keeping.delay_ms
        self._trim_ms = self._due_ms
        self._detaching = Detaching()
        self._restoring: frozenset[str] | None = None
        self._branched_us: dict[tuple[str, ...], int] = {}  # since when branches need all versions of the tables
        self._begin_anew()

    @property
    def halted(self) -> bool:
        return self.guard.held

    def tick(self) -> None:
        """Costs next to nothing when nothing is due."""
        now_ms = self._clocks.mono_ms()
        pins = self._decider.state.pins
        self.guard.tick(now_ms)
        if now_ms < self._due_ms and now_ms < pins.due_ms:
            return
        if now_ms >= pins.due_ms:
            self._pins.tick(now_ms)
        if now_ms >= self._due_ms:
            self._step(now_ms)

    def _begin_anew(self) -> None:
        """Forgets all progress, at the start and after the store was reopened."""
        self._state = self._decider.state
        self._steps: Steps | None = None
        self._progress: dict[str, TableProgress] = {}
        self._pages = pages = RecordPages(self._state)
        forget_after_us = (self._keeping.outcome_keep_ms + limits.OUTCOME_MARGIN_MS) * 1000
        self._dropped = DroppedTables(pages, forget_after_us)
        self._staged = StagedFiles(pages, self._keeping.adopt_grace_ms * 1000)
        self._trimming = Trimming(pages, forget_after_us)

    def _step(self, now_ms: int) -> None:
        if self._state is not self._decider.state:
            self._begin_anew()
        if self._steps is None:
            now_us = self._clocks.now_us()
            if not self.guard.look(now_us, now_ms):
                self._due_ms = now_ms + limits.HOUSEKEEPING_ROUND_MS
                return
            self._steps = self._round(Round(now_us, now_ms >= self._trim_ms))
            if now_ms >= self._trim_ms:
                self._trim_ms = now_ms + limits.HOUSEKEEPING_TRIM_MS
        self._state.flush()
        self._pages.room, self._restoring = limits.TICK_ITEMS_MAX, None
        try:
            for _ in self._steps:
                if self._pages.room <= 0:
                    self._due_ms = now_ms + limits.HOUSEKEEPING_STEP_MS
                    return
        except StoreUnusable as error:  # a part can't be read: the rest is served as before
            self._report(HOUSEKEEPING_FAILED, error=repr(error))
        self._steps = None
        self._due_ms = now_ms + limits.HOUSEKEEPING_ROUND_MS

    # -- a round -------------------------------------------------------------------------------------------------------

    def _round(self, this: Round) -> Steps:
        yield from self._move_horizons(this.now_us)
        # a later holder can only hold a version from the horizon on, or one that is held here
        held = who_holds(self._state)
        for table_id in list(self._state.tables):
            yield from self._sweep(table_id, held.get(table_id, []), this.now_us)
        for table_id in {keys.uuid_text(raw) for raw in self._state.forks.living} & self._state.tables.keys():
            for cost in self._detaching.steps(self._state, self._state.tables[table_id], held.get(table_id, [])):
                self._pages.room -= cost
                yield
        yield from self._dropped.purge(this.now_us)
        if this.trims:
            yield from self._staged.sweep(this.now_us, this.floors)
            yield from self._staged.unpack(this.now_us)
            yield from self._trimming.trim(this.now_us, held, this.floors)
            self._progress = {key: value for key, value in self._progress.items() if key in self._state.tables}

    # -- the horizon ---------------------------------------------------------------------------------------------------

    def _move_horizons(self, now_us: int) -> Steps:
        moved = False
        self._branched_us = branched_us = dict[tuple[str, ...], int]()  # branches to come begin later
        for branch in self._state.branches.values():  # there may be 100,000
            since_us = branched_us.get(branch.tables)
            if since_us is None or branch.time_us < since_us:
                branched_us[branch.tables] = branch.time_us
        for table_id in list(self._state.tables):
            table, view = self._state.tables.get(table_id), self._state.views.find(table_id)
            self._pages.room -= 1
            if table is not None and view is not None and view.oldest < view.head:
                moved = self._move_horizon(table, view, now_us) or moved
            yield
        if moved:  # the next tick finds it durable
            self._pages.room = 0
            yield

    def _move_horizon(self, table: TableState, view: TableView, now_us: int) -> bool:
        """Moves the horizon, by durable state: the version that was current then, and how long versions are kept."""
        progress = self._progress_of(table)
        retain = retain_us(view.meta.properties)
        if progress.retain_us == retain and now_us < progress.still_us:
            return False
        self._pages.room -= 1
        state, cursor = self._state, self._state.records.cursor()
        if table.fork is not None and table.fork.branch:
            return False  # a merge takes the commits since the branch began, however long ago
        times, since = keys.times_prefix(table.raw_id), keys.time_key(table.raw_id, max(now_us - retain, -1) + 1)
        current = next(iter(cursor.scan_back(times, since)), None)
        later = next(iter(cursor.scan(since, prefix_end(times))), None)
        oldest = min(keys.decode_version(current[1]), view.head) if current is not None else 0
        branched_us = self._held_since_us(view.meta.name)
        if branched_us is not None and branched_us < now_us - retain:
            current = next(iter(cursor.scan_back(times, keys.time_key(table.raw_id, branched_us + 1))), None)
            oldest, later = min(oldest, keys.decode_version(current[1]) if current is not None else oldest), None
        held_from = state.marks.held_from(table.meta.table_id, now_us, state.history.epoch)
        if held_from is not None and held_from < oldest:
            oldest, later = held_from, None  # it goes on with the cursor, whenever that is
        if oldest > table.oldest:
            if self._restoring is None:
                self._restoring = tables_restoring(self._state)
            if table.meta.table_id in self._restoring:
                return False  # its target is named at its commit: all that can be read must stay
            table.oldest = oldest
            self._state.changed.add(table.meta.table_id)
            self._state.batch.put(keys.oldest_key(table.raw_id), keys.encode_version(oldest))
            return True
        if later is not None:
            progress.retain_us, progress.still_us = retain, keys.decode_version(later[0][-8:]) + retain
        return False

    def _held_since_us(self, name: str) -> int | None:
        """Since when a branch needs all versions of a table."""
        table = off_branch(name)
        held = (since_us for named, since_us in self._branched_us.items() if not named or is_among(table, named))
        return min(held, default=None)

    def _progress_of(self, table: TableState) -> TableProgress:
        return self._progress.setdefault(table.meta.table_id, TableProgress())

    # -- what is dead --------------------------------------------------------------------------------------------------

    def _sweep(self, table_id: str, held: list[int], now_us: int) -> Steps:
        """Past entries that ended at or below the horizon; held entries are examined when they are released."""
        table = self._state.tables.get(table_id)
        self._pages.room -= 1
        yield
        if table is None:
            return
        progress, horizon = self._progress_of(table), table.oldest
        below = frozenset(version for version in held if version < horizon)
        progress.swept = min([progress.swept, *(progress.held - below)])
        progress.held = below
        if progress.swept >= horizon:
            return
        raw = table.raw_id
        for page in self._pages.scan(
            entry_keys.past_from(raw, progress.swept + 1), entry_keys.past_from(raw, horizon + 1)
        ):
            marked = bool(
                self._pages.page(entry_keys.restored_prefix(raw), prefix_end(entry_keys.restored_prefix(raw)), 1)
            )
            for key, value in page:
                live, removed = decode_live(value)
                if not is_held(live.added, removed, horizon, held):
                    entry = live.entry
                    if entry.external:
                        forget_import(self._state.batch, raw, live)
                    span = entry_keys.span_key(raw, live.added, removed, entry.partition, entry.bucket, entry.path)
                    self._state.batch.delete(span)
                    if is_file_of_base(self._state, raw, entry):
                        self._state.batch.delete(key)
                        continue
                    self._bury(raw, key, entry, now_us, marked=marked)
            yield
        progress.swept = horizon

    def _bury(self, raw: bytes, key: bytes, entry: Entry, now_us: int, *, marked: bool) -> None:
        """Ends one life of an entry; after its last life it goes to the purge list."""
        batch = self._state.batch
        batch.delete(key)
        if marked:
            mark = entry_keys.restored_key(raw, entry.partition, entry.bucket, entry.path)
            lives = self._state.store.get(mark)
            if lives is not None:
                left = keys.decode_version(lives) - 1
                if left:
                    batch.put(mark, keys.encode_version(left))
                else:
                    batch.delete(mark)
                self._state.flush()
                return
        list_unless_live(self._state, raw, entry, now_us)
