"""Plans compactions: pure, from the live entries of a bucket to tasks.

Each bucket is planned by itself (`plan_bucket`; for most, `quiet_waits` finds that nothing is due), then the buckets of
a partition together (`plan_partition`). Under `maxcompute` two tasks in one partition would conflict, so there is one
per partition; under other profiles one per bucket.

In a primary-key table a minor takes a run: every file between two data versions, none of them a base file. Worked
example with `compaction.minor.files` 3, files by data version:

    b(4) d(5) d(6) d(7)       minor of d(5) d(6) d(7)
    b(4) D(5) d(6) d(7) d(8)  D is large: minor of d(6) d(7) d(8), so that D is not rewritten each time
    d(3) b(4) d(5) d(6)       nothing: no run of three

Every task makes the next plan smaller, so planning terminates: fewer files below the target size, fewer deltas, fewer
hidden rows, fewer files out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from metaservice.core.compaction.append import plan_append
from metaservice.core.compaction.keyed import plan_keyed
from metaservice.core.compaction.plans import (
    CLUSTER,
    MAJOR,
    MINOR,
    Ages,
    Bucket,
    BucketPlan,
    GroupPlan,
    Look,
    TaskPlan,
    Wait,
)
from metaservice.core.compaction.policy import Age, Policy
from metaservice.core.table.model import Operation


def plan_bucket(policy: Policy, ages: Ages, bucket: Bucket) -> BucketPlan:
    """The groups that the policy asks for in a bucket."""
    files = bucket.files
    is_good = not bucket.sets and len(files) < 2 and all(file.ordered and not file.inlined for file in files)
    if policy.only is None and is_good:
        return BucketPlan(last_added=max((file.added for file in files), default=-1))  # as good as it gets
    look = Look(policy, ages, bucket)
    return plan_keyed(look) if policy.keyed else plan_append(look)


def plan_partition(policy: Policy, ages: Ages, plans: Iterable[BucketPlan]) -> tuple[list[TaskPlan], list[Wait]]:
    """Return the tasks for a partition, and what else to wait for."""
    listed = list(plans)
    if not any(plan.major or plan.minor or plan.cluster for plan in listed):
        return [], []
    quiet, waits = True, []
    if policy.by_partition and policy.only is None and policy.ages_us[Age.QUIET]:
        last_added = max((plan.last_added for plan in listed), default=-1)
        quiet = last_added <= ages.quiet
        if not quiet and any(plan.major for plan in listed):
            waits.append((Age.QUIET, last_added))
    if policy.only is not None:
        chosen = [(policy.only, group) for plan in listed if (group := _of_kind(plan, policy.only))]
    else:
        chosen = [choice for plan in listed if (choice := _first(plan, quiet=quiet))]
    if not policy.by_partition:
        return [TaskPlan(operation, (group,)) for operation, group in chosen], waits
    for operation in (MAJOR, MINOR, CLUSTER):
        groups = [group for kind, group in chosen if kind is operation]
        if groups:
            return [TaskPlan(operation, _bounded_groups(policy, groups))], waits
    return [], waits


def by_gain(plan: TaskPlan) -> tuple[float, str, int]:
    """Sorts the highest score first, deterministically."""
    first = plan.groups[0]
    return -plan.gain.score, first.partition, first.bucket


def _of_kind(plan: BucketPlan, operation: Operation) -> GroupPlan | None:
    return {MAJOR: plan.major, MINOR: plan.minor, CLUSTER: plan.cluster}[operation]


def _first(plan: BucketPlan, *, quiet: bool) -> tuple[Operation, GroupPlan] | None:
    if plan.major is not None and quiet:
        return MAJOR, plan.major
    if plan.minor is not None:
        return MINOR, plan.minor
    return (CLUSTER, plan.cluster) if plan.cluster is not None else None


def _bounded_groups(policy: Policy, groups: list[GroupPlan]) -> tuple[GroupPlan, ...]:
    """Return the groups with the highest scores, within the limits of a task; at least one."""
    taken: list[GroupPlan] = []
    files = size = 0
    for group in sorted(groups, key=lambda plan: (-plan.gain.score, plan.bucket)):
        files += len(group.inputs)
        size += group.size_bytes
        if taken and (files > policy.task_files or size > policy.task_bytes):
            break
        taken.append(group)
    return tuple(taken)


def without(plan: TaskPlan, busy: Callable[[str, int], bool]) -> TaskPlan | None:
    """The part of a plan that no task works on."""
    groups = tuple(group for group in plan.groups if not busy(group.partition, group.bucket))
    return replace(plan, groups=groups) if groups else None
