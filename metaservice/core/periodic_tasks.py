"""Periodic tasks: statements that workers run by a schedule. Which run is due, and what becomes of it.

A run is known by its task and its due time, which only grows: they make the application version of its commit, so
that a run that is killed, doubled or raced commits once. A run that failed is tried again under the same due time.
Instants that pass while a run waits, a task is suspended or no worker is there count as one: the newest of them.

    every 5 minutes       these many after the task was made, or got its schedule, and so on
    cron 30 3 * * 1-5     at these times, in UTC
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.model import Operation, Principal
from metaservice.core.table.schedule import ScheduleEntry, parse_cron
from metaservice.shared.view_schedules import EVERY, parse_view_schedule

SECOND_US: Final = 1_000_000
CRON: Final = "cron"
INTERVAL_S_MIN: Final = 10
ATTEMPTS_MAX: Final = 4  # of one run
FAILURES_MAX: Final = 10  # runs in succession; then a task suspends itself
BACKOFF_US: Final = 5 * SECOND_US
BACKOFF_US_MAX: Final = 900 * SECOND_US
REQUESTS_KEPT: Final = 32  # ids of one run's requests: the newest
OPERATIONS: Final = (Operation.INSERT, Operation.OVERWRITE, Operation.UPDATE, Operation.DELETE, Operation.MERGE)
_BACK_US: Final = tuple(seconds * SECOND_US for seconds in (60, 3_600, 86_400, 40 * 86_400))
_USING: Final = re.compile(r"(?:using )?cron (?P<fields>.+?)(?: utc)?\Z")


class RunOutcome(IntEnum):
    """How a run ended."""

    DONE = 1
    SKIPPED = 2
    FAILED = 3


class StatementEngine(IntEnum):
    """What runs a statement. Every worker of periodic tasks has DuckDB."""

    DUCKDB = 1
    SPARK = 2


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """When a task is due: every so many seconds after an anchor, or at the times of a cron entry."""

    text: str
    interval_us: int = 0
    cron: ScheduleEntry | None = None

    def next_us(self, anchor_us: int, after_us: int) -> int:
        """The first time after a time."""
        if self.cron is not None:
            return self.cron.next_us(max(anchor_us, after_us)) or 0
        steps = max(after_us - anchor_us, 0) // self.interval_us
        return anchor_us + (steps + 1) * self.interval_us

    def newest_us(self, anchor_us: int, after_us: int, now_us: int) -> int | None:
        """The last time after one time and up to another; None: there is none."""
        first_us = self.next_us(anchor_us, after_us)
        if not first_us or first_us > now_us:
            return None
        if self.cron is None:
            return first_us + (now_us - first_us) // self.interval_us * self.interval_us
        for back_us in _BACK_US:
            later_us = self.next_us(anchor_us, max(after_us, now_us - back_us))
            if later_us <= now_us:
                first_us = later_us
                break
        while (following_us := self.next_us(anchor_us, first_us)) and following_us <= now_us:
            first_us = following_us
        return first_us


@lru_cache(maxsize=1 << 10)  # each look at a task asks
def parse_run_schedule(text: str) -> RunSchedule:
    """The schedule of a text: `every 5 minutes`, `5 minutes`, `cron 30 3 * * *`, `USING CRON 30 3 * * * UTC`."""
    words = " ".join(text.lower().replace("'", " ").replace('"', " ").split())
    cron = _USING.match(words)
    try:
        if cron is not None:
            return RunSchedule(f"{CRON} {cron['fields']}", cron=parse_cron(cron["fields"]))
        schedule = parse_view_schedule(words if words.startswith(f"{EVERY} ") else f"{EVERY} {words}")
    except ValueError as error:
        raise invalid("RUN_SCHEDULE_INVALID", schedule=text[:128], error=error) from None
    if schedule.seconds < INTERVAL_S_MIN:
        raise invalid("RUN_SCHEDULE_INVALID", schedule=text[:128], error=f"at least {INTERVAL_S_MIN} seconds")
    return RunSchedule(schedule.text, schedule.seconds * SECOND_US)


@dataclass(frozen=True, slots=True)
class HasData:
    """A condition: a table has commits of data since the last run began, or after a cursor."""

    table_id: str
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who made a task, as proved then: its runs need these rights."""

    principal: Principal
    groups: tuple[str, ...] = ()
    role: int = 0  # on the service, by its settings


NOBODY: Final = Owner(Principal("", ""))


@dataclass(frozen=True, slots=True)
class PeriodicRun:
    """A run that ended. `skips`: how many runs in succession were skipped, of which this is the last."""

    due_us: int
    outcome: RunOutcome
    begin_us: int
    end_us: int
    attempts: int = 0
    rows: int = 0
    version: int = 0
    worker: str = ""
    error: str = ""
    skips: int = 0
    requested: bool = False
    revision: int = 1
    request_ids: tuple[str, ...] = ()  # of those who asked for it
    engine: StatementEngine | None = None  # None: nothing ran


@dataclass(frozen=True, slots=True)
class ScheduledStatement:
    """A periodic task: its definition, and where its runs stand.

    `run_us` is the due time of the run that waits for its end or its next attempt; 0: none does. `noted` are the newest
    versions of data of the condition's tables when that run began, `seen` those of the last run that was done.
    """

    name: str
    task_id: str
    statement: str
    operation: Operation
    table_id: str
    source_ids: tuple[str, ...]
    schedule: str
    conditions: tuple[HasData, ...] = ()
    needs_all: bool = False  # of the conditions; else any of them
    comment: str = ""
    owner: Owner = NOBODY
    create_us: int = 0
    change_us: int = 0
    revision: int = 1
    digest: bytes = b""
    is_suspended: bool = False
    anchor_us: int = 0  # the schedule counts from here
    ended_us: int = 0  # due time of the last run that ended
    run_us: int = 0
    is_requested: bool = False
    begin_us: int = 0
    attempts: int = 0
    worker: str = ""
    not_before_us: int = 0
    failures: int = 0  # runs that failed in succession
    error: str = ""
    noted: tuple[tuple[str, int], ...] = ()
    seen: tuple[tuple[str, int], ...] = ()
    last: PeriodicRun | None = None
    request_ids: tuple[str, ...] = ()  # of those who asked for the run that waits
    engine: StatementEngine = StatementEngine.DUCKDB

    @property
    def app_id(self) -> str:
        """The application whose versions are the due times of the runs."""
        return f"periodic-{self.task_id}"

    @property
    def next_us(self) -> int:
        """When the next run or attempt is due; 0: never."""
        if self.run_us and (self.is_requested or not self.is_suspended):
            return max(self.run_us, self.not_before_us)
        return 0 if self.is_suspended else parse_run_schedule(self.schedule).next_us(self.anchor_us, self._after_us)

    @property
    def _after_us(self) -> int:
        return max(self.anchor_us, self.ended_us)

    def due_us(self, now_us: int) -> int | None:
        """The due time of the run to begin, or to try again, now; None: nothing is due."""
        if self.is_suspended and not self.is_requested:
            return None
        if self.run_us:
            return self.run_us if now_us >= self.not_before_us else None
        return parse_run_schedule(self.schedule).newest_us(self.anchor_us, self._after_us, now_us)

    def holds(self, data_versions: Mapping[str, int], cursors: Mapping[HasData, int]) -> bool:
        """Whether the condition is true.

        `data_versions` are the newest versions of data of tables, 0 for one that is gone; `cursors` the positions.
        """
        if not self.conditions or self.is_requested:
            return True
        seen = dict(self.seen)
        each = [
            data_versions.get(each.table_id, 0) > (cursors[each] if each.cursor else seen.get(each.table_id, 0))
            for each in self.conditions
            if not each.cursor or each in cursors
        ]
        return len(each) == len(self.conditions) and all(each) if self.needs_all else any(each)

    # -- runs

    def begun(self, due_us: int, now_us: int, worker: str, noted: Mapping[str, int]) -> ScheduledStatement:
        """With a run, or another attempt of it. The first attempt says what data its condition saw."""
        first = tuple(sorted(noted.items())) if not self.attempts else self.noted
        begin_us = self.begin_us if self.attempts else now_us
        return replace(self, run_us=due_us, begin_us=begin_us, attempts=self.attempts + 1, worker=worker, noted=first)

    def done(self, now_us: int, rows: int, version: int) -> ScheduledStatement:
        """After the end of a run that committed, or had nothing to change."""
        run = self._ended(RunOutcome.DONE, now_us, rows=rows, version=version)
        return replace(self._free(run), failures=0, error="", seen=self.noted)

    def skipped(self, due_us: int, now_us: int) -> ScheduledStatement:
        """After a run that the condition left out."""
        before = self.last.skips if self.last is not None else 0
        run = PeriodicRun(due_us, RunOutcome.SKIPPED, now_us, now_us, skips=before + 1, revision=self.revision)
        return self._free(run)

    def failed(self, now_us: int, error: str) -> ScheduledStatement:
        """After an attempt that failed: the run is tried again, later each time; after the last one it has failed."""
        if self.attempts < ATTEMPTS_MAX:
            wait_us = min(BACKOFF_US << (self.attempts - 1), BACKOFF_US_MAX)
            return replace(self, not_before_us=now_us + wait_us, error=error, worker="")
        run = self._ended(RunOutcome.FAILED, now_us, error=error)
        failures = self.failures + 1
        ended = replace(self._free(run), failures=failures, error=error)
        return replace(ended, is_suspended=self.is_suspended or failures >= FAILURES_MAX)

    def _ended(
        self, outcome: RunOutcome, now_us: int, *, rows: int = 0, version: int = 0, error: str = ""
    ) -> PeriodicRun:
        return PeriodicRun(
            self.run_us,
            outcome,
            self.begin_us,
            now_us,
            self.attempts,
            rows,
            version,
            self.worker,
            error,
            requested=self.is_requested,
            revision=self.revision,
            request_ids=self.request_ids,
            engine=self.engine,
        )

    def _free(self, run: PeriodicRun) -> ScheduledStatement:
        return replace(
            self,
            ended_us=run.due_us,
            run_us=0,
            is_requested=False,
            begin_us=0,
            attempts=0,
            worker="",
            not_before_us=0,
            noted=(),
            last=run,
            request_ids=(),
        )

    # -- changes

    def requested(self, now_us: int, request_id: str = "") -> ScheduledStatement:
        """With a run now, whatever the schedule and the condition say; one that waits is tried now."""
        return replace(
            self,
            run_us=self.run_us or max(now_us, self._after_us + 1),
            is_requested=True,
            not_before_us=0,
            attempts=0,
            request_ids=(*self.request_ids, *([request_id] if request_id else []))[-REQUESTS_KEPT:],
        )

    def suspended(self) -> ScheduledStatement:
        """Without further runs."""
        return replace(self, is_suspended=True)

    def resumed(self) -> ScheduledStatement:
        """With runs again, the first at once if one was missed; a run that waited is tried now."""
        return replace(self, is_suspended=False, not_before_us=0, attempts=0, failures=0)

    def rescheduled(self, schedule: RunSchedule, now_us: int) -> ScheduledStatement:
        """With another schedule, which counts from now."""
        return replace(self, schedule=schedule.text, anchor_us=max(now_us, self.anchor_us))

    def replacing(self, old: ScheduledStatement, now_us: int) -> ScheduledStatement:
        """This definition under the id of an old one, with its history; a run of the old one is given up."""
        return replace(
            self,
            task_id=old.task_id,
            create_us=old.create_us,
            change_us=now_us,
            revision=old.revision + 1,
            anchor_us=max(now_us, old.ended_us, old.run_us),
            ended_us=max(old.ended_us, old.run_us),
            last=old.last,
        )


def unknown_task(name: str) -> MetaError:
    """The refusal for a task that isn't there, or is hidden."""
    return MetaError(ErrorKind.NOT_FOUND, "PERIODIC_TASK_UNKNOWN", task=name)
