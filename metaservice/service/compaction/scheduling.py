"""Evaluates policies after commits and on a clock, and queues the resulting tasks.

A round asks each table whether it changed or time made something due; otherwise it costs nothing more. It runs on a
thread of its own: reading layouts is no work for the decider, which only queues tasks. But the interpreter runs one
thread at a time, so reading slows the decider down: a table with large partitions that is written all day is examined
the less often the longer an examination takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from metaservice.core import limits
from metaservice.core.compaction.plans import TaskPlan
from metaservice.core.compaction.policy import WORK, Policy, policy_of
from metaservice.core.errors import MetaError
from metaservice.core.table.branches import branch_of
from metaservice.core.table.meta import TableMeta
from metaservice.service.compaction.layouts import Layouts, free
from metaservice.service.compaction.taskqueue import TaskQueue
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.views import TableView
from metaservice.shared.log import SCHEDULE_FAILED
from metaservice.store import keys

AGES_LOOK_MS = 10_000
TASKS_A_ROUND = 50
REST_TIMES = 20  # after a look that found nothing to do: so many times what it took
REST_MS_MAX = 30_000


@dataclass(slots=True)
class Watch:
    """The state of a table between rounds."""

    meta: TableMeta
    policy: Policy
    due_ms: int = 0  # ages are looked at again
    rest_ms: int = 0  # nothing is looked at before
    next_us: int = -1  # the schedule's next entry; -1: not known yet
    pending: list[TaskPlan] = field(default_factory=list)


class Scheduler:
    """Runs rounds until it is stopped."""

    def __init__(
        self,
        decider: Decider,
        queue: TaskQueue,
        layouts: Layouts,
        clocks: Clocks,
        every_ms: int,
        report: Callable[..., None],
    ) -> None:
        self._decider = decider
        self._queue = queue
        self._layouts = layouts
        self._clocks = clocks
        self._every_s = every_ms / 1000
        self._report = report
        self._watches: dict[str, Watch] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Starts the rounds; without an interval only operators plan."""
        if self._every_s:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.round()
            except Exception as error:  # noqa: BLE001 - no table service is worth the service; the next round tries again
                self._report(SCHEDULE_FAILED, error=repr(error))

    def round(self) -> None:
        """Examines every table once."""
        views = self._decider.state.views
        for table_id in views.table_ids():
            table = views.find(table_id)
            if table is None:
                continue
            try:
                self._look_at(table)
            except MetaError as error:  # dropped meanwhile, or the store is opened again
                self._report(SCHEDULE_FAILED, table_id=table_id, error=error.reason)
            if self._stop.is_set():
                return
        self._forget([table_id for table_id in self._watches if table_id not in views])

    def _forget(self, table_ids: list[str]) -> None:
        self._layouts.drop(table_ids)
        for table_id in table_ids:
            del self._watches[table_id]

    def _look_at(self, table: TableView) -> None:
        meta = table.meta
        if branch_of(meta.name):  # a merge replays what was committed there, and it can't replay a compaction
            return
        table_id = meta.table_id
        watch = self._watches.get(table_id)
        if watch is None or watch.meta is not meta:
            watch = self._watches[table_id] = Watch(meta, policy_of(meta))
        if not watch.policy.enabled:
            self._layouts.drop([table_id])
            return
        now_us, now_ms = self._clocks.now_us(), self._clocks.mono_ms()
        if watch.policy.schedule:
            self._fire(table, watch, now_us)
        if watch.pending:
            self._queue_pending(table_id, watch)
        layout = self._layouts.find(table_id)
        if layout is not None and layout.version == table.head and now_ms < watch.due_ms:
            return
        if now_ms < watch.rest_ms:
            return
        busy = self._busy(table_id, watch.policy)
        room = min(TASKS_A_ROUND, self._room(table_id))
        plans, has_more = self._layouts.best(table, now_us, room, busy)
        watch.due_ms = now_ms if has_more else now_ms + AGES_LOOK_MS
        if plans:
            self._decider.call(lambda: self._queue.enqueue(table_id, plans))
        elif not has_more:
            done_ms = self._clocks.mono_ms()
            watch.rest_ms = done_ms + min(REST_TIMES * (done_ms - now_ms), REST_MS_MAX)

    def _busy(self, table_id: str, policy: Policy) -> frozenset[tuple[str, int]]:
        return self._decider.state.tasks.busy(table_id, by_partition=policy.by_partition)

    def _room(self, table_id: str) -> int:
        book = self._decider.state.tasks
        return min(limits.TASKS_PER_TABLE_MAX - len(book.of_table(table_id)), limits.TASKS_MAX - len(book.tasks))

    def _fire(self, table: TableView, watch: Watch, now_us: int) -> None:
        """Plans the scheduled work, once for all the times that have passed."""
        table_id = watch.meta.table_id
        if watch.next_us >= 0 and now_us < watch.next_us:
            return
        raw = self._decider.state.store.get(keys.schedule_key(table.raw_id))
        last_us = keys.decode_version(raw) if raw is not None else now_us
        due = {entry.work for entry in watch.policy.schedule if _passed(entry.next_us(last_us), now_us)}
        for work in sorted(due):
            busy = self._busy(table_id, watch.policy)
            watch.pending += self._layouts.plan_all(table, watch.policy.wanting(WORK[work]), (), busy)
        if due or raw is None:
            self._decider.call(lambda: self._queue.note_schedule(table_id, now_us))
        times = [entry.next_us(max(now_us, last_us if not due else 0)) for entry in watch.policy.schedule]
        watch.next_us = min((time for time in times if time is not None), default=2**62)

    def _queue_pending(self, table_id: str, watch: Watch) -> None:
        busy, room = self._busy(table_id, watch.policy), min(TASKS_A_ROUND, self._room(table_id))
        ready = [plan for plan in watch.pending if free(plan, watch.policy, busy) is not None][: max(room, 0)]
        if not ready:
            return
        self._decider.call(lambda: self._queue.enqueue(table_id, ready))
        taken = set(map(id, ready))
        watch.pending = [plan for plan in watch.pending if id(plan) not in taken]


def _passed(time_us: int | None, now_us: int) -> bool:
    return time_us is not None and time_us <= now_us
