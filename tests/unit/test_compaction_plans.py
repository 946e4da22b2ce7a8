"""Plans of table services: what is chosen, by example and by law."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given

from metaservice.core.compaction.append import hidden_rows
from metaservice.core.compaction.planner import plan_bucket, plan_partition
from metaservice.core.compaction.plans import Ages, Bucket, GroupPlan, PlanFile, PlanSet, TaskPlan
from metaservice.core.compaction.policy import Age, Options, Policy, RowOrder
from metaservice.core.table.model import Operation
from tests.unit.buckets import KIB, MAJOR, MIB, MINOR, TARGET, files_of, policy, worlds


def chosen(plan: GroupPlan | None) -> str:
    return " ".join(path.partition("/")[0] for path in plan.inputs) if plan is not None else ""


@pytest.mark.parametrize(
    ("live", "minor"),
    [
        ("b4:100 d5 d6 d7", "d5 d6 d7"),
        ("b4:100 d5 d6", ""),
        ("d5 d6 d7 b8:100 d9", "d5 d6 d7"),
        ("d3 b4:100 d5 d6", ""),
        ("b4:100 d5:60 d6 d7 d8", "d6 d7 d8"),
        ("b4:100 d5:200 d6 d7 d8", "d6 d7 d8"),
        ("b4:100 d5 d6:200 d7 d8 d9", "d7 d8 d9"),
        ("b4:100 d6 d6 d6", "d6 d6 d6"),
        ("b4:100 d5:40 d6:40", "d5:40 d6:40"),
        ("d5 d6 b6:10 d7 d8 d9", "d7 d8 d9"),
    ],
)
def test_a_minor_takes_a_run_of_deltas(live: str, minor: str) -> None:
    plan = plan_bucket(policy(), Ages(), Bucket("p", 0, files_of(live)))
    assert chosen(plan.minor) == minor


@pytest.mark.parametrize(
    ("live", "major"),
    [
        ("b4:100 d5:10 d6:10 d7:10", "b4:100 d5:10 d6:10 d7:10"),
        ("b4:100", ""),
        ("b4:100 d5:29 d6", ""),
        ("d5 d6 d7", "d5 d6 d7"),
        ("d5", ""),
    ],
)
def test_a_major_is_for_a_large_share_of_deltas(live: str, major: str) -> None:
    rows = [file._replace(rows=file.size_bytes // KIB) for file in files_of(live)]
    plan = plan_bucket(policy(), Ages(), Bucket("p", 0, rows))
    assert chosen(plan.major) == major


def test_age_alone_is_enough_and_is_waited_for() -> None:
    bucket = Bucket("p", 0, files_of("b4:100 d5 d6"))
    young = plan_bucket(policy(), Ages(), bucket)
    assert (young.minor, young.major) == (None, None)
    assert dict(young.waits) == {Age.MINOR: 5, Age.MAJOR: 5, Age.SETTLE: 6}
    old = plan_bucket(policy(), Ages(minor=5, major=5), bucket)
    assert chosen(old.minor) == "d5 d6"
    assert chosen(old.major) == "b4:100 d5 d6"


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ("b4:20 d5", "b4:20 d5"),
        ("b4:0.1 d5:0.1 d6:0.1", ""),
        ("b4:20 d5:0.1 d6:0.1 d7:0.1", "b4:20 d5:0.1 d6:0.1 d7:0.1"),
        ("b4:900 d5 d6", ""),
        ("b4:900 d5 d6 d7 d8", "d5 d6 d7 d8"),
        ("b4:900 d5:60 d6:60", "b4:900 d5:60 d6:60"),
        ("b4:900 d5:63 d6 d7 d8", "d6 d7 d8"),
    ],
)
def test_what_nobody_writes_to_is_put_in_order_where_that_is_cheap(live: str, wanted: str) -> None:
    bucket = Bucket("p", 0, [file._replace(rows=file.size_bytes // KIB) for file in files_of(live)])
    relaxed = replace(policy(minor=10), minor_bytes=1 << 40)
    last = max(file.added for file in bucket.files)
    written = plan_bucket(relaxed, Ages(settle=last - 1), bucket)
    settled = plan_bucket(relaxed, Ages(settle=last), bucket)
    assert (written.major, written.minor) == (None, None)
    assert chosen(settled.major or settled.minor) == wanted
    if wanted:
        assert (Age.SETTLE, last) in written.waits
        assert "no recent writes" in (settled.major or settled.minor).reason  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ("a1 a2 a3", ""),
        ("a1 a2 a3 a4", "a1 a2 a3 a4"),
        ("a1:60 a2 a3 a4 a5", "a2 a3 a4 a5"),
        ("a1:100 a2:100 a3:100 a4:100", ""),
        ("a1:30 a2 a3 a4", "a2 a3 a4 a1:30"),
    ],
)
def test_small_files_that_nobody_adds_to_go_together(live: str, wanted: str) -> None:
    bucket = Bucket("", 0, files_of(live))
    relaxed = policy(keyed=False, minor=10)
    assert plan_bucket(relaxed, Ages(settle=3), bucket).minor is None
    assert sorted(chosen(plan_bucket(relaxed, Ages(settle=5), bucket).minor).split()) == sorted(wanted.split())


def test_hidden_rows_of_what_nobody_writes_to_go_where_that_is_cheap() -> None:
    files = files_of("a1:100 a2:20")
    for touched, wanted in ((files[0], ""), (files[1], "a2:20")):
        bucket = Bucket("", 0, files, [PlanSet(1, 3, 3, (touched.path,))])
        written = plan_bucket(policy(keyed=False), Ages(settle=2), bucket)
        assert (written.minor, written.major) == (None, None)
        assert (Age.SETTLE, 3) in written.waits
        assert chosen(plan_bucket(policy(keyed=False), Ages(settle=3), bucket).minor) == wanted


def test_small_files_of_like_size_go_together() -> None:
    small = Bucket("", 0, files_of("a1:50 a2 a3 a4"))
    assert chosen(plan_bucket(policy(keyed=False), Ages(), small).minor) == "a2 a3 a4"
    large = Bucket("", 0, files_of("a1:100 a2:100 a3:100"))
    assert plan_bucket(policy(keyed=False), Ages(), large).minor is None


def test_hidden_rows_make_a_major_or_a_minor_of_the_files_that_hold_them() -> None:
    files = files_of("a1:100 a2:100 a3:100")
    bucket = Bucket("", 0, files, [PlanSet(9, 4, 4, (files[1].path,))])
    assert hidden_rows(bucket) == {files[1].path: 9}
    plan = plan_bucket(policy(keyed=False), Ages(), bucket)
    assert (chosen(plan.major), chosen(plan.minor)) == ("a1:100 a2:100 a3:100", "a2:100")
    quiet = policy(keyed=False, by_partition=True)
    for version, operation in ((3, MINOR), (4, MAJOR)):
        tasks, waits = plan_partition(quiet, Ages(quiet=version), [plan])
        assert [task.operation for task in tasks] == [operation]
        assert bool(waits) is (operation is MINOR)


def test_files_out_of_order_are_clustered() -> None:
    bucket = Bucket("", 0, files_of("a1:100? a2:100? a3:100? a4:100"))
    plan = plan_bucket(policy(keyed=False, order=True), Ages(), bucket)
    assert chosen(plan.cluster) == "a1:100 a2:100 a3:100"
    assert plan.minor is None


def test_files_out_of_order_that_nobody_adds_to_are_clustered_where_that_is_cheap() -> None:
    relaxed = policy(keyed=False, minor=10, order=True)
    bucket = Bucket("", 0, files_of("a1:100 a2:100? a3? a4? a5? a6"))
    written = plan_bucket(relaxed, Ages(settle=5), bucket)
    assert (written.cluster, (Age.SETTLE, 6) in written.waits) == (None, True)
    assert sorted(chosen(plan_bucket(relaxed, Ages(settle=6), bucket).cluster).split()) == ["a3", "a4", "a5", "a6"]


def test_small_base_files_are_clustered_with_what_lies_between() -> None:
    plan = plan_bucket(policy(), Ages(), Bucket("p", 0, files_of("b1 b2:100 b3 b4 d5")))
    assert chosen(plan.cluster) == "b1 b2:100 b3 b4"
    assert plan_bucket(policy(), Ages(), Bucket("p", 0, files_of("b1 d2 b3 b4"))).cluster is None


@pytest.mark.parametrize(
    ("live", "cluster"),
    [
        ("b1:100? d2", "b1:100"),
        ("b1:100 b2:100? b3", "b2:100 b3"),
        ("b1:100 b2:100", ""),
        ("b1:100 d2?", ""),
    ],
)
def test_base_files_out_of_the_order_that_is_asked_for_are_clustered(live: str, cluster: str) -> None:
    asked = policy().wanting(Operation.CLUSTER, Options(TARGET, RowOrder.SORT, ("v",)))
    assert chosen(plan_bucket(asked, Ages(), Bucket("p", 0, files_of(live))).cluster) == cluster


def test_who_does_it_at_once_takes_more_than_a_task_does() -> None:
    wanting = replace(policy(keyed=False), task_files=2, task_bytes=3 * MIB).wanting(MINOR)
    files = files_of("a1 a2 a3:2 a4")
    assert len(chosen(plan_bucket(wanting, Ages(), Bucket("p", 0, files)).minor).split()) == 2
    assert len(chosen(plan_bucket(wanting.unbounded(), Ages(), Bucket("p", 0, files)).minor).split()) == 4


def test_a_task_is_bounded() -> None:
    bounded = replace(policy(), task_files=4)
    plan = plan_bucket(bounded, Ages(), Bucket("p", 0, files_of("b1:9999 d2 d3 d4 d5 d6 d7")))
    assert chosen(plan.minor) == "d4 d5 d6 d7"
    buckets = [Bucket("p", number, files_of("b1:9999 d2 d3 d4")) for number in range(5)]
    together = replace(bounded, by_partition=True, task_files=6)
    (task,), _ = plan_partition(together, Ages(), [plan_bucket(together, Ages(), one) for one in buckets])
    assert [group.bucket for group in task.groups] == [0, 1]


# -- laws ------------------------------------------------------------------------------------------------------------


def tasks_of(world: tuple[Policy, Ages, Sequence[Bucket]]) -> list[TaskPlan]:
    found, ages, live = world
    return plan_partition(found, ages, [plan_bucket(found, ages, bucket) for bucket in live])[0]


@given(worlds())
def test_a_plan_is_sound(world: tuple[Policy, Ages, list[Bucket]]) -> None:
    """Inputs are live and each in one task; a minor takes a run, a major everything; the bounds hold."""
    found, _, live = world
    tasks = tasks_of(world)
    if found.by_partition:
        assert len(tasks) <= 1
    places = [group.place for task in tasks for group in task.groups]
    assert len(set(places)) == len(places)
    for task in tasks:
        assert found.only in (None, task.operation)
        assert task.reason
        assert task.gain.cost_bytes > 0
        assert task.gain.score >= 0
        if len(task.groups) > 1:
            assert sum(len(group.inputs) for group in task.groups) <= found.task_files
        for group in task.groups:
            check_group(found, task.operation, group, next(one for one in live if one.bucket == group.bucket))


def check_group(found: Policy, operation: Operation, group: GroupPlan, bucket: Bucket) -> None:
    by_path = {file.path: file for file in bucket.files}
    inputs = [by_path[path] for path in group.inputs]
    assert inputs
    assert len(set(group.inputs)) == len(inputs)
    assert (group.rows, group.size_bytes) == (sum(f.rows for f in inputs), sum(f.size_bytes for f in inputs))
    if operation is MAJOR:
        assert len(inputs) == len(bucket.files)
    elif found.keyed:
        assert {file.is_delta for file in inputs} == {operation is MINOR}
        low, high = min(f.data_version for f in inputs), max(f.data_version for f in inputs)
        assert {f.path for f in bucket.files if low <= f.data_version <= high} == set(group.inputs)
    else:
        assert len(inputs) <= found.task_files


@given(worlds())
def test_plans_converge(world: tuple[Policy, Ages, list[Bucket]]) -> None:
    """Doing what is planned, again and again, comes to an end."""
    found, ages, live = world
    version = 20
    for _ in range(80):
        tasks = tasks_of((found, ages, live))
        if not tasks:
            return
        version += 1
        for task in tasks:
            for group in task.groups:
                place = next(n for n, bucket in enumerate(live) if bucket.bucket == group.bucket)
                live[place] = compacted(found, task.operation, group, live[place], version)
    assert tasks_of((found, ages, live)) == []


@given(worlds())
def test_who_waits_is_told_in_time(world: tuple[Policy, Ages, list[Bucket]]) -> None:
    """Where nothing is due, what becomes due by the settling of a bucket is waited for."""
    found, ages, live = world
    for bucket in live:
        young = plan_bucket(found, ages._replace(settle=-1), bucket)
        settled = plan_bucket(found, ages._replace(settle=99), bucket)
        if (young.major, young.minor, young.cluster) == (None, None, None) != (settled.major, settled.minor, None):
            assert (Age.SETTLE, young.last_added) in young.waits


@given(worlds())
def test_nobody_waits_for_what_has_come(world: tuple[Policy, Ages, list[Bucket]]) -> None:
    """It would be looked at again and again."""
    found, ages, live = world
    for some in (ages, Ages(settle=99)):
        for bucket in live if found.only is None else []:
            assert all(version > some[age] for age, version in plan_bucket(found, some, bucket).waits)


@given(worlds())
def test_a_settled_bucket_has_few_small_files(world: tuple[Policy, Ages, list[Bucket]]) -> None:
    found, _, live = world
    found = replace(found, by_partition=False, only=None, task_files=1_000, task_bytes=1 << 40)
    settled = Ages(settle=99)
    for version in range(20, 60):
        for task in tasks_of((found, settled, live)):
            for group in task.groups:
                live = [
                    compacted(found, task.operation, group, one, version) if one.bucket == group.bucket else one
                    for one in live
                ]
    for bucket in live:
        small = [file for file in bucket.files if file.is_delta or (not found.keyed and file.size_bytes * 2 < TARGET)]
        if not found.options.order and not bucket.sets and len(small) > 3:
            assert max(file.size_bytes for file in bucket.files) > 32 * MIB


def compacted(found: Policy, operation: Operation, group: GroupPlan, bucket: Bucket, version: int) -> Bucket:
    """A bucket after a task of which nobody lost a row: the worst that a worker may make of its inputs."""
    inputs = [file for file in bucket.files if file.path in group.inputs]
    rest = [file for file in bucket.files if file.path not in group.inputs]
    whole = operation is MAJOR or not found.keyed
    data_version = version if whole else max(file.data_version for file in inputs)
    is_delta = found.keyed and operation is MINOR
    count = 1 if is_delta else max(1, -(-group.size_bytes // found.file_bytes_target))
    made = [
        PlanFile(
            f"v{version}.{group.bucket}.{number}",
            is_delta,
            group.rows // count,
            group.size_bytes // count,
            data_version,
            version,
        )
        for number in range(count)
    ]
    return bucket._replace(files=rest + made, sets=kept_sets(bucket.sets, rest))


def kept_sets(sets: Iterable[PlanSet], files: Sequence[PlanFile]) -> list[PlanSet]:
    """Judged at the commit: one under which an older file lies may be kept."""
    return [one for one in sets if any(file.data_version < one.data_version for file in files)]
