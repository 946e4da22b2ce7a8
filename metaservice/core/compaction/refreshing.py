"""Plans that are checked again against the head: a task before it is handed out, an operator's explicit plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from metaservice.core.commit.change_checks import check_inputs
from metaservice.core.compaction.planner import plan_bucket
from metaservice.core.compaction.plans import Ages, Bucket, Gain, GroupPlan, PlanFile, TaskPlan
from metaservice.core.compaction.policy import Policy
from metaservice.core.compaction.tasks import Task
from metaservice.core.errors import MetaError, invalid
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Change, Group, Operation
from metaservice.core.table.snapshots import Snapshots

MINOR, MAJOR, CLUSTER = Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER


@dataclass(frozen=True, slots=True)
class TableNow:
    """A table at its head."""

    meta: TableMeta
    head: int
    snapshots: Snapshots


def refreshed(
    table: TableNow, policy: Policy, task: Task, buckets: Mapping[tuple[str, int], Bucket]
) -> TaskPlan | None:
    """Adapt the task to the head; None if nothing is left to do.

    A major takes all current files. Other tasks keep those inputs that are still valid.
    """
    groups: list[GroupPlan] = []
    for group in task.groups:
        bucket = buckets[group.place]
        group_plan = _kept(table, task, group, bucket)
        if group_plan is None and not task.own_plan:
            wanting = policy.wanting(task.operation, task.options)
            plan = plan_bucket(wanting, Ages(), bucket)
            group_plan = {MINOR: plan.minor, MAJOR: plan.major, CLUSTER: plan.cluster}[task.operation]
        if group_plan is not None:
            groups.append(group_plan)
    return TaskPlan(task.operation, tuple(groups)) if groups else None


def _kept(table: TableNow, task: Task, group: Group, bucket: Bucket) -> GroupPlan | None:
    if task.operation is MAJOR and not task.own_plan:
        return None
    try:
        sound = sound_group(table, task.operation, group, bucket)
    except MetaError:
        return None
    gain = task.gain if len(task.groups) == 1 else sound.gain
    return replace(sound, reason=task.reason, gain=gain)


def sound_group(table: TableNow, operation: Operation, group: Group, bucket: Bucket) -> GroupPlan:
    """A valid group for a task; refuses whatever a commit would refuse."""
    if not group.inputs or len(set(group.inputs)) != len(group.inputs):
        raise invalid("GROUP_INPUTS_INVALID", partition=group.partition)
    change = Change(table.meta.table_id, operation, table.head, groups=(group,))
    check_inputs(change, table.meta, table.snapshots, group)
    by_path = {file.path: file for file in bucket.files}
    files = sorted((by_path[path] for path in group.inputs), key=lambda file: (file.data_version, file.path))
    if table.meta.keyed and operation is not MAJOR:
        _check_kinds(operation, files)
    size, rows = sum(file.size_bytes for file in files), sum(file.rows for file in files)
    gain = Gain(max(len(files) - 1, 0), 0, 2 * size)
    reason = f"{len(files)} files that an operator chose"
    return GroupPlan(
        partition=group.partition,
        bucket=group.bucket,
        inputs=tuple(file.path for file in files),
        rows=rows,
        size_bytes=size,
        reason=reason,
        gain=gain,
    )


def _check_kinds(operation: Operation, files: list[PlanFile]) -> None:
    """Refuse mixed kinds: deltas may contain tombstones, base files do not; only a major converts them."""
    for file in files:
        if file.is_delta is not (operation is MINOR):
            expected = "delta files" if operation is MINOR else "base files"
            raise invalid("INPUT_KIND_INVALID", f"{operation.name} takes {expected}", path=file.path)
