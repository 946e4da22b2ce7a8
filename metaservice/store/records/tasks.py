"""Task <-> bytes."""

from __future__ import annotations

from metaservice.core.compaction.plans import Gain
from metaservice.core.compaction.policy import Options, RowOrder
from metaservice.core.compaction.tasks import Task, TaskState
from metaservice.core.table.model import Group, Operation, Principal
from protos.laketx.storage.v1 import tasks_pb2 as pb


def encode_task(task: Task) -> bytes:
    requester = task.requested_by
    return pb.TaskRecord(
        task_id=task.task_id,
        table_id=task.table_id,
        operation=task.operation,
        groups=[
            pb.TaskGroupRecord(
                partition=group.partition,
                bucket=group.bucket,
                inputs=group.inputs,
                rows=group.rows,
                bytes=group.size_bytes,
            )
            for group in task.groups
        ],
        reason=task.reason,
        files_less=task.gain.files_less,
        rows_less=task.gain.rows_less,
        cost_bytes=task.gain.cost_bytes,
        row_bytes=task.gain.row_bytes,
        file_bytes_target=task.options.file_bytes_target,
        order=task.options.order,
        order_columns=task.options.order_columns,
        priority=task.priority,
        create_us=task.create_us,
        read_version=task.read_version,
        requested=requester is not None,
        requested_by=requester.name if requester is not None else "",
        requested_client=requester.client if requester is not None else "",
        request_id=task.request_id,
        request_digest=task.request_digest,
        own_plan=task.own_plan,
        state=task.state,
        fence=task.fence,
        attempts=task.attempts,
        error=task.error,
        start_us=task.start_us,
        end_us=task.end_us,
        not_before_us=task.not_before_us,
        worker=task.worker.name,
        worker_client=task.worker.client,
        claim_id=task.claim_id,
        txn_id=task.txn_id,
    ).SerializeToString()


def decode_task(raw: bytes) -> Task:
    record = pb.TaskRecord.FromString(raw)
    return Task(
        task_id=record.task_id,
        table_id=record.table_id,
        operation=Operation(record.operation),
        groups=tuple(
            Group(g.partition, g.bucket, tuple(g.inputs), rows=g.rows, size_bytes=g.bytes) for g in record.groups
        ),
        reason=record.reason,
        gain=Gain(record.files_less, record.rows_less, record.cost_bytes, record.row_bytes),
        options=Options(record.file_bytes_target, RowOrder(record.order), tuple(record.order_columns)),
        priority=record.priority,
        create_us=record.create_us,
        read_version=record.read_version,
        requested_by=Principal(record.requested_by, record.requested_client) if record.requested else None,
        request_id=record.request_id,
        request_digest=record.request_digest,
        own_plan=record.own_plan,
        state=TaskState(record.state),
        fence=record.fence,
        progress=1.0 if record.state == TaskState.DONE else 0.0,
        attempts=record.attempts,
        error=record.error,
        start_us=record.start_us,
        end_us=record.end_us,
        not_before_us=record.not_before_us,
        worker=Principal(record.worker, record.worker_client),
        claim_id=record.claim_id,
        txn_id=record.txn_id,
    )
