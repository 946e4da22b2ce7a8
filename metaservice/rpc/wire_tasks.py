"""Tasks: core -> wire, and the parts of their requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.model import COMPACTIONS, Group, Live, Operation, Principal, TableMeta
from metaservice.core.partitions import Partitioning, wire_kind
from metaservice.core.plans import Gain, TaskPlan
from metaservice.core.policy import Options, RowOrder
from metaservice.core.predicates import SqlValue
from metaservice.core.tasks import Task, TaskGroup, TaskState, groups_of
from metaservice.core.types import folded
from metaservice.rpc import answers, wire
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import maintenance_pb2 as pb

STATES: Final = frozenset(int(state) for state in TaskState)
ORDERS: Final = frozenset(int(order) for order in RowOrder)
Inputs = Mapping[tuple[str, int], Sequence[Live]]


def task_id(text: str) -> str:
    if not wire.UUID7.match(text):
        raise invalid("TASK_ID_INVALID", "a UUIDv7 in lower case", task_id=text[:64])
    return text


def request_id(text: str) -> str:
    if not wire.UUID7.match(text):
        raise invalid("REQUEST_ID_INVALID", "a UUIDv7 in lower case", request_id=text[:64])
    return text


def compaction(number: int) -> Operation:
    found = wire.OPERATIONS.get(number)
    if found not in COMPACTIONS or found is None:
        raise invalid("OPERATION_INVALID", "minor, major or clustering", operation=number)
    return found


def states(numbers: Iterable[int]) -> frozenset[TaskState]:
    found = list(numbers)
    unknown = [number for number in found if number not in STATES]
    if unknown:
        raise invalid("STATE_INVALID", state=unknown[0])
    return frozenset(TaskState(number) for number in found)


def partitions(messages: Sequence[common_pb2.Partition], meta: TableMeta) -> list[str]:
    if len(messages) > limits.PLAN_PARTITIONS_MAX:
        raise invalid("TOO_MANY_PARTITIONS", count=len(messages), most=limits.PLAN_PARTITIONS_MAX)
    return sorted({wire.partition(one, meta.partitioning) for one in messages})


def own_groups(messages: Sequence[common_pb2.CompactionGroup], meta: TableMeta) -> tuple[Group, ...]:
    """An operator's plan: inputs alone."""
    if len(messages) > limits.TASK_GROUPS_MAX:
        raise invalid("TOO_MANY_GROUPS", count=len(messages), most=limits.TASK_GROUPS_MAX)
    found = []
    for one in messages:
        if one.outputs:
            raise invalid("GROUP_OUTPUT_INVALID", "a plan names inputs alone", path=one.outputs[0][:128])
        partition = wire.partition(one.partition, meta.partitioning)
        if not 0 <= one.bucket < max(meta.buckets, 1):
            raise invalid("BUCKET_OUT_OF_RANGE", bucket=one.bucket, buckets=meta.buckets)
        found.append(Group(partition, one.bucket, tuple(one.inputs), ()))
    return tuple(found)


def options(message: pb.TaskOptions, meta: TableMeta, otherwise: Options) -> Options:
    """As asked, or the table's."""
    target = wire.count(message.file_bytes_target, "file_bytes_target", limits.FILE_COUNT_MAX)
    target = target or otherwise.file_bytes_target
    columns = tuple(message.order_columns)
    if not message.order:
        if columns:
            raise invalid("ROW_ORDER_INVALID", "columns without an order")
        return Options(target, otherwise.order, otherwise.order_columns)
    if message.order not in ORDERS:
        raise invalid("ROW_ORDER_INVALID", order=message.order)
    if meta.keyed:
        raise invalid("ROW_ORDER_INVALID", "files of a table with a key are sorted by it")
    names = {folded(column.name): column.name for column in meta.columns}
    columns = tuple(names.get(folded(name), name) for name in columns)
    if not 1 <= len(columns) <= limits.ORDER_COLUMNS_MAX or len(set(columns)) != len(columns):
        raise invalid("ROW_ORDER_INVALID", "each column once, one at least", columns=len(columns))
    for name in columns:
        if folded(name) not in names:
            raise invalid("COLUMN_UNKNOWN", column=name[:128])
    return Options(target, RowOrder(message.order), columns)


# -- answers -------------------------------------------------------------------------------------------------------


def task_message(
    task: Task, name: str, partitioning: Partitioning | None, inputs: Inputs | None = None
) -> pb.MaintenanceTask:
    found = pb.MaintenanceTask(
        task_id=task.task_id,
        table_id=task.table_id,
        operation=task.operation,  # type: ignore[arg-type]
        groups=[_group(group, partitioning) for group in task.groups],
        read_version=task.read_version,
        state=task.state,  # type: ignore[arg-type]
        fence=task.fence,
        reason=task.reason,
        table_name=name,
        priority=task.priority,
        progress=task.progress,
        attempts=task.attempts,
        error=task.error,
        create_time_us=task.create_us,
        start_time_us=task.start_us,
        end_time_us=task.end_us,
        not_before_us=task.not_before_us,
        gain=_gain(task.gain),
        options=_options(task.options),
        worker=_principal(task.worker),
        txn_id=task.txn_id,
        requested_by=_principal(task.requested_by),
    )
    if inputs:
        for group, message in zip(task.groups, found.groups, strict=True):
            _add_inputs(message, group, inputs.get(group.place, ()))
    return found


def plan_message(plan: TaskPlan, meta: TableMeta, version: int, options: Options, priority: int) -> pb.MaintenanceTask:
    """A task that isn't one yet; its inputs by path."""
    groups = groups_of(plan)
    found = pb.MaintenanceTask(
        table_id=meta.table_id,
        table_name=meta.name,
        operation=plan.operation,  # type: ignore[arg-type]
        groups=[_group(group, meta.partitioning) for group in groups],
        read_version=version,
        reason=plan.reason,
        priority=priority,
        gain=_gain(plan.gain),
        options=_options(options),
    )
    for group, message in zip(groups, found.groups, strict=True):
        message.inputs.extend(common_pb2.LiveEntry(file=common_pb2.DataFile(path=path)) for path in group.inputs)
    return found


def _group(group: TaskGroup, partitioning: Partitioning | None) -> pb.TaskGroup:
    found = pb.TaskGroup(bucket=group.bucket, files=len(group.inputs), rows=group.rows, bytes=group.size_bytes)
    if partitioning is not None:
        found.partition.CopyFrom(partition_message(group.partition, partitioning))
    return found


def _add_inputs(message: pb.TaskGroup, group: TaskGroup, live: Sequence[Live]) -> None:
    files = {one.entry.path: one for one in live if not one.entry.is_delete_set}
    for path in group.inputs:
        if path in files:
            entry = answers.live_entry(files[path])
            entry.file.ClearField("stats")
            message.inputs.append(entry)
    sets = [one for one in live if one.entry.is_delete_set]
    if sum(len(one.entry.payload) for one in sets) > limits.TASK_DELETE_SET_BYTES_MAX:
        message.delete_sets_left_out = True
        return
    message.delete_sets.extend(map(answers.live_entry, sets))


def _gain(gain: Gain) -> pb.TaskGain:
    return pb.TaskGain(
        files_less=gain.files_less, rows_less=gain.rows_less, cost_bytes=gain.cost_bytes, score=gain.score
    )


def _options(given: Options) -> pb.TaskOptions:
    return pb.TaskOptions(
        file_bytes_target=given.file_bytes_target,
        order=given.order,  # type: ignore[arg-type]
        order_columns=given.order_columns,
    )


def _principal(given: Principal | None) -> common_pb2.Principal | None:
    return answers.principal(given) if given is not None and given != Principal() else None


def partition_message(text: str, partitioning: Partitioning) -> common_pb2.Partition:
    values = partitioning.decode(text)
    return common_pb2.Partition(
        values=[
            common_pb2.PartitionValue(column=name, value=_value(values[name], kind))
            for name, kind in partitioning.columns
        ]
    )


def _value(value: SqlValue, type_name: str) -> common_pb2.Value:
    found = common_pb2.Value()
    if value is None:
        found.null = common_pb2.NULL_VALUE_UNSPECIFIED
        return found
    setattr(found, wire_kind(type_name) or "text", format(value, "f") if isinstance(value, Decimal) else value)
    return found
