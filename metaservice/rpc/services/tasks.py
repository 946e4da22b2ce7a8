"""MaintenanceService's methods for tasks: check, ask, convert."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from metaservice.core import limits
from metaservice.core.compaction.tasks import Task, TaskState
from metaservice.core.errors import invalid
from metaservice.core.table.partitions import Partitioning
from metaservice.rpc.convert import answers, wire, wire_tasks
from metaservice.rpc.convert.client_features import Reader
from metaservice.rpc.convert.paging import bound_start, bound_token, fitting, page_size
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer
from metaservice.service.compaction.maintenance import Claim, Inputs
from metaservice.service.compaction.taskqueue import Wish
from metaservice.service.decider.views import TableView
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import maintenance_pb2 as pb


class TaskMethods(Servicer):
    """Plans of table services, and tasks."""

    # -- planning, on the caller's thread ------------------------------------------------------------------------------

    def PlanMaintenance(self, request: pb.PlanMaintenanceRequest, context: Context) -> pb.PlanMaintenanceResponse:
        table = self._table(request.table_id)
        meta = table.meta
        partitions = wire_tasks.partitions(request.partitions, meta)
        size = page_size(request.page_size)
        same_request = pb.PlanMaintenanceRequest()
        same_request.CopyFrom(request)
        same_request.page_token, same_request.page_size = "", 0
        same = wire.digest(same_request).hex()
        start = _place(bound_start(request.page_token, "PlanMaintenance", same))
        asks = common_pb2.OPERATION_MAJOR_COMPACT if request.detach else request.operation
        operation = wire_tasks.compaction(asks) if asks else None
        options = None
        if operation is not None and request.HasField("options"):
            options = wire_tasks.options(request.options, meta, operation)
        if request.detach:
            proposal = self._calls.compactions.propose_detaching(table, partitions, options)
        else:
            proposal = self._calls.compactions.propose(table, operation, partitions, options, at_once=request.at_once)
        page = (wire_tasks.plan_message(task, meta, proposal) for task in proposal.tasks[start:][:size])
        shown = list(fitting(page))
        following = start + len(shown)
        more = following < len(proposal.tasks)
        return pb.PlanMaintenanceResponse(
            tasks=shown,
            next_page_token=bound_token(str(following).encode(), "PlanMaintenance", same) if more else "",
            tasks_in_all=len(proposal.tasks),
            read_version=proposal.version,
            held_back=proposal.held_back,
        )

    def _table(self, table_id: str) -> TableView:
        return self._calls.reads.get_table(table_id=wire.table_id(table_id))

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def RequestTask(self, request: pb.RequestTaskRequest, context: Context) -> pb.RequestTaskResponse:
        identity, same = wire_tasks.request_id(request.request_id), wire.digest(request)

        def wish() -> tuple[TableView, Wish]:
            table = self._table(request.table_id)
            meta, operation = table.meta, wire_tasks.compaction(request.operation)
            return table, Wish(
                request_id=identity,
                digest=same,
                table_id=meta.table_id,
                operation=operation,
                principal=wire.principal(request.principal),
                priority=_priority(request.priority) if request.HasField("priority") else None,
                options=wire_tasks.options(request.options, meta, operation),
                groups=wire_tasks.own_groups(request.groups, meta),
                partitions=wire_tasks.partitions(request.partitions, meta),
            )

        tasks, left_out = self._calls.compactions.request(identity, same, wish)
        return pb.RequestTaskResponse(tasks=self._messages(tasks), left_out=left_out)

    def ClaimTask(self, request: pb.ClaimTaskRequest, context: Context) -> pb.ClaimTaskResponse:
        if len(request.table_ids) > limits.PAGE_SIZE_MAX:
            raise invalid("TABLES_INVALID", count=len(request.table_ids), most=limits.PAGE_SIZE_MAX)
        claim = Claim(
            wire_tasks.request_id(request.request_id),
            wire.principal(request.worker),
            frozenset(wire_tasks.compaction(number) for number in request.operations),
            frozenset(wire.table_id(table_id) for table_id in request.table_ids),
            knows_inlined=Reader.of(context).knows_inlined,
        )

        def job() -> tuple[Task, Inputs] | None:
            task = self._calls.maintenance.claim(claim)
            return (task, self._calls.maintenance.inputs(task)) if task is not None else None

        claimed = self._ask(job)
        if claimed is None:
            return pb.ClaimTaskResponse()
        task, token = self._page(*claimed, 0)
        return pb.ClaimTaskResponse(task=task, lease_ms=self._calls.maintenance.lease_ms, next_page_token=token)

    def RenewTask(self, request: pb.RenewTaskRequest, context: Context) -> pb.RenewTaskResponse:
        identity, fence = wire_tasks.task_id(request.task_id), wire.version(request.fence, "fence")
        if not (math.isfinite(request.progress) and 0 <= request.progress <= 1):
            raise invalid("PROGRESS_INVALID", "the progress must be between 0 and 1", progress=request.progress)
        renewed = self._ask(lambda: self._calls.maintenance.renew(identity, fence, request.progress))
        return pb.RenewTaskResponse(
            lease_ms=renewed.lease_ms,
            cancelled=renewed.cancelled,
            doomed=answers.conflict(renewed.doomed) if renewed.doomed is not None else None,
            reason=renewed.reason,
        )

    def FinishTask(self, request: pb.FinishTaskRequest, context: Context) -> pb.FinishTaskResponse:
        identity, fence = wire_tasks.task_id(request.task_id), wire.version(request.fence, "fence")
        txn_id = wire.txn_id(request.txn_id) if request.txn_id else ""
        error = wire.text(request.error, "error")
        finish = self._calls.maintenance.finish
        task = self._ask(lambda: finish(identity, fence, txn_id, error, give_back=request.give_back))
        return pb.FinishTaskResponse(task=self._message(task))

    def CancelTask(self, request: pb.CancelTaskRequest, context: Context) -> pb.CancelTaskResponse:
        identity, reason = wire_tasks.task_id(request.task_id), wire.text(request.reason, "reason", 256)
        task = self._ask(lambda: self._calls.maintenance.cancel(identity, reason))
        return pb.CancelTaskResponse(task=self._message(task))

    def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.GetTaskResponse:
        identity = wire_tasks.task_id(request.task_id)

        def job() -> tuple[Task, Inputs]:
            task = self._calls.maintenance.get(identity)
            return task, self._calls.maintenance.inputs(task)

        task, inputs = self._ask(job)
        start = _place(bound_start(request.page_token, *_page_of(task)))
        message, token = self._page(task, inputs, start)
        return pb.GetTaskResponse(task=message, next_page_token=token)

    def ListTasks(self, request: pb.ListTasksRequest, context: Context) -> pb.ListTasksResponse:
        size = page_size(request.page_size)
        states = wire_tasks.states(request.states)
        table_id = wire.table_id(request.table_id) if request.table_id else ""
        bound = (table_id, ",".join(str(int(state)) for state in sorted(states)))
        after = bound_start(request.page_token, "ListTasks", *bound).decode(errors="replace")
        after = wire_tasks.task_id(after) if after else ""
        listed = self._ask(lambda: self._calls.maintenance.list(table_id, states, after, size))
        book = self._calls.decider.state.tasks
        shown = list(fitting(map(self._message, listed)))
        is_last = len(listed) < size and len(shown) == len(listed)
        return pb.ListTasksResponse(
            tasks=shown,
            next_page_token="" if is_last else bound_token(shown[-1].task_id.encode(), "ListTasks", *bound),
            queued=book.count(TaskState.QUEUED),
            claimed=book.count(TaskState.CLAIMED),
            failed=book.count(TaskState.FAILED),
            oldest_create_time_us=book.oldest_us(),
        )

    def _message(self, task: Task, size_bytes: int = limits.ANSWER_ITEMS_BYTES_MAX) -> pb.MaintenanceTask:
        return wire_tasks.task_message(task, *self._table_of(task), size_bytes)

    def _messages(self, tasks: Sequence[Task]) -> Iterator[pb.MaintenanceTask]:
        """All tasks in one answer."""
        for task in tasks:
            yield self._message(task, limits.ANSWER_ITEMS_BYTES_MAX // len(tasks))

    def _page(self, task: Task, inputs: Inputs, start: int) -> tuple[pb.MaintenanceTask, str]:
        message, place = wire_tasks.task_page(task, *self._table_of(task), inputs, start)
        return message, bound_token(str(place).encode(), *_page_of(task)) if place else ""

    def _table_of(self, task: Task) -> tuple[str, Partitioning | None]:
        table = self._calls.decider.state.views.find(task.table_id)
        return (table.meta.name, table.meta.partitioning) if table is not None else ("", None)


def _priority(number: int) -> int:
    if not 0 <= number <= limits.TASK_PRIORITY_MAX:
        raise invalid("PRIORITY_INVALID", priority=number, most=limits.TASK_PRIORITY_MAX)
    return number


def _page_of(task: Task) -> tuple[str, str, str, str]:
    """The state that a token is bound to: another claim has other inputs, and an ended task has none."""
    return "GetTask", task.task_id, str(task.fence), str(int(task.state))


def _place(raw: bytes) -> int:
    text = raw.decode(errors="replace")
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise invalid("PAGE_TOKEN_INVALID")
    return int(text or 0)
