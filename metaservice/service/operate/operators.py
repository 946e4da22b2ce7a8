"""Use cases of operators: status, checks, release of the purge, confirmation of the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from metaservice.core.commit.transaction import Txn
from metaservice.core.compaction.tasks import TaskState
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.quotas import Quota
from metaservice.metrics import (
    AHEAD_SECONDS,
    BRANCHES,
    CLOCK_OFF_SECONDS,
    CLOCKS_OFF,
    CURSORS,
    FORKS,
    INLINED_BYTES,
    LOG_BYTES,
    OLDEST_BRANCH_SECONDS,
    OLDEST_PIN_SECONDS,
    OLDEST_TASK_SECONDS,
    OLDEST_TRANSACTION_SECONDS,
    OPEN_TRANSACTIONS,
    PERIODIC_LATE_SECONDS,
    PERIODIC_RUNS,
    PERIODIC_TASKS,
    PINS,
    PURGE_HELD,
    QUOTA_LIMIT,
    QUOTA_USED,
    READ_ONLY,
    ROOM_BYTES,
    STAGED_BYTES,
    STAGED_FILES,
    STALEST_CURSOR_SECONDS,
    START_SECONDS,
    STORE_BYTES,
    TABLES,
    TAGS,
    TASK_FAILURES,
    TASKS_ALARM,
    TASKS_CANCELLED,
    TASKS_CLAIMED,
    TASKS_DONE,
    TASKS_QUEUED,
    Metrics,
)
from metaservice.service.decider.clocks import ClockGuard, ClockHold, Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.usage import COUNTED, QuotaUse, QuotaUses
from metaservice.service.operate.backup import BackupPlace, Backups
from metaservice.service.operate.backup_schedule import BackupHealth
from metaservice.service.operate.check import CheckProgress, StoreCheck
from metaservice.store.history import put_purge_hold, read_purge_hold

SESSION = "/laketx.v1.TransactionService/Session"
WATCH = "/laketx.v1.ReadService/Watch"
BY_ALL = "all"
BY_PRINCIPAL = "principal"
ALWAYS = ("version_conditions",)  # features that don't depend on the store's format


@dataclass(frozen=True, slots=True)
class StandbyView:
    """A process that stands by: how long ago the leader saw a sign of it, and whether it counts as alive."""

    address: str
    seen_ago_ms: int
    alive: bool


@dataclass(frozen=True, slots=True)
class LeadView:
    """Who leads, as operators see it; of a service that is alone all is empty."""

    role: str = ""
    leader: str = ""
    lease_epoch: int = 0
    lease_left_ms: int = 0
    take_over_time_us: int = 0
    standbys: Sequence[StandbyView] = ()
    lease_age_ms: int = 0
    leader_before: str = ""
    take_over_ms: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the service in numbers; the wire's GetStatusResponse describes the fields."""

    version: str
    store_format: int
    start_time_us: int
    uptime_ms: int
    history_epoch: str
    history_time_us: int
    tables: int
    open_transactions: int
    sessions: int
    watchers: int
    jobs: int
    groups: int
    store_bytes: int
    log_bytes: int
    free_bytes: int
    reserve_bytes: int
    read_only_reason: str
    oldest_open_txn_id: str
    oldest_open_begin_time_us: int
    purge_hold_reason: str
    clock_hold_reason: str
    clock_off_ms: int
    clock_hold_left_ms: int
    commit_times_ahead_ms: int
    inlined_bytes: int
    features: Sequence[str]
    quotas: Sequence[QuotaUse]
    role: str = ""
    leader: str = ""
    lease_epoch: int = 0
    lease_left_ms: int = 0
    take_over_time_us: int = 0
    standbys: Sequence[StandbyView] = ()
    lease_age_ms: int = 0
    leader_before: str = ""
    take_over_ms: int = 0
    backup: BackupHealth = field(default_factory=BackupHealth)
    workers: int = 0
    tasks_queued: int = 0


class Leads(Protocol):
    """A service that leads others, as operators see it."""

    def view(self) -> LeadView: ...

    def step_down(self) -> None:
        """Begins to stop."""


class Operators:
    """The use cases of AdminService."""

    def __init__(
        self,
        decider: Decider,
        clocks: Clocks,
        place: BackupPlace,
        pause: Callable[[], None],
        guard: ClockGuard,
        limits: Mapping[str, Quota],
        leads: Leads | None = None,
    ) -> None:
        self._leads = leads
        self._decider = decider
        self._clocks = clocks
        self._place = place
        self._pause = pause
        self._guard = guard
        self._start_us = clocks.now_us()
        self._start_mono_ms = clocks.mono_ms()
        self.backups = Backups(decider, clocks, place)
        self.backup_health: Callable[[], BackupHealth] = BackupHealth
        self.quotas = QuotaUses()
        self.quotas.add(limits, {name: partial(self._use, name) for name in COUNTED})
        self.metrics = Metrics(decider.metrics)
        self.metrics.readings.update(
            {
                QUOTA_USED: lambda: self._by_quota(lambda use: use.used, lambda use: use.principal_used),
                QUOTA_LIMIT: lambda: self._by_quota(lambda use: use.limit, lambda use: use.principal_limit),
                START_SECONDS: lambda: self._start_us / 1e6,
                TABLES: lambda: len(decider.state.views),
                OPEN_TRANSACTIONS: lambda: len(decider.state.open),
                STAGED_FILES: lambda: decider.state.usage.all.staged_files,
                STAGED_BYTES: lambda: decider.state.usage.all.staged_bytes,
                OLDEST_TRANSACTION_SECONDS: self._oldest_seconds,
                PINS: lambda: len(decider.state.pins.pins),
                OLDEST_PIN_SECONDS: self._oldest_pin_seconds,
                BRANCHES: lambda: len(decider.state.branches),
                OLDEST_BRANCH_SECONDS: self._oldest_branch_seconds,
                FORKS: lambda: len(decider.state.forks),
                PERIODIC_TASKS: lambda: len(decider.state.periodic.tasks),
                PERIODIC_RUNS: lambda: decider.state.periodic.runs,
                PERIODIC_LATE_SECONDS: self._periodic_late_seconds,
                TAGS: lambda: len(decider.state.marks.tags),
                CURSORS: lambda: len(decider.state.marks.cursors),
                STALEST_CURSOR_SECONDS: self._stalest_cursor_seconds,
                STORE_BYTES: lambda: decider.state.store.size_bytes(),  # noqa: PLW0108 - after a failure it is another
                LOG_BYTES: lambda: decider.state.store.log_bytes(),  # noqa: PLW0108 - likewise
                ROOM_BYTES: self._room_bytes,
                INLINED_BYTES: lambda: decider.state.inlined_bytes,
                READ_ONLY: lambda: int(self._room_bytes() <= 0),
                PURGE_HELD: lambda: int(bool(read_purge_hold(decider.state.store))),
                CLOCKS_OFF: lambda: int(guard.held),
                CLOCK_OFF_SECONDS: lambda: guard.hold().off_ms / 1000,
                AHEAD_SECONDS: lambda: guard.ahead_ms() / 1000,
                TASKS_QUEUED: lambda: decider.state.tasks.count(TaskState.QUEUED),
                TASKS_CLAIMED: lambda: decider.state.tasks.count(TaskState.CLAIMED),
                TASKS_ALARM: lambda: decider.state.tasks.count(TaskState.FAILED),
                OLDEST_TASK_SECONDS: self._oldest_task_seconds,
                TASKS_DONE: lambda: decider.state.tasks.done,
                TASKS_CANCELLED: lambda: decider.state.tasks.cancelled,
                TASK_FAILURES: lambda: decider.state.tasks.failures,
            }
        )

    def epoch(self) -> str:
        return self._decider.state.history.epoch

    def status(self) -> Status:
        state, streams = self._decider.state, self.metrics.calls.streams
        store, oldest = state.store, self._oldest()
        free_bytes, clock = store.free_bytes(), self._guard.hold()
        lead = self._leads.view() if self._leads is not None else LeadView()
        return Status(
            version=self._place.version,
            store_format=state.format,
            start_time_us=self._start_us,
            uptime_ms=self._clocks.mono_ms() - self._start_mono_ms,
            history_epoch=state.history.epoch,
            history_time_us=state.history.since_us,
            tables=len(state.views),
            open_transactions=len(state.open),
            sessions=streams.get(SESSION, 0),
            watchers=streams.get(WATCH, 0),
            jobs=self._decider.jobs,
            groups=self._decider.groups,
            store_bytes=store.size_bytes(),
            log_bytes=store.log_bytes(),
            free_bytes=free_bytes,
            reserve_bytes=self._place.reserve_bytes,
            read_only_reason="" if free_bytes > self._place.reserve_bytes else "DISK_FULL",
            oldest_open_txn_id=oldest.txn_id if oldest is not None else "",
            oldest_open_begin_time_us=oldest.begin_us if oldest is not None else 0,
            purge_hold_reason=read_purge_hold(store),
            clock_hold_reason=clock.reason,
            clock_off_ms=clock.off_ms,
            clock_hold_left_ms=clock.left_ms,
            commit_times_ahead_ms=self._guard.ahead_ms(),
            inlined_bytes=state.inlined_bytes,
            features=[*ALWAYS, *state.features],
            quotas=self.quotas.list(),
            role=lead.role,
            leader=lead.leader,
            lease_epoch=lead.lease_epoch,
            lease_left_ms=lead.lease_left_ms,
            take_over_time_us=lead.take_over_time_us,
            standbys=lead.standbys,
            lease_age_ms=lead.lease_age_ms,
            leader_before=lead.leader_before,
            take_over_ms=lead.take_over_ms,
            backup=self.backup_health(),
            workers=state.tasks.workers(self._clocks.mono_ms()),
            tasks_queued=state.tasks.count(TaskState.QUEUED),
        )

    def check(self, table_id: str) -> Iterator[CheckProgress]:
        """Checks the store as of now, while commits go on."""
        cursor = self._decider.state.store.cursor()
        return StoreCheck(cursor, self._pause).run(table_id)

    def release_purge(self, *, validate_only: bool) -> str:
        """On the decider's thread: releases the purge; returns why it had waited."""
        state = self._decider.state
        state.flush()
        reason = read_purge_hold(state.store)
        if reason and not validate_only:
            put_purge_hold(state.batch, "")
        return reason

    def confirm_clock(self, *, validate_only: bool) -> ClockHold:
        """On the decider's thread: confirms the clock; returns what was held."""
        return self._guard.confirm(validate_only=validate_only)

    def step_down(self, *, validate_only: bool) -> int:
        """Lets another process lead; returns the epoch of the lease that is given back."""
        if self._leads is None:
            raise MetaError(ErrorKind.BLOCKED, "LEADS_ALONE")
        epoch = self._leads.view().lease_epoch
        if not validate_only:
            self._leads.step_down()
        return epoch

    def _use(self, quota: str) -> tuple[int, dict[str, int]]:
        return self._decider.state.usage.use(quota)  # after a failure it is another state

    def _by_quota(
        self, of_all: Callable[[QuotaUse], int], of_one: Callable[[QuotaUse], int]
    ) -> dict[tuple[str, str], int]:
        shown: dict[tuple[str, str], int] = {}
        for use in self.quotas.list():
            shown[use.quota, BY_ALL] = of_all(use)
            shown[use.quota, BY_PRINCIPAL] = of_one(use)
        return shown

    def _oldest(self) -> Txn | None:
        return min(list(self._decider.state.open.values()), key=lambda txn: txn.begin_us, default=None)

    def _oldest_seconds(self) -> float:
        oldest = self._oldest()
        return max(0.0, (self._clocks.now_us() - oldest.begin_us) / 1e6) if oldest is not None else 0.0

    def _oldest_pin_seconds(self) -> float:
        begun_us = min((pin.begin_us for pin in list(self._decider.state.pins.pins.values())), default=None)
        return 0.0 if begun_us is None else max(0.0, (self._clocks.now_us() - begun_us) / 1e6)

    def _oldest_branch_seconds(self) -> float:
        left_us = min((branch.time_us for branch in list(self._decider.state.branches.values())), default=None)
        return 0.0 if left_us is None else max(0.0, (self._clocks.now_us() - left_us) / 1e6)

    def _stalest_cursor_seconds(self) -> float:
        state, now_us = self._decider.state, self._clocks.now_us()
        keeping = [cursor for cursor in list(state.marks.cursors.values()) if cursor.epoch == state.history.epoch]
        used_us = min((kept.used_us for kept in keeping if kept.left_ms(now_us)), default=now_us)
        return max(0.0, (now_us - used_us) / 1e6)

    def _oldest_task_seconds(self) -> float:
        queued_us = self._decider.state.tasks.oldest_us()
        return max(0.0, (self._clocks.now_us() - queued_us) / 1e6) if queued_us else 0.0

    def _periodic_late_seconds(self) -> float:
        due_us = self._decider.state.periodic.first_due_us()
        return max(0.0, (self._clocks.now_us() - due_us) / 1e6) if due_us else 0.0

    def _room_bytes(self) -> int:
        return self._decider.state.store.free_bytes() - self._place.reserve_bytes
