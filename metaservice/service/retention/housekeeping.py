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

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from metaservice.core import limits
from metaservice.core.commit.transaction import TxnState
from metaservice.core.retention.kept import is_held, retain_us
from metaservice.core.table.branches import off_branch
from metaservice.core.table.model import Entry
from metaservice.service.decider.clocks import ClockGuard, Clocks, Uptime, unknown_uptime
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.forking import is_on
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.views import TableView
from metaservice.service.retention.detaching import Detaching
from metaservice.service.retention.holders import given_up_us, tables_restoring, who_holds
from metaservice.service.retention.pins import Pins
from metaservice.shared.log import HOUSEKEEPING_FAILED
from metaservice.shared.table_patterns import is_among
from metaservice.store import keys
from metaservice.store.external_files import forget_import
from metaservice.store.forks import is_of_base
from metaservice.store.port import StoreUnusable, prefix_end
from metaservice.store.records.tables import decode_chunk, decode_commit, decode_live, decode_table
from metaservice.store.records.transactions import decode_txn

Steps = Iterator[None]
COST_OF_A_LOOK: Final = 4  # for the newest of a table's records, in records of a page


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long things are kept."""

    outcome_keep_ms: int = limits.OUTCOME_KEEP_MS
    adopt_grace_ms: int = limits.ADOPT_GRACE_MS
    clock_tolerance_ms: int = limits.CLOCK_TOLERANCE_MS
    delay_ms: int = limits.PURGE_DELAY_MS


@dataclass(slots=True)
class TableProgress:
    """How far a table has been swept and trimmed since the start."""

    swept: int = 0  # past entries removed up to this version were looked at, with `held` in force
    held: frozenset[int] = frozenset()
    trimmed: int = 0
    trimmed_us: int = 0
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
        self._state = decider.state
        self._steps: Steps | None = None
        self._detaching = Detaching()
        self._room = 0
        self._progress: dict[str, TableProgress] = {}
        self._restoring: frozenset[str] | None = None
        self._outcomes_from = keys.TRANSACTIONS
        self._branched_us: dict[tuple[str, ...], int] = {}  # since when branches need all versions of the tables
        self._drops_wait: dict[tuple[bytes, bytes], int] = {}

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

    def _step(self, now_ms: int) -> None:
        if self._state is not self._decider.state:
            self._state, self._steps = self._decider.state, None
            self._outcomes_from = keys.TRANSACTIONS
            self._progress.clear()
        if self._steps is None:
            now_us = self._clocks.now_us()
            if not self.guard.look(now_us, now_ms):
                self._due_ms = now_ms + limits.HOUSEKEEPING_ROUND_MS
                return
            self._steps = self._round(Round(now_us, now_ms >= self._trim_ms))
            if now_ms >= self._trim_ms:
                self._trim_ms = now_ms + limits.HOUSEKEEPING_TRIM_MS
        self._state.flush()
        self._room, self._restoring = limits.TICK_ITEMS_MAX, None
        try:
            for _ in self._steps:
                if self._room <= 0:
                    self._due_ms = now_ms + limits.HOUSEKEEPING_STEP_MS
                    return
        except StoreUnusable as error:  # a part can't be read: the rest is served as before
            self._report(HOUSEKEEPING_FAILED, error=repr(error))
        self._steps = None
        self._due_ms = now_ms + limits.HOUSEKEEPING_ROUND_MS

    # -- a round -------------------------------------------------------------------------------------------------------

    def _round(self, this: Round) -> Steps:
        yield from self._move_horizons(this.now_us)
        held = who_holds(
            self._state
        )  # a later holder can only hold a version from the horizon on, or one that is held here
        for table_id in list(self._state.tables):
            yield from self._sweep(table_id, held.get(table_id, []), this.now_us)
        for table_id in {keys.uuid_text(raw) for raw in self._state.forks.living} & self._state.tables.keys():
            for cost in self._detaching.steps(self._state, self._state.tables[table_id], held.get(table_id, [])):
                self._room -= cost
                yield
        yield from self._purge_dropped(this.now_us)
        if this.trims:
            yield from self._sweep_staged(this)
            yield from self._unpack_dying(this.now_us)
            for table_id in list(self._state.tables):
                yield from self._trim(table_id, held.get(table_id, []), this.floors)
            yield from self._forget_outcomes(this.now_us)
            self._progress = {key: value for key, value in self._progress.items() if key in self._state.tables}

    def _page(self, start: bytes, end: bytes, count: int = limits.TICK_ITEMS_MAX) -> list[tuple[bytes, bytes]]:
        """The next records, within the room left."""
        cursor = self._state.store.cursor()
        found = list(islice(cursor.scan(start, end), max(min(count, self._room), 1))) if start < end else []
        self._room -= 1 + len(found)
        return found

    def _pages(self, start: bytes, end: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """All records of a range; the caller pauses after each page."""
        while page := self._page(start, end):
            yield page
            start = page[-1][0] + b"\x00"

    # -- the horizon ---------------------------------------------------------------------------------------------------

    def _move_horizons(self, now_us: int) -> Steps:
        moved = False
        self._branched_us = {}  # branches to come begin later
        for branch in self._state.branches.values():
            since_us = self._branched_us.get(branch.tables, branch.time_us)
            self._branched_us[branch.tables] = min(since_us, branch.time_us)
        for table_id in list(self._state.tables):
            table, view = self._state.tables.get(table_id), self._state.views.find(table_id)
            self._room -= 1
            if table is not None and view is not None and view.oldest < view.head:
                moved = self._move_horizon(table, view, now_us) or moved
            yield
        if moved:  # the next tick finds it durable
            self._room = 0
            yield

    def _move_horizon(self, table: TableState, view: TableView, now_us: int) -> bool:
        """Moves the horizon, by durable state: the version that was current then, and how long versions are kept."""
        progress = self._progress_of(table)
        retain = retain_us(view.meta.properties)
        if progress.retain_us == retain and now_us < progress.still_us:
            return False
        self._room -= 1
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
        wanted = state.marks.held_from(table.meta.table_id, now_us, state.history.epoch)
        if wanted is not None and wanted < oldest:
            oldest, later = wanted, None  # it goes on with the cursor, whenever that is
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
        self._room -= 1
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
        for page in self._pages(keys.past_from(raw, progress.swept + 1), keys.past_from(raw, horizon + 1)):
            marked = bool(self._page(keys.restored_prefix(raw), prefix_end(keys.restored_prefix(raw)), 1))
            for key, value in page:
                live, removed = decode_live(value)
                if not is_held(live.added, removed, horizon, held):
                    entry = live.entry
                    if entry.external:
                        forget_import(self._state.batch, raw, live)
                    span = keys.span_key(raw, live.added, removed, entry.partition, entry.bucket, entry.path)
                    self._state.batch.delete(span)
                    if self._is_of_base(raw, entry):
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
            mark = keys.restored_key(raw, entry.partition, entry.bucket, entry.path)
            found = self._state.store.get(mark)
            if found is not None:
                left = keys.decode_version(found) - 1
                if left:
                    batch.put(mark, keys.encode_version(left))
                else:
                    batch.delete(mark)
                self._state.flush()
                return
        self._list_unless_live(raw, entry, now_us)

    def _list_unless_live(self, raw: bytes, entry: Entry, now_us: int) -> None:
        """The last check before a file can be deleted: whatever its past records say, it must not be live."""
        if self._state.store.get(keys.live_key(raw, entry.partition, entry.bucket, entry.path)) is None:
            self._list(raw, entry, now_us)

    def _list(self, raw: bytes, entry: Entry, now_us: int) -> None:
        if entry.inlined:
            self._state.batch.delete(keys.inlined_key(raw, entry.path))
        elif not entry.external:
            home = self._state.home_of(raw)
            self._state.batch.put(keys.purgeable_key(home, entry.path), keys.encode_version(max(now_us, 0)))

    def _is_of_base(self, raw: bytes, entry: Entry) -> bool:
        """Whether the file of a fork's entry is one that its base had."""
        if raw not in self._state.forks:
            return False
        cursor = self._state.store.cursor()
        return is_of_base(cursor, raw, (entry.partition, entry.bucket), entry.path)

    # -- dropped tables ------------------------------------------------------------------------------------------------

    def _purge_dropped(self, now_us: int) -> Steps:
        waits: dict[tuple[bytes, bytes], int] = {}
        for page in self._pages(keys.DROPPED, prefix_end(keys.DROPPED)):
            for drop in page:
                until_us = self._drops_wait.get(drop, 0)
                if until_us <= now_us:
                    until_us = yield from self._purge_one_dropped(drop[0][1:], keys.decode_version(drop[1]), now_us)
                waits[drop] = until_us
            yield
        self._drops_wait = waits

    def _purge_one_dropped(self, raw: bytes, dropped_us: int, now_us: int) -> Generator[None, None, int]:
        """Purges one dropped table; returns the time until which nothing more is due."""
        metas, fork, last = keys.table_prefix(raw), self._state.forks.get(raw), None
        self._room -= 1
        if fork is None or not fork.is_gone:  # a look for what is gone passes all that was deleted beside it
            last = next(iter(self._state.store.cursor().scan_back(metas, prefix_end(metas))), None)
            self._room -= COST_OF_A_LOOK
        if last is None:
            forget_us = dropped_us + self._forget_after_us()
            branch = None if fork is None else self._state.branches.find(fork.branch)
            if fork is not None and branch is not None and is_on(fork, branch):
                return now_us + self._forget_after_us()  # the table stays dropped on its branch
            if fork is None and len(self._state.family_of(raw)) > 1:  # its folder goes after the last of them
                self._state.batch.put(keys.dropped_key(raw), keys.encode_version(max(now_us, 0)))
                return now_us + self._forget_after_us() // 2
            if forget_us <= now_us:
                self._state.batch.delete(keys.dropped_key(raw))
                if fork is not None:
                    del self._state.forks[raw]
                    self._state.batch.delete(keys.fork_key(raw))
            return forget_us
        if self._state.is_purge_begun(raw):
            yield from self._purge_entries(raw, now_us)
            return 0
        if self._state.forks.needs(raw):
            return 0  # they have its entries, files in its folder, or files that it has since a refresh
        meta = decode_table(last[1])
        purge_us = dropped_us + (0 if fork is not None and fork.branch else retain_us(meta.properties))
        if purge_us <= now_us and not self._state.pins.held(meta.table_id):
            self._state.batch.put(keys.drop_begun_key(raw), b"")  # the next round finds it durable
            self._state.marks.forget(meta.table_id)
        return purge_us

    def _purge_entries(self, raw: bytes, now_us: int) -> Steps:
        for prefix in (keys.live_prefix(raw), keys.past_prefix(raw)):
            for page in self._pages(prefix, prefix_end(prefix)):
                for key, value in page:
                    live, _ = decode_live(value)
                    self._state.batch.delete(key)
                    if live.entry.external:
                        forget_import(self._state.batch, raw, live)
                    if not (self._is_of_base(raw, live.entry) or self._is_of_parent(raw, live.added)):
                        self._list(raw, live.entry, now_us)
                yield
        for prefix in keys.record_prefixes(raw):
            yield from self._delete(prefix, prefix_end(prefix))
        yield from self._delete(keys.table_prefix(raw), prefix_end(keys.table_prefix(raw)))
        self._state.batch.delete(keys.drop_begun_key(raw))
        if raw in self._state.forks:
            self._state.put_fork(replace(self._state.forks[raw], is_gone=True))

    def _is_of_parent(self, raw: bytes, added: int) -> bool:
        """Whether the files that a version of a fork added are its parent's since a merge."""
        fork = self._state.forks.get(raw)
        return fork is not None and fork.is_merged and added not in fork.left_out

    def _delete(self, start: bytes, end: bytes) -> Steps:
        for page in self._pages(start, end):
            for key, _ in page:
                self._state.batch.delete(key)
            yield

    # -- staged files of lost races ------------------------------------------------------------------------------------

    def _sweep_staged(self, this: Round) -> Steps:
        start, end = keys.STAGED, prefix_end(keys.STAGED)
        while found := self._page(start, end, 1):
            raw = found[0][0][1:17]
            start = prefix_end(keys.staged_prefix(raw))
            yield from self._sweep_lost(keys.uuid_text(raw), keys.staged_prefix(raw), this)
            yield

    def _sweep_lost(self, txn_id: str, staged: bytes, this: Round) -> Steps:
        """Sweeps one ended transaction's staged files; open transactions own theirs."""
        if txn_id in self._state.open:
            return
        txn = self._state.find_txn(txn_id)
        if txn is None:
            return
        ended_us = given_up_us(self._state, txn, this.now_us)
        if ended_us is None:
            yield from self._delete(staged, prefix_end(staged))
        elif ended_us + self._keeping.adopt_grace_ms * 1000 > this.now_us:
            for mine in txn.tables.values():
                floor = this.floors.get(mine.table_id, mine.read_version)
                this.floors[mine.table_id] = min(floor, mine.read_version)
        else:
            for mine in txn.tables.values():
                mine.staged, mine.staged_rows = {}, 0
            for page in self._pages(staged, prefix_end(staged)):
                for key, value in page:
                    self._state.batch.put(keys.dying_key(key), value)
                    self._state.batch.delete(key)
                yield

    def _unpack_dying(self, now_us: int) -> Steps:
        for page in self._pages(keys.DYING, prefix_end(keys.DYING)):
            for key, value in page:
                raw = keys.table_of_dying(key)
                for entry in decode_chunk(value):
                    self._list_unless_live(raw, entry, now_us)
                    self._room -= 1
                    yield
                self._state.batch.delete(key)
            yield

    # -- records that no request can read ------------------------------------------------------------------------------

    def _trim(self, table_id: str, held: list[int], floors: Mapping[str, int]) -> Steps:
        """Removes commits, times and metadata below the floor. Commits go first: the rest shows where the floor was."""
        table = self._state.tables.get(table_id)
        self._room -= 1
        yield
        if table is None:
            return
        progress = self._progress_of(table)
        floor = min([table.oldest, floors.get(table_id, table.oldest), *held])
        if floor <= progress.trimmed:
            return
        raw = table.raw_id
        first = self._state.store.get(keys.commit_key(raw, floor))
        if first is None:
            return
        floor_us = decode_commit(first).footprint.time_us
        table.trimmed = max(self._state.trimmed(table), floor)
        self._state.changed.add(table_id)
        table.last_metadata_version = max(table.last_metadata_version, floor)
        yield from self._delete(keys.commit_key(raw, progress.trimmed), keys.commit_key(raw, floor))
        yield from self._delete(keys.chunk_key(raw, progress.trimmed, 0), keys.chunk_key(raw, floor, 0))
        yield from self._delete(keys.idle_key(raw, progress.trimmed), keys.idle_key(raw, floor))
        yield from self._delete(keys.time_key(raw, progress.trimmed_us), keys.time_key(raw, floor_us))
        yield from self._trim_metadata(raw, floor)
        progress.trimmed, progress.trimmed_us = floor, floor_us

    def _trim_metadata(self, raw: bytes, floor: int) -> Steps:
        """Keeps the newest record of each schema, because files outlive the schema that they were written under."""
        before: tuple[bytes, int] | None = None
        for page in self._pages(keys.table_prefix(raw), keys.table_key(raw, floor + 1)):
            for key, value in page:
                schema_version = decode_table(value).schema_version
                if before is not None and before[1] == schema_version:
                    self._state.batch.delete(before[0])
                before = key, schema_version
            yield

    def _forget_after_us(self) -> int:
        return (self._keeping.outcome_keep_ms + limits.OUTCOME_MARGIN_MS) * 1000

    def _forget_outcomes(self, now_us: int) -> Steps:
        """Removes outcomes whose ids are refused for their age."""
        before_us = now_us - self._forget_after_us()
        end = prefix_end(keys.TRANSACTIONS)
        stays: bytes | None = None
        last = self._outcomes_from
        for page in self._pages(self._outcomes_from, end):
            for key, value in page:
                if keys.txn_time_ms(key) * 1000 >= before_us:
                    self._outcomes_from = stays or key
                    return
                last = key
                if not self._forget_outcome(key, value, before_us):
                    stays = stays or key
            yield
        self._outcomes_from = stays or last

    def _forget_outcome(self, key: bytes, value: bytes, before_us: int) -> bool:
        txn = decode_txn(value)
        if txn.state is TxnState.OPEN or txn.end_us >= before_us or self._is_staged(key[1:]):
            return False
        self._state.note_forgotten(keys.txn_time_ms(key))
        self._state.batch.delete(key)
        self._state.ended.pop(txn.txn_id, None)
        return True

    def _is_staged(self, raw: bytes) -> bool:
        """Whether its files must be swept first; its record names the adopter."""
        return bool(self._page(keys.staged_prefix(raw), prefix_end(keys.staged_prefix(raw)), 1))
