"""Runs periodic tasks when they are due, in the process of a worker.

Each pass lists the tasks. The service says what is due, skips what has no data, and hands a run to one worker under a
lease; several workers can run. Those without Spark leave statements in its SQL alone.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from metaservice.client import LakeTXError
from protos.laketx.v1 import maintenance_pb2 as pb
from worker.base.background_runs import IDLE_S, POLL_S, BackgroundRuns
from worker.connection.lake_connection import Connection
from worker.periodic.attempts import run_attempt, worker_name

RUNS_AT_ONCE: Final = 2

log = logging.getLogger("laketx.worker")


class TaskScheduler(BackgroundRuns):
    """Runs periodic tasks: `start`, later `stop`; or `run_once`."""

    def __init__(self, lake: Connection, *, poll_s: float = POLL_S, spark: bool = False) -> None:
        """`spark`: also statements in its SQL, in the lake's session."""
        super().__init__("periodic tasks", poll_s)
        self._lake = lake
        self._engines = [pb.PERIODIC_ENGINE_DUCKDB, *([pb.PERIODIC_ENGINE_SPARK] if spark else [])]
        self.worker = worker_name()
        self._has_tasks = False

    def run_once(self) -> list[str]:
        """Looks at all tasks once, and begins the runs that are due; returns the names of those tasks."""
        names: list[str] = []
        pages = list(self._lake.client.list_periodic_pages())
        self._has_tasks = any(page.tasks for page in pages)
        due = [
            task
            for page in pages
            for task in page.tasks
            if 0 < task.next_time_us <= page.time_us and self._may_ask(task)
        ]
        for task in sorted(due, key=lambda task: task.next_time_us):
            with self._lock:
                has_room = task.task_id not in self._running and len(self._running) < RUNS_AT_ONCE
            if has_room and self._begin(task):
                names.append(task.name)
        return names

    def _rest_s(self) -> float:
        return self._poll_s if self._has_tasks else max(self._poll_s, IDLE_S)

    def _may_ask(self, task: pb.PeriodicTask) -> bool:
        """Whether it can run the task, or the service may skip the run."""
        return task.engine in self._engines or bool(task.conditions and not task.waits_for_engine)

    def _begin(self, task: pb.PeriodicTask) -> bool:
        try:
            begun = self._lake.client.begin_periodic_run(task.task_id, self.worker, self._engines)
        except LakeTXError as error:  # it is dropped, or the right is missing
            log.info("periodic task %s is left alone: %s", task.name, error)
            return False
        if not begun.due_time_us:
            if begun.task.error and begun.task.error != task.error:
                log.warning("periodic task %s could not run: %s", task.name, begun.task.error)
            return False
        self._begin_run(task.task_id, partial(self._run, begun))
        return True

    def _run(self, begun: pb.BeginPeriodicRunResponse) -> None:
        name = begun.task.name
        try:
            done = run_attempt(self._lake, begun, self.worker)
            if isinstance(done, str):
                log.warning("periodic task %s failed: %s", name, done)
            else:
                log.info("periodic task %s: %d rows, version %d", name, done.rows, done.version)
        except LakeTXError as error:
            log.warning("the run of periodic task %s is tried again: %s", name, error)
