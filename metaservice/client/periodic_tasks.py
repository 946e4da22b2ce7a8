"""Calls of periodic tasks. `MetaClient` has them all.

client.put_periodic_task(pb.PeriodicTask(name="shop.nightly", …))
client.alter_periodic_task("shop.nightly", suspended=True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from metaservice.client.calling import PAGE_SIZE, Caller
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2_grpc
from protos.laketx.v1 import maintenance_pb2 as pb

ENGINES: Final = {"duckdb": pb.PERIODIC_ENGINE_DUCKDB, "spark": pb.PERIODIC_ENGINE_SPARK}


def engine_name(engine: pb.PeriodicEngine.ValueType) -> str:
    """The word for an engine; empty: none."""
    return next((name for name, number in ENGINES.items() if number == engine), "")


def waiting_text(task: pb.PeriodicTask) -> str:
    """Return what a due run lacks; empty for nothing."""
    return "a worker with Spark: laketx worker --spark" if task.waits_for_engine else ""


class PeriodicTaskCalls(Caller):
    """Periodic tasks: statements that workers run by a schedule."""

    _maintenance: maintenance_pb2_grpc.MaintenanceServiceStub
    _principal: common_pb2.Principal

    def put_periodic_task(
        self,
        task: pb.PeriodicTask,
        *,
        mode: catalog_pb2.CreateMode.ValueType = catalog_pb2.CREATE_MODE_UNSPECIFIED,
        request_id: str | None = None,
    ) -> pb.PeriodicTask:
        """Creates a task, or replaces the one of that name, by its mode. It belongs to the caller."""
        request = pb.PutPeriodicTaskRequest(
            task=task, mode=mode, principal=self._principal, request_id=request_id or uuid7()
        )
        return self._call(self._maintenance.PutPeriodicTask, request).task

    def alter_periodic_task(
        self,
        name: str,
        *,
        suspended: bool | None = None,
        schedule: str = "",
        comment: str | None = None,
    ) -> pb.PeriodicTask:
        """Suspends or resumes a task, or gives it another schedule or comment."""
        request = pb.AlterPeriodicTaskRequest(name=name, suspended=suspended, schedule=schedule, comment=comment)
        return self._call(self._maintenance.AlterPeriodicTask, request).task

    def ask_periodic_run(self, name: str, *, request_id: str | None = None) -> pb.AlterPeriodicTaskResponse:
        """Has a task run now; the same request again asks for no other run. The answer has the run's due time."""
        request = pb.AlterPeriodicTaskRequest(name=name, run_now=True, request_id=request_id or uuid7())
        return self._call(self._maintenance.AlterPeriodicTask, request)

    def get_periodic_task(self, name: str) -> pb.PeriodicTask:
        """A task by its name."""
        return self._call(self._maintenance.GetPeriodicTask, pb.GetPeriodicTaskRequest(name=name)).task

    def list_periodic_tasks(self, namespace: str = "", *, page_size: int = PAGE_SIZE) -> Iterator[pb.PeriodicTask]:
        """Tasks by name, of a namespace or of all."""
        for page in self.list_periodic_pages(namespace, page_size=page_size):
            yield from page.tasks

    def list_periodic_pages(
        self, namespace: str = "", *, page_size: int = PAGE_SIZE
    ) -> Iterator[pb.ListPeriodicTasksResponse]:
        """Pages of tasks, each with the service's time."""
        request = pb.ListPeriodicTasksRequest(namespace=namespace, page_size=page_size)
        yield from self._pages(self._maintenance.ListPeriodicTasks, request)

    def drop_periodic_task(self, name: str) -> bool:
        """Drops a task and its runs; returns whether there was one."""
        return self._call(self._maintenance.DropPeriodicTask, pb.DropPeriodicTaskRequest(name=name)).dropped

    def list_periodic_runs(self, name: str, *, page_size: int = PAGE_SIZE) -> Iterator[pb.PeriodicRun]:
        """The runs of a task that ended, newest first."""
        request = pb.ListPeriodicRunsRequest(name=name, page_size=page_size)
        for page in self._pages(self._maintenance.ListPeriodicRuns, request):
            yield from page.runs

    def begin_periodic_run(
        self, task_id: str, worker: str, engines: Iterable[pb.PeriodicEngine.ValueType] = ()
    ) -> pb.BeginPeriodicRunResponse:
        """Begins a run that is due; by the worker that has it, renews its lease. The engines: DuckDB, unless given."""
        request = pb.BeginPeriodicRunRequest(task_id=task_id, worker=worker, engines=engines)
        return self._call(self._maintenance.BeginPeriodicRun, request)

    def end_periodic_run(
        self, task_id: str, due_time_us: int, worker: str, *, rows: int = 0, version: int = 0, error: str = ""
    ) -> pb.PeriodicTask:
        """Reports the end of an attempt."""
        request = pb.EndPeriodicRunRequest(
            task_id=task_id, due_time_us=due_time_us, worker=worker, rows=rows, version=version, error=error
        )
        return self._call(self._maintenance.EndPeriodicRun, request).task
