"""MaintenanceService's methods for periodic tasks: check, ask, convert."""

from __future__ import annotations

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.periodic_tasks import ScheduledStatement
from metaservice.rpc.auth.authorization import Authorizer
from metaservice.rpc.auth.caller import READER, WRITER
from metaservice.rpc.convert import wire, wire_periodic, wire_tasks
from metaservice.rpc.convert.paging import bound_start, bound_token, fitting, page_size
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer
from metaservice.service.table.periodic_tasks import TaskChange
from protos.laketx.v1 import catalog_pb2
from protos.laketx.v1 import maintenance_pb2 as pb

LISTING = "periodic tasks"
RUNS = "periodic runs"


class PeriodicTaskMethods(Servicer):
    """Periodic tasks and their runs."""

    _gate: Authorizer

    def PutPeriodicTask(self, request: pb.PutPeriodicTaskRequest, context: Context) -> pb.PutPeriodicTaskResponse:
        new = wire_periodic.new_task(request, self._gate.identify("", context))
        if request.mode not in catalog_pb2.CreateMode.values():
            raise invalid("CREATE_MODE_INVALID", mode=request.mode)
        if_not_exists = request.mode == catalog_pb2.CREATE_MODE_IF_NOT_EXISTS
        or_replace = request.mode == catalog_pb2.CREATE_MODE_OR_REPLACE
        put = self._calls.periodic.put
        task = self._ask(lambda: put(new, if_not_exists=if_not_exists, or_replace=or_replace))
        return pb.PutPeriodicTaskResponse(task=wire_periodic.task_message(task))

    def AlterPeriodicTask(self, request: pb.AlterPeriodicTaskRequest, context: Context) -> pb.AlterPeriodicTaskResponse:
        change = TaskChange(
            request.suspended if request.HasField("suspended") else None,
            wire.text(request.schedule, "schedule", 256),
            wire.text(request.comment, "comment") if request.HasField("comment") else None,
            request.run_now,
            wire.request_id(request.request_id) if request.request_id else "",
        )
        if change.request_id and not change.run_now:
            raise invalid("ALTERATION_INVALID", "a request id belongs to run_now: leave it out")
        task, due_us = self._ask(lambda: self._calls.periodic.alter(request.name, change))
        return pb.AlterPeriodicTaskResponse(task=wire_periodic.task_message(task), due_time_us=due_us)

    def GetPeriodicTask(self, request: pb.GetPeriodicTaskRequest, context: Context) -> pb.GetPeriodicTaskResponse:
        task, waits = self._ask(lambda: self._calls.periodic.look(request.name))
        return pb.GetPeriodicTaskResponse(task=wire_periodic.task_message(task, waits=waits))

    def ListPeriodicTasks(self, request: pb.ListPeriodicTasksRequest, context: Context) -> pb.ListPeriodicTasksResponse:
        size = page_size(request.page_size)
        namespace = wire.text(request.namespace, "namespace", limits.NAME_CHARS_MAX)
        after = bound_start(request.page_token, LISTING, namespace).decode(errors="replace")
        reads = self._gate.reads(context)

        def is_shown(task: ScheduledStatement) -> bool:
            return reads is None or reads(task.name, task.table_id)

        tasks, waiting, time_us = self._ask(lambda: self._calls.periodic.list_all(namespace, after, size, is_shown))
        messages = (wire_periodic.task_message(task, waits=task.task_id in waiting) for task in tasks)
        shown = list(fitting(messages))
        is_last = len(tasks) < size and len(shown) == len(tasks)
        token = "" if is_last else bound_token(shown[-1].name.encode(), LISTING, namespace)
        return pb.ListPeriodicTasksResponse(tasks=shown, next_page_token=token, time_us=time_us)

    def DropPeriodicTask(self, request: pb.DropPeriodicTaskRequest, context: Context) -> pb.DropPeriodicTaskResponse:
        return pb.DropPeriodicTaskResponse(dropped=self._ask(lambda: self._calls.periodic.drop(request.name)))

    def ListPeriodicRuns(self, request: pb.ListPeriodicRunsRequest, context: Context) -> pb.ListPeriodicRunsResponse:
        size = page_size(request.page_size)
        start = bound_start(request.page_token, RUNS, request.name).decode(errors="replace")
        if start and not (start.isascii() and start.isdecimal() and len(start) < 20):
            raise invalid("PAGE_TOKEN_INVALID")
        runs = self._ask(lambda: self._calls.periodic.list_runs(request.name, int(start or 0), size))
        shown = list(fitting(map(wire_periodic.run_message, runs)))
        is_last = len(runs) < size and len(shown) == len(runs)
        token = "" if is_last else bound_token(str(shown[-1].due_time_us).encode(), RUNS, request.name)
        return pb.ListPeriodicRunsResponse(runs=shown, next_page_token=token)

    def BeginPeriodicRun(self, request: pb.BeginPeriodicRunRequest, context: Context) -> pb.BeginPeriodicRunResponse:
        task_id, worker = wire_tasks.task_id(request.task_id), _worker(request.worker)
        begin, engines = self._calls.periodic.begin, wire_periodic.engines(request.engines)
        task, is_begun = self._ask(lambda: begin(task_id, worker, engines, self._check_owner))
        answer = pb.BeginPeriodicRunResponse(task=wire_periodic.task_message(task))
        if is_begun:
            answer.due_time_us, answer.app_id = task.run_us, task.app_id
            answer.lease_ms = self._calls.periodic.lease_ms
        return answer

    def EndPeriodicRun(self, request: pb.EndPeriodicRunRequest, context: Context) -> pb.EndPeriodicRunResponse:
        task_id, worker = wire_tasks.task_id(request.task_id), _worker(request.worker)
        rows, version = wire.count(request.rows, "rows"), wire.version(request.version)
        error = request.error[: limits.PERIODIC_ERROR_CHARS_MAX]
        end, due_us = self._calls.periodic.end, request.due_time_us
        task = self._ask(lambda: end(task_id, due_us, worker, rows=rows, version=version, error=error))
        return pb.EndPeriodicRunResponse(task=wire_periodic.task_message(task))

    def _check_owner(self, task: ScheduledStatement) -> None:
        """Refuses a run whose owner may no longer read or write its tables."""
        if self._gate.is_open:
            return
        owner = self._gate.caller(wire_periodic.owner_identity(task))
        owner.need_tables([*task.source_ids, *(each.table_id for each in task.conditions)], READER)
        owner.need_table(task.table_id, WRITER)


def _worker(name: str) -> str:
    if not name:
        raise invalid("PRINCIPAL_INVALID", "the worker needs a name: send one")
    return wire.text(name, "worker", 256)
