"""The worker of table services: claims tasks, runs several at a time, and reports how they ended.

Each slot is a thread that claims a task, compacts, and claims the next. While a task runs its claim is renewed with the
progress; a cancelled task is stopped. On a stop, running tasks can finish within the drain time; the rest is stopped
and given back, for other workers to claim at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from metaservice.client import ErrorKind, LakeTXError, MetaServiceError
from metaservice.client.maintenance import claim_of
from protos.laketx.v1 import common_pb2, maintenance_pb2
from worker.arrow.scan.plans import entries_of
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.services.compaction.compaction import Options, runner_of, staged
from worker.services.compaction.groups import OPERATIONS, Group
from worker.services.compaction.jobs import Job, Runner
from worker.services.compaction.orders import ORDERS, Order

TASKS_AT_ONCE: Final = 2
IDLE_S: Final = 5.0
DRAIN_S: Final = 300.0
GIVE_BACK_S: Final = 10.0
STOP_AGAIN_S: Final = 0.5
COMPANION_STOPS_S: Final = 5.0
RENEWALS_PER_LEASE: Final = 3
ERROR_CHARS_MAX: Final = 1_000

log = logging.getLogger("laketx.worker")


@dataclass
class _Running:
    """A task that a slot works on. `ended` signals its renewer; `stopped` says why it was stopped, if it was."""

    task: maintenance_pb2.MaintenanceTask
    lease_ms: int
    ended: threading.Event = field(default_factory=threading.Event)
    stopped: str = ""
    gives_back: bool = False
    job: Job = field(default_factory=Job)


class Companion(Protocol):
    """Work that runs beside the tasks, in a thread of its own."""

    def start(self) -> None: ...
    def ask_to_stop(self) -> None: ...
    def stop(self, wait_s: float) -> None: ...


class Daemon:
    """Runs tasks: `start`, later `stop`; or `run_waiting`."""

    def __init__(
        self,
        lake: Connection,
        *,
        tasks_at_once: int = TASKS_AT_ONCE,
        idle_s: float = IDLE_S,
        runner: Runner | None = None,
        companions: Sequence[Companion] = (),
    ) -> None:
        """`runner`: what the tasks' work runs on; default processes of this machine (see `runner_of`).

        `companions` run beside the tasks, from `start` to `stop`.
        """
        self._lake = lake
        self._runner = runner
        self._companions = companions
        self._idle_s = idle_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._slots = [
            threading.Thread(target=self._serve, name=f"laketx-worker-{number}", daemon=True)
            for number in range(tasks_at_once)
        ]
        self.tasks_done = 0

    def start(self) -> None:
        for slot in self._slots:
            slot.start()
        for companion in self._companions:
            companion.start()

    def ask_to_stop(self) -> None:
        """Stops claiming tasks."""
        self._stopping.set()
        for companion in self._companions:
            companion.ask_to_stop()

    def drain(self, drain_s: float) -> bool:
        """Waits for running tasks; returns whether all of them ended."""
        deadline = time.monotonic() + drain_s
        for slot in self._slots:
            slot.join(max(0.0, deadline - time.monotonic()))
        return not any(slot.is_alive() for slot in self._slots)

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Waits for running tasks, and gives back those that don't end in time."""
        self.ask_to_stop()
        deadline = time.monotonic() + drain_s + GIVE_BACK_S
        is_over = self.drain(drain_s)
        while not is_over and time.monotonic() < deadline:
            for running in self._left():
                running.gives_back = True
                self._stop_task(running, "the worker stops")
            is_over = self.drain(STOP_AGAIN_S)
        for companion in self._companions:
            companion.stop(COMPANION_STOPS_S)
        for running in self._left():
            self._end(running, "")  # it doesn't listen: its transaction ends with its claim

    def _left(self) -> list[_Running]:
        with self._lock:
            return list(self._running.values())

    def run_waiting(self) -> int:
        """Runs every waiting task in this thread, one after the other; returns how many were done."""
        before = self.tasks_done
        while not self._stopping.is_set() and self._claim_and_work():
            pass
        return self.tasks_done - before

    # -- slots

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                worked = self._claim_and_work()
            except LakeTXError as error:
                log.warning("no task could be claimed: %s", error)
                worked = False
            except Exception:
                log.exception("a slot failed; it continues")
                worked = False
            if not worked:
                self._stopping.wait(self._idle_s)

    def _claim_and_work(self) -> bool:
        claimed = self._lake.client.claim_task(operations=list(OPERATIONS.values()))
        if claimed is None:
            return False
        running = _Running(*claimed)
        task = running.task
        log.info("task %s: %s", task.task_id, task.reason or "asked for")
        with self._lock:
            self._running[task.task_id] = running
        try:
            self._work(running)
        finally:
            with self._lock:
                self._running.pop(task.task_id, None)
        return True

    def _work(self, running: _Running) -> None:
        error = ""
        try:
            with self._renewed(running):
                txn_id = self._compact(running)
            self.tasks_done += 1
            log.info("task %s is done by transaction %s", running.task.task_id, txn_id)
            return
        except Exception as failure:  # noqa: BLE001 - whatever it is, the task must be told
            error = f"{type(failure).__name__}: {failure}"[:ERROR_CHARS_MAX]
        log.warning("task %s ended without a commit: %s", running.task.task_id, running.stopped or error)
        self._end(running, error)

    def _compact(self, running: _Running) -> str:
        task = running.task
        table = TableView(self._lake, self._lake.client.get_table(table_id=task.table_id))
        with staged(
            table,
            task.operation,
            groups_of(table, task),
            read_version=task.read_version,
            options=options_of(table, task),
            begin=lambda intent: self._lake.client.begin([intent], task=claim_of(task), commit_message=task.reason),
            runner=self._runner or runner_of(self._lake),
            job=running.job,
        ) as compaction:
            return compaction.commit().txn_id

    def _end(self, running: _Running, error: str) -> None:
        """Reports an attempt that ended without a commit; a cancelled task needs no report."""
        task = running.task
        if running.stopped and not running.gives_back:
            return
        with suppress(LakeTXError):
            self._lake.client.finish_task(
                task.task_id, task.fence, error="" if running.gives_back else error, give_back=running.gives_back
            )

    # -- claims

    @contextmanager
    def _renewed(self, running: _Running) -> Iterator[None]:
        renewer = threading.Thread(target=self._renew, args=[running], name="laketx-claim", daemon=True)
        renewer.start()
        try:
            yield
        finally:
            running.ended.set()
            renewer.join()

    def _renew(self, running: _Running) -> None:
        task = running.task
        while not running.ended.wait(running.lease_ms / 1_000 / RENEWALS_PER_LEASE):
            try:
                answer = self._lake.client.renew_task(task.task_id, task.fence, progress=running.job.progress)
            except MetaServiceError as error:
                if error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.EXHAUSTED):
                    continue
                self._stop_until_ended(running, str(error))
                return
            except (LakeTXError, ValueError) as error:
                log.debug("a claim was not renewed", extra={"task_id": task.task_id, "reason": str(error)})
                continue
            running.lease_ms = answer.lease_ms or running.lease_ms
            if answer.cancelled:
                self._stop_until_ended(running, answer.reason or "called off")
                return

    def _stop_until_ended(self, running: _Running, reason: str) -> None:
        """Cancels repeatedly: between two jobs of Spark there is none to cancel."""
        self._stop_task(running, reason)
        while not running.ended.wait(STOP_AGAIN_S):
            self._stop_task(running, reason)

    def _stop_task(self, running: _Running, reason: str) -> None:
        running.stopped = reason
        running.job.cancel()


def groups_of(table: TableView, task: maintenance_pb2.MaintenanceTask) -> list[Group]:
    """The groups, with the delete sets that did not fit into the answer."""
    for group in task.groups:
        if group.delete_sets_left_out:
            entries = entries_of(table, task.read_version, None, [group.partition])
            group.delete_sets.extend(entry for entry in entries if entry.HasField("delete_set"))
    return list(task.groups)


def options_of(table: TableView, task: maintenance_pb2.MaintenanceTask) -> Options:
    """Options of a task. Files of a primary-key table are sorted by key; only its clustering uses another order."""
    options = task.options
    takes_order = not table.meta.primary_key or task.operation == common_pb2.OPERATION_CLUSTER
    kinds = [kind for kind, order in ORDERS.items() if takes_order and order == options.order]
    order = Order(kinds[0], tuple(options.order_columns)) if kinds else None
    return Options(file_bytes_target=options.file_bytes_target, order=order, message=task.reason)
