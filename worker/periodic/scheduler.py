"""Runs periodic tasks when they are due, in the process of a worker.

Each pass lists the tasks. The service says what is due, skips what has no data, and hands a run to one worker under a
lease; several workers can run.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Final

from metaservice.client import LakeTXError
from protos.laketx.v1 import maintenance_pb2 as pb
from worker.connection.lake_connection import Connection
from worker.periodic.attempts import run_attempt, worker_name

POLL_S: Final = 1.0
IDLE_S: Final = 5.0  # if there is no task
RUNS_AT_ONCE: Final = 2

log = logging.getLogger("laketx.worker")


class TaskScheduler:
    """Runs periodic tasks: `start`, later `stop`; or `run_once`."""

    def __init__(self, lake: Connection, *, poll_s: float = POLL_S) -> None:
        self._lake = lake
        self._poll_s = poll_s
        self.worker = worker_name()
        self._running: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._has_tasks = False
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="laketx-periodic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Begins no run any more."""
        self._stopping.set()
        self._wake.set()

    def stop(self, wait_s: float) -> None:
        """Ends after the runs that are under way, if that is soon enough; others are run again."""
        self.ask_to_stop()
        deadline = time.monotonic() + wait_s
        with self._lock:
            threads = [self._thread, *self._running.values()]
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def run_once(self) -> list[str]:
        """Looks at all tasks once, and begins the runs that are due; returns the names of those tasks."""
        names: list[str] = []
        pages = list(self._lake.client.list_periodic_pages())
        self._has_tasks = any(page.tasks for page in pages)
        due = [task for page in pages for task in page.tasks if 0 < task.next_time_us <= page.time_us]
        for task in sorted(due, key=lambda task: task.next_time_us):
            with self._lock:
                has_room = task.task_id not in self._running and len(self._running) < RUNS_AT_ONCE
            if has_room and self._begin(task):
                names.append(task.name)
        return names

    def wait(self) -> None:
        """Until the runs that are under way have ended."""
        with self._lock:
            threads = list(self._running.values())
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run_once()
            except LakeTXError as error:
                log.warning("periodic tasks are not run: %s", error)
            except Exception:
                log.exception("the scheduler of periodic tasks failed; it continues")
            self._wake.wait(self._poll_s if self._has_tasks else max(self._poll_s, IDLE_S))
            self._wake.clear()

    def _begin(self, task: pb.PeriodicTask) -> bool:
        try:
            begun = self._lake.client.begin_periodic_run(task.task_id, self.worker)
        except LakeTXError as error:  # it is dropped, or the right is missing
            log.info("periodic task %s is left alone: %s", task.name, error)
            return False
        if not begun.due_time_us:
            if begun.task.error and begun.task.error != task.error:
                log.warning("periodic task %s could not run: %s", task.name, begun.task.error)
            return False
        thread = threading.Thread(target=partial(self._run, begun), name="laketx-periodic-run", daemon=True)
        with self._lock:
            self._running[task.task_id] = thread
        thread.start()
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
        finally:
            with self._lock:
                del self._running[begun.task.task_id]
            self._wake.set()
