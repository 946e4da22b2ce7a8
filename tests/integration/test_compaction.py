"""Table services over the wire: plans, tasks, claims, fences, schedules. The files are words in the log alone."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metaservice.client import BlockedError, InvalidError, MetaClient, NotFoundError, StaleError, uuid7
from metaservice.client.maintenance import claim_of, intent_of
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import maintenance_pb2 as pb
from protos.laketx.v1 import transaction_pb2 as wire
from tests.integration.compacting import (
    BASE,
    MAJOR,
    MINOR,
    begun,
    change_of,
    claimed,
    insert,
    new_table,
    overwrite,
    states_of,
    work,
    written,
)
from tests.integration.service import Service, Stubs, day, service, wait_until

FLAGS = ("--task-backoff-ms", "1", "--schedule-ms", "0", "--lease-ms", "60000")
DELTA_PROFILE = "delta_write_serializable"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs]]:
    with service(tmp_path_factory.mktemp("compaction") / "db", *FLAGS) as found:
        yield found


@pytest.fixture
def client(running: tuple[Service, Stubs]) -> Iterator[MetaClient]:
    with MetaClient(running[0].address, principal="ann", client_name="tests") as found:
        yield found


def planned(
    client: MetaClient, table_id: str, operation: common_pb2.Operation.ValueType = common_pb2.OPERATION_UNSPECIFIED
) -> list[pb.MaintenanceTask]:
    pages = client.plan_maintenance(table_id, operation=operation, page_size=1)
    return [task for page in pages for task in page.tasks]


def paths(task: pb.MaintenanceTask) -> list[list[str]]:
    return [[entry.file.path for entry in group.inputs] for group in task.groups]


def test_a_plan_says_what_would_run_and_changes_nothing(client: MetaClient) -> None:
    table_id = new_table(client, "plans", minor_files="3")
    added = [insert(client, table_id) for _ in range(3)]
    insert(client, table_id, "2")
    (task,) = planned(client, table_id)
    assert (task.operation, paths(task), task.task_id) == (MINOR, [added], "")
    assert (task.gain.files_less, task.reason, task.table_name) == (2, "3 delta files", "plans")
    assert [one.operation for one in planned(client, table_id, operation=MAJOR)] == [MAJOR, MAJOR]
    assert states_of(client, table_id) == []


def test_a_plan_for_one_transaction_takes_no_notice_of_tasks_and_their_bounds(client: MetaClient) -> None:
    table_id = new_table(client, "at_once", task_files="2")
    for where in ("1", "1", "1", "2", "2"):
        insert(client, table_id, where)
    client.request_tasks(table_id, MINOR, partitions=[day("1")])

    def files(**asked: Any) -> list[int]:
        pages = client.plan_maintenance(table_id, operation=MINOR, **asked)
        return sorted(group.files for page in pages for task in page.tasks for group in task.groups)

    assert files() == [2]
    assert files(at_once=True) == [2, 3]


def test_a_plan_of_a_clustering_asks_for_the_order_that_is_wanted(client: MetaClient) -> None:
    table_id = new_table(client, "in_order")
    txn = client.begin([wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_OVERWRITE)])
    change = common_pb2.Change(table_id=table_id, files=[written(txn.txn_id, day("1"), 0, BASE)])
    change.scope.all = True
    client.commit(txn.txn_id, [change])
    order = pb.TaskOptions(order=pb.ROW_ORDER_SORT, order_columns=["ID"])
    assert planned(client, table_id, operation=common_pb2.OPERATION_CLUSTER) == []
    (page,) = client.plan_maintenance(table_id, operation=common_pb2.OPERATION_CLUSTER, options=order)
    assert [(task.reason, list(task.options.order_columns)) for task in page.tasks] == [
        ("1 base files out of order", ["id"])
    ]
    with pytest.raises(InvalidError, match="ROW_ORDER_INVALID"):
        list(client.plan_maintenance(table_id, operation=MAJOR, options=order))


def test_under_maxcompute_a_partition_has_one_task_elsewhere_a_bucket(client: MetaClient) -> None:
    tables = [new_table(client, f"places{n}", minor_files="2", profile=p) for n, p in enumerate(("", DELTA_PROFILE))]
    for table_id in tables:
        for bucket in (0, 0, 1, 1):
            insert(client, table_id, bucket=bucket)
    plans = [planned(client, table_id) for table_id in tables]
    assert [[len(task.groups) for task in plan] for plan in plans] == [[2], [1, 1]]
    assert [[task.operation for task in plan] for plan in plans] == [[MINOR], [MAJOR, MAJOR]]


def test_a_task_ends_with_its_commit(client: MetaClient) -> None:
    table_id = new_table(client, "life")
    for _ in range(3):
        insert(client, table_id)
    (asked,) = client.request_tasks(table_id, MINOR).tasks
    assert (asked.state, asked.requested_by.name, asked.priority) == (pb.TASK_STATE_QUEUED, "ann", 100)
    task = claimed(client, table_id)
    assert (task.task_id, task.fence, task.worker.name) == (asked.task_id, 1, "ann")
    assert [entry.data_version for entry in task.groups[0].inputs] == [1, 2, 3]
    txn_id = begun(client, task)
    assert client.get_task(task.task_id).txn_id == txn_id
    client.commit(txn_id, [change_of(task, txn_id)])
    ended = client.get_task(task.task_id)
    assert (ended.state, ended.txn_id, ended.progress) == (pb.TASK_STATE_DONE, txn_id, 1.0)
    assert client.finish_task(task.task_id, task.fence, txn_id=txn_id) == ended
    assert client.claim_task(table_ids=[table_id]) is None
    assert planned(client, table_id) == []


def test_a_request_and_a_claim_may_be_repeated(client: MetaClient) -> None:
    table_id = new_table(client, "repeats")
    for _ in range(2):
        insert(client, table_id)
    request_id, claim_id = uuid7(), uuid7()
    first = client.request_tasks(table_id, MINOR, request_id=request_id)
    assert client.request_tasks(table_id, MINOR, request_id=request_id) == first
    with pytest.raises(InvalidError, match="REQUEST_ID_REUSED"):
        client.request_tasks(table_id, MAJOR, request_id=request_id)
    task = client.claim_task(table_ids=[table_id], request_id=claim_id)
    assert task is not None
    assert client.claim_task(table_ids=[table_id], request_id=claim_id) == task
    assert client.claim_task(table_ids=[table_id]) is None
    assert list(client.request_tasks(table_id, MINOR).tasks) == []
    client.cancel_task(task[0].task_id)


def test_a_cancelled_task_is_fenced_at_its_commit(client: MetaClient) -> None:
    table_id = new_table(client, "cancel")
    for _ in range(2):
        insert(client, table_id)
    client.request_tasks(table_id, MINOR)
    task = claimed(client, table_id)
    txn_id = begun(client, task)
    assert client.cancel_task(task.task_id, reason="not now").error == "not now"
    renewed = client.renew_task(task.task_id, task.fence, progress=0.5)
    assert (renewed.cancelled, renewed.reason) == (True, "not now")
    with pytest.raises(StaleError, match="TASK_CLAIM_LOST"):
        client.commit(txn_id, [change_of(task, txn_id)])
    with pytest.raises(StaleError, match="TASK_CLAIM_LOST"):
        client.begin([intent_of(task)], task=claim_of(task))


def test_a_failure_backs_off_and_raises_an_alarm_at_last(client: MetaClient) -> None:
    table_id = new_table(client, "failures")
    for _ in range(2):
        insert(client, table_id)
    client.request_tasks(table_id, MINOR)
    states, failed = [], pb.MaintenanceTask()
    for _ in range(5):
        wait_until_due(client, next(client.list_tasks(table_id=table_id)).task_id)
        task = claimed(client, table_id)
        failed = client.finish_task(task.task_id, task.fence, error="out of memory")
        states.append((failed.state, failed.attempts, failed.error))
        assert client.finish_task(task.task_id, task.fence, error="out of memory").attempts == failed.attempts
    queued, alarm = pb.TASK_STATE_QUEUED, pb.TASK_STATE_FAILED
    assert states == [(queued, n, "out of memory") for n in range(1, 5)] + [(alarm, 5, "out of memory")]
    page = next(client.list_task_pages())
    assert page.failed == 1
    assert page.oldest_create_time_us > 0
    wait_until_due(client, failed.task_id)
    assert work(client, table_id).state == pb.TASK_STATE_DONE
    assert next(client.list_task_pages()).failed == 0


def wait_until_due(client: MetaClient, task_id: str) -> None:
    """Back-offs are by the service's clock, which is this machine's."""
    wait_until(lambda: client.get_task(task_id).not_before_us < time.time_ns() // 1000)


def test_a_task_given_back_counts_no_attempt(client: MetaClient) -> None:
    table_id = new_table(client, "drain")
    for _ in range(2):
        insert(client, table_id)
    client.request_tasks(table_id, MINOR)
    task = claimed(client, table_id)
    given = client.finish_task(task.task_id, task.fence, give_back=True)
    assert (given.state, given.attempts) == (pb.TASK_STATE_QUEUED, 0)
    again = claimed(client, table_id)
    assert (again.task_id, again.fence) == (task.task_id, task.fence + 1)
    with pytest.raises(StaleError, match="TASK_CLAIM_LOST"):
        client.renew_task(task.task_id, task.fence)
    with pytest.raises(StaleError, match="TASK_CLAIM_LOST"):
        client.finish_task(task.task_id, task.fence, error="late")
    client.cancel_task(task.task_id)


def test_a_users_commit_dooms_a_task_and_renew_says_so(client: MetaClient) -> None:
    table_id = new_table(client, "doom")
    for _ in range(2):
        insert(client, table_id)
    client.request_tasks(table_id, MINOR)
    task = claimed(client, table_id)
    begun(client, task)
    insert(client, table_id)
    assert not client.renew_task(task.task_id, task.fence, progress=0.25).cancelled
    assert client.get_task(task.task_id).progress == 0.25
    overwrite(client, table_id)
    renewed = client.renew_task(task.task_id, task.fence)
    assert renewed.cancelled
    assert renewed.doomed.winner_operation == common_pb2.OPERATION_OVERWRITE
    after = client.get_task(task.task_id)
    assert after.attempts == 1
    assert after.state == pb.TASK_STATE_QUEUED
    assert "OVERWRITE" in after.error
    wait_until_due(client, task.task_id)
    assert client.claim_task(table_ids=[table_id]) is None  # nothing is left to be done
    assert states_of(client, table_id) == ["cancelled"]


def test_a_lost_race_is_an_attempt(client: MetaClient) -> None:
    table_id = new_table(client, "races")
    for _ in range(2):
        insert(client, table_id)
    client.request_tasks(table_id, MAJOR)
    task = claimed(client, table_id)
    txn_id = begun(client, task)
    insert(client, table_id)
    assert client.commit(txn_id, [change_of(task, txn_id)]).WhichOneof("outcome") == "conflict"
    after = client.get_task(task.task_id)
    assert (after.state, after.attempts) == (pb.TASK_STATE_QUEUED, 1)
    assert after.error == "OUTCOME_TABLE: lost to INSERT, version 3"
    wait_until_due(client, task.task_id)
    again = claimed(client, table_id)
    assert (again.read_version, again.groups[0].files) == (3, 3)
    client.cancel_task(task.task_id)


def test_an_operators_plan_is_checked_as_a_commit_is(client: MetaClient) -> None:
    table_id = new_table(client, "own")
    first, second, third = (insert(client, table_id) for _ in range(3))

    def group(*inputs: str) -> list[common_pb2.CompactionGroup]:
        return [common_pb2.CompactionGroup(partition=day(), bucket=0, inputs=inputs)]

    with pytest.raises(InvalidError, match="COMPACTION_INCOMPLETE"):
        client.request_tasks(table_id, MINOR, groups=group(first, third))
    with pytest.raises(InvalidError, match="INPUT_NOT_LIVE"):
        client.request_tasks(table_id, MINOR, groups=group(first, "gone/f"))
    with pytest.raises(InvalidError, match="GROUP_INPUTS_INVALID"):
        client.request_tasks(table_id, MINOR, groups=group())
    with pytest.raises(InvalidError, match="GROUP_TWICE"):
        client.request_tasks(table_id, MINOR, groups=group(first, second) * 2)
    with pytest.raises(InvalidError, match="BUCKET_OUT_OF_RANGE"):
        client.request_tasks(
            table_id, MINOR, groups=[common_pb2.CompactionGroup(partition=day(), bucket=2, inputs=[first])]
        )
    with pytest.raises(InvalidError, match="INPUT_KIND_INVALID"):
        client.request_tasks(table_id, common_pb2.OPERATION_CLUSTER, groups=group(first, second))
    with pytest.raises(InvalidError, match="OPERATION_INVALID"):
        client.request_tasks(table_id, common_pb2.OPERATION_INSERT)
    (task,) = client.request_tasks(table_id, MINOR, groups=group(first, second)).tasks
    assert task.groups[0].files == 2
    with pytest.raises(BlockedError, match="PARTITION_BUSY"):
        client.request_tasks(table_id, MINOR, groups=group(second, third))
    assert work(client, table_id).state == pb.TASK_STATE_DONE


def test_what_names_nothing_is_refused(client: MetaClient) -> None:
    nobody = uuid7()
    for call in (client.get_task, client.cancel_task):
        with pytest.raises(NotFoundError, match="TASK_UNKNOWN"):
            call(nobody)
        with pytest.raises(InvalidError, match="TASK_ID_INVALID"):
            call("x")
    table_id = new_table(client, "bad")
    for _ in range(2):
        insert(client, table_id)
    client.request_tasks(table_id, MINOR)
    task = claimed(client, table_id)
    for progress in (-0.1, 1.1, float("nan"), float("inf")):
        with pytest.raises(InvalidError, match="PROGRESS_INVALID"):
            client.renew_task(task.task_id, task.fence, progress=progress)
    with pytest.raises(InvalidError, match="FINISH_EMPTY"):
        client.finish_task(task.task_id, task.fence)
    wrong = intent_of(task)
    wrong.operation = MAJOR
    with pytest.raises(InvalidError, match="TASK_MISMATCH"):
        client.begin([wrong], task=claim_of(task))
    txn_id = begun(client, task)
    change = change_of(task, txn_id)
    change.groups[0].bucket = change.files[0].bucket = 1
    with pytest.raises(InvalidError, match="TASK_MISMATCH"):
        client.commit(txn_id, [change])
    with pytest.raises(BlockedError, match="TASK_NOT_COMMITTED"):
        client.finish_task(task.task_id, task.fence, txn_id=txn_id)
    client.cancel_task(task.task_id)


def test_the_wanted_order_must_be_written(client: MetaClient) -> None:
    table_id = new_table(client, "sorted", keyed=False, cluster_order="sort(id)", cluster_files="2")
    for _ in range(2):
        insert(client, table_id, keyed=False)
    (task,) = planned(client, table_id)
    assert (task.operation, list(task.options.order_columns)) == (common_pb2.OPERATION_CLUSTER, ["id"])
    client.request_tasks(table_id, common_pb2.OPERATION_CLUSTER)
    task = claimed(client, table_id)
    txn_id = begun(client, task)
    with pytest.raises(InvalidError, match="ROW_ORDER_MISSING"):
        client.commit(txn_id, [change_of(task, txn_id)])
    client.commit(txn_id, [change_of(task, txn_id, row_order="sort(id)")])
    assert planned(client, table_id, operation=common_pb2.OPERATION_CLUSTER) == []


def test_limits_and_priorities(client: MetaClient) -> None:
    table_id = new_table(client, "limits", tasks="1")
    for value in ("1", "1", "2", "2"):
        insert(client, table_id, value)
    low = client.request_tasks(table_id, MINOR, partitions=[day("1")], priority=1).tasks[0]
    high = client.request_tasks(table_id, MINOR, partitions=[day("2")], priority=2).tasks[0]
    assert claimed(client, table_id).task_id == high.task_id
    assert client.claim_task(table_ids=[table_id]) is None  # one at a time
    client.cancel_task(high.task_id)
    assert claimed(client, table_id).task_id == low.task_id
    client.cancel_task(low.task_id)


def test_a_dropped_table_ends_its_tasks(client: MetaClient) -> None:
    table_id = new_table(client, "dropped")
    for _ in range(2):
        insert(client, table_id)
    client.request_tasks(table_id, MINOR)
    task = claimed(client, table_id)
    client.drop_table(table_id)
    wait_until(lambda: states_of(client, table_id) == ["cancelled"])
    assert client.renew_task(task.task_id, task.fence).reason == "TABLE_DROPPED"


def test_policies_fill_the_queue_by_themselves_and_survive_a_kill(tmp_path: Path) -> None:
    """A worker that dies is fenced: its task goes to another one, and its commit comes too late."""
    flags = ("--schedule-ms", "20", "--lease-ms", "400", "--task-backoff-ms", "1")
    with service(tmp_path / "db", *flags) as (server, _), MetaClient(server.address, principal="ann") as client:
        table_id = new_table(client, "auto", minor_files="3")
        for _ in range(3):
            insert(client, table_id)
        wait_until(lambda: states_of(client, table_id) == ["queued"])
        task = claimed(client, table_id)
        txn_id = begun(client, task)
        server.kill()
        server.start()
        assert client.get_task(task.task_id).state == pb.TASK_STATE_CLAIMED
        wait_until(lambda: client.get_task(task.task_id).attempts == 1)
        assert client.get_task(task.task_id).error.startswith("LEASE_RAN_OUT")
        again = claimed(client, table_id)
        assert (again.task_id, again.fence) == (task.task_id, 2)
        late = begun(client, again)
        client.commit(late, [change_of(again, late)])
        with pytest.raises(StaleError):
            client.commit(txn_id, [change_of(task, txn_id)])
        assert states_of(client, table_id) == ["done"]
        assert len(list(client.get_task(task.task_id).groups)) == 1
