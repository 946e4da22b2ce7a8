"""Periodic tasks: make, change, list, drop, and hand their runs out. Every method runs on the decider's thread."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.periodic_tasks import (
    OPERATIONS,
    HasData,
    PeriodicRun,
    ScheduledStatement,
    StatementEngine,
    parse_run_schedule,
    unknown_task,
)
from metaservice.core.table.view_definition import is_view
from metaservice.service.decider.branch_marks import find_cursor
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.naming import table_name_in
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.port import prefix_end
from metaservice.store.records.periodic_tasks import decode_periodic_run

MayRun = Callable[[ScheduledStatement], None]  # raises what its owner lacks


@dataclass(frozen=True, slots=True)
class TaskChange:
    """What an ALTER changes; None: it stays."""

    is_suspended: bool | None = None
    schedule: str = ""
    comment: str | None = None
    run_now: bool = False
    request_id: str = ""  # of run_now


class PeriodicTasks:
    """The use cases."""

    def __init__(
        self,
        decider: Decider,
        clocks: Clocks,
        lease_ms: int,
        make_id: Callable[[], str],
        check_room: Callable[[], None],
    ) -> None:
        self._decider = decider
        self._clocks = clocks
        self.lease_ms = lease_ms
        self._make_id = make_id
        self._check_room = check_room

    @property
    def _state(self) -> State:
        return self._decider.state

    # -- definitions

    def put(self, new: ScheduledStatement, *, if_not_exists: bool, or_replace: bool) -> ScheduledStatement:
        """Makes a task, or replaces the one of that name; the same request again changes nothing."""
        state = self._state
        old = state.periodic.find(new.name)
        if old is not None and (old.digest == new.digest or if_not_exists):
            return old
        if old is not None and not or_replace:
            raise MetaError(ErrorKind.ALREADY_EXISTS, "PERIODIC_TASK_EXISTS", task=old.name)
        self._check(new)
        self._check_room()
        if old is None and len(state.periodic.tasks) >= limits.PERIODIC_TASKS_MAX:
            raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_PERIODIC_TASKS", most=limits.PERIODIC_TASKS_MAX)
        state.need("periodic_tasks")
        now_us = self._now_us()
        new = replace(new, schedule=parse_run_schedule(new.schedule).text)
        if old is not None:
            return self._put(replace(new, name=old.name).replacing(old, now_us))
        name = table_name_in(state, new.name)
        made = replace(new, name=name, task_id=self._make_id(), create_us=now_us, change_us=now_us, anchor_us=now_us)
        return self._put(made)

    def _check(self, new: ScheduledStatement) -> None:
        state = self._state
        target = state.get_table(new.table_id)
        if target.fork is not None and target.fork.branch:
            raise invalid("PERIODIC_TASK_ON_BRANCH", task=new.name, table=target.meta.name)
        if is_view(target.meta.properties):
            raise MetaError(ErrorKind.BLOCKED, "VIEW_READ_ONLY", table=target.meta.name)
        if new.operation not in OPERATIONS:
            raise invalid("PERIODIC_STATEMENT_INVALID", operation=new.operation.name)
        for table_id in new.source_ids:
            state.get_table(table_id)
        for each in new.conditions:
            state.get_table(each.table_id)
            if each.cursor and find_cursor(state, each.table_id, each.cursor) is None:
                raise MetaError(ErrorKind.NOT_FOUND, "CURSOR_UNKNOWN", table_id=each.table_id, name=each.cursor)

    def get(self, name: str) -> ScheduledStatement:
        task = self._state.periodic.find(name)
        if task is None:
            raise unknown_task(name)
        return task

    def look(self, name: str) -> tuple[ScheduledStatement, bool]:
        """A task, and whether a run of it waits for a worker with its engine."""
        task = self.get(name)
        return task, self._waits(task)

    def _waits(self, task: ScheduledStatement) -> bool:
        """Whether a run is due that not every worker can have, and none has."""
        if task.engine is StatementEngine.DUCKDB or task.due_us(self._now_us()) is None:
            return False
        if self._state.periodic.holder(task.task_id, self._clocks.mono_ms()) or self._is_committed(task):
            return False
        return bool(task.run_us) or task.holds(self._data_versions(task), self._cursors(task))

    def list_all(
        self, namespace: str, after: str, count: int, is_shown: Callable[[ScheduledStatement], bool]
    ) -> tuple[list[ScheduledStatement], frozenset[str], int]:
        """Tasks by name, the ids of those that wait for a worker with their engine, and the time now."""
        prefix = f"{namespace}." if namespace else ""
        later = (task for task in self._state.periodic.tasks.values() if task.name > after)
        listed = (task for task in later if task.name.startswith(prefix) and is_shown(task))
        tasks = nsmallest(count, listed, key=lambda task: task.name)
        return tasks, frozenset(task.task_id for task in tasks if self._waits(task)), self._now_us()

    def alter(self, name: str, change: TaskChange) -> tuple[ScheduledStatement, int]:
        """Changes a task; returns it with the due time of the run that was asked for, if one was.

        A request whose run waits, or is in the history, changes nothing.
        """
        task, now_us = self.get(name), self._now_us()
        if change.request_id and (due_us := self._due_of(task, change.request_id)):
            return task, due_us
        if change.schedule:
            task = task.rescheduled(parse_run_schedule(change.schedule), now_us)
        if change.comment is not None:
            task = replace(task, comment=change.comment)
        if change.is_suspended is not None and change.is_suspended != task.is_suspended:
            task = task.suspended() if change.is_suspended else task.resumed()
        if change.run_now:
            task = self._settled(task, now_us).requested(now_us, change.request_id)
        return self._put(task), task.run_us if change.run_now else 0

    def _due_of(self, task: ScheduledStatement, request_id: str) -> int:
        """The due time of the run that a request asked for before; 0: none is known."""
        if request_id in task.request_ids:
            return task.run_us
        return next((run.due_us for run in self._runs(task, 0) if request_id in run.request_ids), 0)

    def drop(self, name: str) -> bool:
        """Whether there was one."""
        task = self._state.periodic.find(name)
        if task is not None:
            self._state.flush()
            self._state.periodic.drop(task, self._state.batch, self._state.store.cursor())
        return task is not None

    def list_runs(self, name: str, before_us: int, count: int) -> list[PeriodicRun]:
        """The runs that ended and were due before a time, newest first."""
        return list(islice(self._runs(self.get(name), before_us), count))

    def _runs(self, task: ScheduledStatement, before_us: int) -> Iterator[PeriodicRun]:
        raw_id = keys.uuid_bytes(task.task_id)
        self._state.flush()
        end = keys.periodic_run_key(raw_id, before_us) if before_us else prefix_end(keys.periodic_runs_prefix(raw_id))
        for _, raw in self._state.store.cursor().scan_back(keys.periodic_runs_prefix(raw_id), end):
            yield decode_periodic_run(raw)

    # -- runs

    def begin(
        self, task_id: str, worker: str, engines: Container[StatementEngine], may_run: MayRun
    ) -> tuple[ScheduledStatement, bool]:
        """Hands a run out that is due; returns the task, and whether the worker has its run.

        A run whose commit is there has ended, whatever became of its worker. A worker without the task's engine has no
        run, and changes nothing else. `may_run` checks the owner's rights.
        """
        state, task, now_ms = self._state, self._of_id(task_id), self._clocks.mono_ms()
        holder = state.periodic.holder(task_id, now_ms)
        if holder and holder != worker:
            return task, False
        if holder:
            state.periodic.lease(task_id, worker, now_ms + self.lease_ms)
            return task, True
        now_us = self._now_us()
        task = self._settled(task, now_us)
        due_us = task.due_us(now_us)
        if due_us is None:
            return task, False
        seen = self._data_versions(task)
        if not task.run_us and not task.holds(seen, self._cursors(task)):
            return self._put(task.skipped(due_us, now_us)), False
        if task.engine not in engines:
            return task, False
        begun = task.begun(due_us, now_us, worker, seen)
        try:
            may_run(begun)
        except MetaError as refusal:
            return self._put(begun.failed(now_us, f"{refusal.reason}: {refusal.message}")), False
        state.periodic.lease(task_id, worker, now_ms + self.lease_ms)
        return self._put(begun), True

    def end(self, task_id: str, due_us: int, worker: str, *, rows: int, version: int, error: str) -> ScheduledStatement:
        """The end of an attempt. That of a run which has ended, or that another worker has, changes nothing."""
        task, now_us = self._of_id(task_id), self._now_us()
        if task.run_us != due_us:
            return task
        if not error or self._is_committed(task):
            return self._put(task.done(now_us, rows, version))
        if task.worker != worker:
            return task
        self._state.periodic.let_go(task_id)
        return self._put(task.failed(now_us, error))

    def _of_id(self, task_id: str) -> ScheduledStatement:
        task = self._state.periodic.of_id(task_id)
        if task is None:
            raise unknown_task(task_id)
        return task

    def _settled(self, task: ScheduledStatement, now_us: int) -> ScheduledStatement:
        """After the end of a run whose worker vanished when it had committed."""
        return self._put(task.done(now_us, 0, 0)) if self._is_committed(task) else task

    def _is_committed(self, task: ScheduledStatement) -> bool:
        """Whether the run that waits for its end has committed."""
        if not task.run_us or task.table_id not in self._state.tables:
            return False
        self._state.flush()
        raw = self._state.app_version(task.table_id, task.app_id)
        return raw is not None and keys.decode_version(raw) >= task.run_us

    def _data_versions(self, task: ScheduledStatement) -> dict[str, int]:
        """Of the tables of its conditions."""
        return {each.table_id: self._data_version(each.table_id) for each in task.conditions}

    def _data_version(self, table_id: str) -> int:
        """The newest commit that is no compaction and no ALTER; 0: none, or the table is gone."""
        table = self._state.tables.get(table_id)
        if table is None:
            return 0
        return max(table.idle.logical if table.idle.version == table.head else table.head, 0)

    def _cursors(self, task: ScheduledStatement) -> dict[HasData, int]:
        named = [each for each in task.conditions if each.cursor and each.table_id in self._state.tables]
        cursors = {each: find_cursor(self._state, each.table_id, each.cursor) for each in named}
        return {each: cursor.version for each, cursor in cursors.items() if cursor is not None}

    def _put(self, task: ScheduledStatement) -> ScheduledStatement:
        self._state.flush()
        self._state.periodic.put(task, self._state.batch, self._state.store.cursor())
        return task

    def _now_us(self) -> int:
        return max(self._clocks.now_us(), 1)
