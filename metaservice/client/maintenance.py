"""The calls of table services: plans, tasks, claims. `MetaClient` has them all.

claimed = client.claim_task()
if claimed is not None:
    task, lease_ms = claimed
    with client.begin([intent_of(task)], task=claim_of(task)) as txn: ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metaservice.client.calling import PAGE_SIZE, Caller
from metaservice.client.errors import InvalidError
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import common_pb2, maintenance_pb2_grpc
from protos.laketx.v1 import maintenance_pb2 as pb
from protos.laketx.v1 import transaction_pb2 as wire


class MaintenanceCalls(Caller):
    """Typed calls of MaintenanceService, without those of the purge."""

    _maintenance: maintenance_pb2_grpc.MaintenanceServiceStub

    def plan_maintenance(
        self,
        table_id: str,
        *,
        operation: common_pb2.Operation.ValueType = common_pb2.OPERATION_UNSPECIFIED,
        partitions: Sequence[common_pb2.Partition] = (),
        options: pb.TaskOptions | None = None,
        at_once: bool = False,
        detach: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> Iterator[pb.PlanMaintenanceResponse]:
        """Pages of the plan, highest score first: what the policy asks for, or what an operation would do now.

        With `at_once` everything for one transaction, regardless of tasks that wait or run. With `detach` what rewrites
        the files that a clone has of the table that it was made of, at once, too.
        """
        request = pb.PlanMaintenanceRequest(
            table_id=table_id,
            operation=operation,
            partitions=partitions,
            options=options,
            at_once=at_once,
            detach=detach,
            page_size=page_size,
        )
        yield from self._pages(self._maintenance.PlanMaintenance, request)

    def request_tasks(
        self,
        table_id: str,
        operation: common_pb2.Operation.ValueType,
        *,
        partitions: Sequence[common_pb2.Partition] = (),
        groups: Sequence[common_pb2.CompactionGroup] = (),
        options: pb.TaskOptions | None = None,
        priority: int | None = None,
        request_id: str | None = None,
    ) -> pb.RequestTaskResponse:
        """Queues tasks regardless of the policy; `groups` are an explicit plan, inputs only."""
        request = pb.RequestTaskRequest(
            request_id=request_id or uuid7(),
            table_id=table_id,
            operation=operation,
            partitions=partitions,
            groups=groups,
            options=options,
            priority=priority,
            principal=self._principal,
        )
        return self._call(self._maintenance.RequestTask, request)

    def claim_task(
        self,
        *,
        operations: Sequence[common_pb2.Operation.ValueType] = (),
        table_ids: Sequence[str] = (),
        request_id: str | None = None,
    ) -> tuple[pb.MaintenanceTask, int] | None:
        """A task with its inputs, and the lease in milliseconds, to renew within it; None: no task waits.

        A claim whose answer was lost is repeated under its id and returns the same task.
        """
        request = pb.ClaimTaskRequest(
            worker=self._principal, operations=operations, table_ids=table_ids, request_id=request_id or uuid7()
        )
        answer = self._call(self._maintenance.ClaimTask, request)
        if not answer.HasField("task"):
            return None
        return self._whole(answer.task, answer.next_page_token), answer.lease_ms

    def renew_task(self, task_id: str, fence: int, *, progress: float = 0.0) -> pb.RenewTaskResponse:
        """Renews a claim. If `cancelled` is set, stop: the task is cancelled, or a user's commit has doomed it."""
        return self._call(
            self._maintenance.RenewTask, pb.RenewTaskRequest(task_id=task_id, fence=fence, progress=progress)
        )

    def finish_task(
        self, task_id: str, fence: int, *, txn_id: str = "", error: str = "", give_back: bool = False
    ) -> pb.MaintenanceTask:
        """Reports how the attempt ended: with a transaction, with an error, or unfinished (`give_back`)."""
        request = pb.FinishTaskRequest(task_id=task_id, fence=fence, txn_id=txn_id, error=error, give_back=give_back)
        return self._call(self._maintenance.FinishTask, request).task

    def cancel_task(self, task_id: str, *, reason: str = "") -> pb.MaintenanceTask:
        """Takes a task out of the queue; a worker that runs it can no longer commit it."""
        return self._call(self._maintenance.CancelTask, pb.CancelTaskRequest(task_id=task_id, reason=reason)).task

    def get_task(self, task_id: str) -> pb.MaintenanceTask:
        """A task; with its inputs while it is claimed."""
        while True:
            first = self._call(self._maintenance.GetTask, pb.GetTaskRequest(task_id=task_id))
            try:
                return self._whole(first.task, first.next_page_token)
            except InvalidError as error:
                if error.reason != "PAGE_TOKEN_INVALID":  # it was claimed, or ended, between two pages
                    raise

    def _whole(self, task: pb.MaintenanceTask, token: str) -> pb.MaintenanceTask:
        """The task with all pages: a group that was split between pages is joined again."""
        if not token:
            return task
        for page in self._pages(self._maintenance.GetTask, pb.GetTaskRequest(task_id=task.task_id, page_token=token)):
            groups = list(page.task.groups)
            if groups and task.groups and _goes_on(groups[0], task.groups[-1]):
                task.groups[-1].inputs.extend(groups[0].inputs)
                task.groups[-1].delete_sets.extend(groups[0].delete_sets)
                del groups[0]
            task.groups.extend(groups)
        return task

    def list_tasks(
        self, *, table_id: str = "", states: Sequence[pb.TaskState.ValueType] = (), page_size: int = PAGE_SIZE
    ) -> Iterator[pb.MaintenanceTask]:
        """Tasks, oldest first; without states those that have not ended."""
        for page in self.list_task_pages(table_id=table_id, states=states, page_size=page_size):
            yield from page.tasks

    def list_task_pages(
        self, *, table_id: str = "", states: Sequence[pb.TaskState.ValueType] = (), page_size: int = PAGE_SIZE
    ) -> Iterator[pb.ListTasksResponse]:
        """Pages of tasks, each with the backlog of all tables."""
        request = pb.ListTasksRequest(page_size=page_size, table_id=table_id, states=states)
        yield from self._pages(self._maintenance.ListTasks, request)

    def get_warehouse(self) -> pb.Warehouse:
        """The recorded mark and location of the service's warehouse."""
        return self._call(self._maintenance.GetWarehouse, pb.GetWarehouseRequest()).warehouse

    def set_warehouse(self, location: str, *, marked: bool = False, replace: bool = False) -> pb.Warehouse:
        """Records a location and returns what is recorded; without `replace` the first location stays."""
        request = pb.SetWarehouseRequest(location=location, marked=marked, replace=replace)
        return self._call(self._maintenance.SetWarehouse, request).warehouse


def _goes_on(group: pb.TaskGroup, other: pb.TaskGroup) -> bool:
    has_more = bool(group.inputs or group.delete_sets)
    return has_more and group.bucket == other.bucket and group.partition == other.partition


def claim_of(task: pb.MaintenanceTask) -> pb.TaskClaim:
    """The claim that a transaction names at its begin when it works for a task."""
    return pb.TaskClaim(task_id=task.task_id, fence=task.fence)


def intent_of(task: pb.MaintenanceTask) -> wire.TableIntent:
    """The intent of such a transaction."""
    return wire.TableIntent(table_id=task.table_id, operation=task.operation, read_version=task.read_version)
