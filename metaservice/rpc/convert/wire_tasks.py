"""Tasks: core -> wire, and the parts of their requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Final

from metaservice.core import limits
from metaservice.core.compaction.plans import Gain, TaskPlan
from metaservice.core.compaction.policy import Options, RowOrder, policy_of
from metaservice.core.compaction.tasks import Task, TaskState
from metaservice.core.errors import invalid
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import COMPACTIONS, Group, Live, Operation, Principal
from metaservice.core.table.partitions import Partitioning, wire_kind
from metaservice.core.table.predicates import SqlValue
from metaservice.core.table.types import folded
from metaservice.rpc.convert import answers, wire, wire_rows
from metaservice.rpc.convert.paging import Room
from metaservice.service.compaction.compactions import Proposal
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import maintenance_pb2 as pb

STATES: Final = frozenset(int(state) for state in TaskState)
ORDERS: Final = frozenset(int(order) for order in RowOrder)
Inputs = Mapping[tuple[str, int], Sequence[Live]]


def task_id(text: str) -> str:
    if not wire.UUID7.match(text):
        raise invalid("TASK_ID_INVALID", "the id is not a UUIDv7 in lower case", task_id=text[:64])
    return text


def request_id(text: str) -> str:
    if not wire.UUID7.match(text):
        raise invalid("REQUEST_ID_INVALID", "the id is not a UUIDv7 in lower case", request_id=text[:64])
    return text


def compaction(number: int) -> Operation:
    operation = wire.OPERATIONS.get(number)
    if operation not in COMPACTIONS or operation is None:
        raise invalid("OPERATION_INVALID", "use minor compaction, major compaction or clustering", operation=number)
    return operation


def states(numbers: Iterable[int]) -> frozenset[TaskState]:
    listed = list(numbers)
    unknown = [number for number in listed if number not in STATES]
    if unknown:
        raise invalid("STATE_INVALID", state=unknown[0])
    return frozenset(TaskState(number) for number in listed)


def partitions(messages: Sequence[common_pb2.Partition], meta: TableMeta) -> list[str]:
    if len(messages) > limits.PLAN_PARTITIONS_MAX:
        raise invalid("TOO_MANY_PARTITIONS", count=len(messages), most=limits.PLAN_PARTITIONS_MAX)
    return sorted({wire.partition(message, meta.partitioning) for message in messages})


def own_groups(messages: Sequence[common_pb2.CompactionGroup], meta: TableMeta) -> tuple[Group, ...]:
    """Parse an operator's explicit plan, which has only inputs."""
    if len(messages) > limits.TASK_GROUPS_MAX:
        raise invalid("TOO_MANY_GROUPS", count=len(messages), most=limits.TASK_GROUPS_MAX)
    groups = []
    for message in messages:
        if message.outputs:
            raise invalid(
                "GROUP_OUTPUT_INVALID",
                "an explicit plan has inputs only: leave the rest out",
                path=message.outputs[0][:128],
            )
        partition = wire.partition(message.partition, meta.partitioning)
        if not 0 <= message.bucket < max(meta.buckets, 1):
            raise invalid("BUCKET_OUT_OF_RANGE", bucket=message.bucket, buckets=meta.buckets)
        groups.append(Group(partition, message.bucket, tuple(map(wire_rows.named_path, message.inputs))))
    return tuple(groups)


def options(message: pb.TaskOptions, meta: TableMeta, operation: Operation) -> Options:
    """The requested options, or the table's."""
    otherwise = policy_of(meta).options
    target = wire.count(message.file_bytes_target, "file_bytes_target", limits.FILE_COUNT_MAX)
    target = target or otherwise.file_bytes_target
    columns = tuple(message.order_columns)
    if not message.order:
        if columns:
            raise invalid("ROW_ORDER_INVALID", "columns are given without an order: choose one")
        return Options(target, otherwise.order, otherwise.order_columns)
    if message.order not in ORDERS:
        raise invalid("ROW_ORDER_INVALID", order=message.order)
    if meta.keyed and operation is not Operation.CLUSTER:
        raise invalid(
            "ROW_ORDER_INVALID", "files of a primary-key table are sorted by the key: only clustering takes an order"
        )
    names = {folded(column.name): column.name for column in meta.columns}
    columns = tuple(names.get(folded(name), name) for name in columns)
    if not 1 <= len(columns) <= limits.ORDER_COLUMNS_MAX or len(set(columns)) != len(columns):
        raise invalid("ROW_ORDER_INVALID", "name at least one column, and each only once", columns=len(columns))
    for name in columns:
        if folded(name) not in names:
            raise invalid("COLUMN_UNKNOWN", column=name[:128])
    return Options(target, RowOrder(message.order), columns)


# -- answers -------------------------------------------------------------------------------------------------------


def task_message(
    task: Task, name: str, partitioning: Partitioning | None, size_bytes: int = limits.ANSWER_ITEMS_BYTES_MAX
) -> pb.MaintenanceTask:
    """Convert a task without its inputs, with as many groups as fit."""
    message = _bare(task, name)
    _fill(message, ((_group(group, partitioning), ()) for group in task.groups), size_bytes)
    message.groups_left_out = len(task.groups) - len(message.groups)
    return message


def task_page(
    task: Task, name: str, partitioning: Partitioning | None, inputs: Inputs, start: int
) -> tuple[pb.MaintenanceTask, int]:
    """Convert a task with its inputs; return also where the next page begins, 0 for none."""
    message = _bare(task, name)
    pieces = (_with_inputs(_group(group, partitioning), group, inputs.get(group.place, ())) for group in task.groups)
    return message, _fill(message, pieces, limits.ANSWER_ITEMS_BYTES_MAX, start)


Pieces = tuple[pb.TaskGroup, Sequence[Callable[[], common_pb2.LiveEntry]]]


def _fill(task: pb.MaintenanceTask, groups: Iterable[Pieces], size_bytes: int, start: int = 0) -> int:
    """Adds groups and their entries, piece by piece, from a position on; returns the next position, 0 at the end."""
    room, place = Room(size_bytes - task.ByteSize()), 0
    for group, entries in groups:
        first = place + 1
        if first + len(entries) <= start:
            place = first + len(entries)
            continue
        if start > place:  # it goes on
            room.left -= group.ByteSize()
            place = start
        elif room.takes(group.ByteSize()):
            place = first
        else:
            return place
        shown = task.groups.add()
        shown.CopyFrom(group)
        for make in entries[place - first :]:
            entry = make()
            if not room.takes(entry.ByteSize()):
                return place
            (shown.delete_sets if entry.HasField("delete_set") else shown.inputs).append(entry)
            place += 1
    return 0


def _bare(task: Task, name: str) -> pb.MaintenanceTask:
    return pb.MaintenanceTask(
        task_id=task.task_id,
        table_id=task.table_id,
        operation=task.operation,  # type: ignore[arg-type]
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


def plan_message(plan: TaskPlan, meta: TableMeta, of: Proposal) -> pb.MaintenanceTask:
    """Convert a proposed task; its inputs by path, as many as fit."""
    message = pb.MaintenanceTask(
        table_id=meta.table_id,
        table_name=meta.name,
        operation=plan.operation,  # type: ignore[arg-type]
        read_version=of.version,
        reason=plan.reason,
        priority=of.priority,
        gain=_gain(plan.gain),
        options=_options(of.options),
    )
    pieces = (
        (_group(group, meta.partitioning), [partial(_named, path) for path in group.inputs]) for group in plan.groups
    )
    _fill(message, pieces, limits.ANSWER_ITEMS_BYTES_MAX)
    message.groups_left_out = len(plan.groups) - len(message.groups)
    return message


def _named(path: str) -> common_pb2.LiveEntry:
    return common_pb2.LiveEntry(file=common_pb2.DataFile(path=path))


def _group(group: Group, partitioning: Partitioning | None) -> pb.TaskGroup:
    message = pb.TaskGroup(bucket=group.bucket, files=len(group.inputs), rows=group.rows, bytes=group.size_bytes)
    if partitioning is not None:
        message.partition.CopyFrom(partition_message(group.partition, partitioning))
    return message


def _with_inputs(message: pb.TaskGroup, group: Group, live: Sequence[Live]) -> Pieces:
    files = {entry.entry.path: entry for entry in live if not entry.entry.is_delete_set}
    inputs = [partial(_without_stats, files[path]) for path in group.inputs if path in files]
    sets = [entry for entry in live if entry.entry.is_delete_set]
    if sum(len(entry.entry.payload) for entry in sets) > limits.TASK_DELETE_SET_BYTES_MAX:
        message.delete_sets_left_out = True
        return message, inputs
    return message, [*inputs, *(partial(answers.live_entry, entry) for entry in sets)]


def _without_stats(live: Live) -> common_pb2.LiveEntry:
    entry = answers.live_entry(live)
    entry.file.ClearField("stats")
    return entry


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
    message = common_pb2.Value()
    if value is None:
        message.null = common_pb2.NULL_VALUE_UNSPECIFIED
        return message
    setattr(message, wire_kind(type_name) or "text", format(value, "f") if isinstance(value, Decimal) else value)
    return message
