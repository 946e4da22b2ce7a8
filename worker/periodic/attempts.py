"""An attempt of a run of a periodic task: by a worker, or by a program that runs the task itself."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Final

from metaservice.client import CommitOutcomeUnknownError, LakeTXError, UnavailableError
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import maintenance_pb2 as pb
from worker.base.lazy_modules import LazyModule
from worker.connection.lake_connection import Connection
from worker.periodic.runs import Done, run_statement

if TYPE_CHECKING:
    from worker.periodic import spark_runs
else:
    spark_runs = LazyModule("worker.periodic.spark_runs")

ERROR_CHARS_MAX: Final = 1_000
RENEWALS: Final = 3  # of a lease, before it ends


def worker_name() -> str:
    """A name that no other worker has."""
    return f"{socket.gethostname()}/{os.getpid()}/{uuid7()[-8:]}"


def run_attempt(lake: Connection, begun: pb.BeginPeriodicRunResponse, worker: str) -> Done | str:
    """Run what was begun, and report it: what it did, or why it failed.

    Raises CommitOutcomeUnknownError or UnavailableError without an answer: then the next attempt finds out.
    """
    task = begun.task
    with _Renewals(lake, begun, worker):
        try:
            done = _run(lake, begun)
        except (CommitOutcomeUnknownError, UnavailableError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the history says it
            why = str(error) if isinstance(error, LakeTXError) else f"{type(error).__name__}: {error}"
            why = why[:ERROR_CHARS_MAX] or type(error).__name__
            lake.client.end_periodic_run(task.task_id, begun.due_time_us, worker, error=why)
            return why
    lake.client.end_periodic_run(task.task_id, begun.due_time_us, worker, rows=done.rows, version=done.version)
    return done


def _run(lake: Connection, begun: pb.BeginPeriodicRunResponse) -> Done:
    task = begun.task
    if task.engine == pb.PERIODIC_ENGINE_SPARK:
        return spark_runs.run_spark_statement(lake, task, begun.app_id, begun.due_time_us)
    ids = frozenset([task.table_id, *task.source_ids])
    return run_statement(lake, task.statement, ids, begun.app_id, begun.due_time_us, task.name)


class _Renewals:
    """Renews the lease of a run as long as it lasts."""

    def __init__(self, lake: Connection, begun: pb.BeginPeriodicRunResponse, worker: str) -> None:
        self._lake = lake
        self._task_id = begun.task.task_id
        self._worker = worker
        self._engine = begun.task.engine
        self._rest_s = begun.lease_ms / 1000 / RENEWALS
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="laketx-periodic-lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._is_over.wait(self._rest_s):
            try:
                self._lake.client.begin_periodic_run(self._task_id, self._worker, [self._engine])
            except LakeTXError:
                continue  # without a lease another worker may run it, too: it commits once all the same
