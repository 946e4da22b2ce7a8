"""Task <-> bytes."""

from __future__ import annotations

from metaservice.core.model import Operation, Principal
from metaservice.core.plans import Gain
from metaservice.core.policy import Options, RowOrder
from metaservice.core.tasks import Task, TaskGroup, TaskState
from protos.laketx.storage.v1 import tasks_pb2 as pb


def encode_task(task: Task) -> bytes:
    asked = task.requested_by
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
        requested=asked is not None,
        requested_by=asked.name if asked is not None else "",
        requested_client=asked.client if asked is not None else "",
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
        record.task_id,
        record.table_id,
        Operation(record.operation),
        tuple(TaskGroup(g.partition, g.bucket, tuple(g.inputs), g.rows, g.bytes) for g in record.groups),
        record.reason,
        Gain(record.files_less, record.rows_less, record.cost_bytes, record.row_bytes),
        Options(record.file_bytes_target, RowOrder(record.order), tuple(record.order_columns)),
        record.priority,
        record.create_us,
        record.read_version,
        Principal(record.requested_by, record.requested_client) if record.requested else None,
        record.request_id,
        record.request_digest,
        record.own_plan,
        TaskState(record.state),
        record.fence,
        1.0 if record.state == TaskState.DONE else 0.0,
        record.attempts,
        record.error,
        record.start_us,
        record.end_us,
        record.not_before_us,
        Principal(record.worker, record.worker_client),
        record.claim_id,
        record.txn_id,
    )
