"""A periodic task with a run that ended, and one whose worker vanished after the commit: they outlive their service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.integration.service import data_file

NAME: Final = "noted_daily"
OUTCOMES: Final = [maintenance_pb2.PERIODIC_OUTCOME_DONE] * 2


def run_twice(client: MetaClient) -> Callable[[MetaClient], None]:
    """Make the task and its runs; return what checks, once, that another service has each of them exactly once."""
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="string")]
    table = catalog_pb2.Table(name="noted", columns=columns, partition_columns=["day"])
    table_id = client.create_table(table).table_id
    task = maintenance_pb2.PeriodicTask(
        name=NAME,
        statement="INSERT …",
        operation=common_pb2.OPERATION_INSERT,
        table_id=table_id,
        schedule="cron 0 0 1 1 *",
    )
    task_id = client.put_periodic_task(task).task_id
    requests = [new_uuid7(), new_uuid7()]
    dues = [_committed(client, table_id, task_id, requests[0])]
    client.end_periodic_run(task_id, dues[0], "w", rows=1, version=1)
    dues.append(_committed(client, table_id, task_id, requests[1]))
    assert [run.due_time_us for run in client.list_periodic_runs(NAME)] == dues[:1]

    def check(other: MetaClient) -> None:
        assert other.get_periodic_task(NAME).run_time_us == dues[1]
        assert other.begin_periodic_run(task_id, "v").due_time_us == 0, "it has committed: no worker gets it"
        runs = list(other.list_periodic_runs(NAME))
        assert [(run.due_time_us, run.outcome) for run in runs] == list(zip(reversed(dues), OUTCOMES, strict=True))
        for request_id, due_us in zip(requests, dues, strict=True):
            assert other.ask_periodic_run(NAME, request_id=request_id).due_time_us == due_us
        assert other.begin_periodic_run(task_id, "v").due_time_us == 0
        assert other.get_table("noted").head_version == 2

    return check


def _committed(client: MetaClient, table_id: str, task_id: str, request_id: str) -> int:
    """The due time of a run that was begun, and has committed."""
    due_us = client.ask_periodic_run(NAME, request_id=request_id).due_time_us
    begun = client.begin_periodic_run(task_id, "w")
    assert begun.due_time_us == due_us
    txn = client.begin([transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)])
    txn.register(table_id, [data_file(txn.txn_id)])
    version = common_pb2.AppVersion(app_id=begun.app_id, version=due_us)
    txn.commit([common_pb2.Change(table_id=table_id, app_versions=[version])])
    return due_us
