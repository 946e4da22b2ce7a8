"""`laketx compaction` against a real service."""

import json
import re
from collections.abc import Iterator

import pytest

from metaservice.cli.failures import Exit
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from tests.integration.compacting import PLAIN, insert, new_table, work, written
from tests.integration.service import service
from tests.integration.terminal import Shell

AT_US = 1_795_257_000_000_000  # 2026-11-21 10:30:00 in UTC
FLAGS = ("--schedule-ms", "0", "--task-backoff-ms", "1")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, MetaClient]]:
    with (
        service(tmp_path_factory.mktemp("cli") / "db", *FLAGS) as (server, _),
        MetaClient(server.address, principal="bo") as client,
    ):
        yield Shell(server.address), client


def test_plan_run_list_and_cancel(lake: tuple[Shell, MetaClient]) -> None:
    shell, client = lake
    table_id = new_table(client, "orders", minor_files="3")
    for value in ("1", "1", "1", "2", "2"):
        insert(client, table_id, value)
    plan = shell.run("compaction", "plan", "orders", "--dry-run")
    assert plan.code == Exit.DONE, plan.err
    assert "minor" in plan.out
    assert "day=1 #0" in plan.out
    assert "3 delta files" in plan.out
    assert "1 tasks at version 5" in plan.err
    answer = json.loads(shell.run("compaction", "plan", "orders", "--what", "major", "-o", "json").out)
    assert [task["operation"] for task in answer["tasks"]] == ["major_compact", "major_compact"]

    assert "none" in status_line(shell, "workers")
    queued = shell.run("compaction", "run", "orders", "minor", "--partition", "day=2", "-o", "json")
    assert "no worker is running" in queued.err
    assert status_line(shell, "workers") == "NONE: 1 tasks wait; `laketx worker` starts one"
    (task,) = json.loads(queued.out)["tasks"]
    assert task["state"] == "queued"
    assert task["requested_by"]["name"] == "ana"
    again = shell.run("compaction", "run", "orders", "minor", "--partition", "day=2")
    assert task["task_id"] in again.out
    assert "already queued" in again.err
    assert "no worker is running: the task waits until `laketx worker` runs" in again.err
    listed = shell.run("compaction", "list")
    assert task["task_id"] in listed.out
    assert "1 waiting, 0 running" in listed.err
    rows = shell.terminal("compaction", "list", "--quiet", width=80).lines()
    (shown,) = [row for row in rows if "orders" in row]  # gRPC may say before it what it thinks of the fork
    assert shown.split()[:3] == ["queued", "minor", "orders"]
    assert task["task_id"].startswith(short := shown.split()[-1])
    assert shell.run("compaction", "cancel", short, "--dry-run").out.startswith("would cancel minor")
    assert shell.run("compaction", "cancel", task["task_id"], "--yes").code == Exit.DONE
    assert task["task_id"] not in shell.run("compaction", "list").out
    ended = json.loads(shell.run("compaction", "list", "--all", "-o", "json").out)
    assert [(one["task_id"], one["state"]) for one in ended] == [(task["task_id"], "cancelled")]


@pytest.mark.parametrize(("kind", "shown"), [("timestamp", "10:30:00Z #0"), ("timestamp_ntz", "10:30:00 #0")])
def test_tasks_show_partitions_by_time_as_all_other_lists_do(
    lake: tuple[Shell, MetaClient], kind: str, shown: str
) -> None:
    shell, client = lake
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="at", type=kind)]
    table = catalog_pb2.Table(name=f"by_{kind}", columns=columns, partition_columns=["at"])
    table_id = client.create_table(table).table_id
    partition = common_pb2.Partition()
    partition.values.add(column="at").value.timestamp_us = AT_US
    for _ in range(2):
        txn = client.begin([transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)])
        file = written(txn.txn_id, partition, 0, PLAIN)
        client.commit(txn.txn_id, [common_pb2.Change(table_id=table_id, files=[file])])
    wanted = f"at=2026-11-21 {shown}"
    assert wanted in shell.run("compaction", "plan", table.name, "--what", "major").out
    queued = shell.run("compaction", "run", table.name, "major")
    assert wanted in queued.out
    assert wanted in shell.run("compaction", "list", "--table", table.name).out
    task_id = queued.lines()[1].split()[-1]
    assert wanted in shell.run("compaction", "cancel", task_id, "--dry-run").out
    assert f"at=2026-11-21 {shown.partition(' ')[0]}" in shell.run("files", table.name).out


def test_waiting_and_what_is_refused(lake: tuple[Shell, MetaClient]) -> None:
    shell, client = lake
    table_id = new_table(client, "items")
    for _ in range(2):
        insert(client, table_id)
    waiting = shell.start("compaction", "run", "items", "minor", "--wait", "-o", "json")
    while not list(client.list_tasks(table_id=table_id)):
        assert waiting.poll() is None
    assert work(client, table_id).groups[0].files == 2
    assert re.fullmatch(r"1, \d+ tasks wait", status_line(shell, "workers"))
    out, err = waiting.communicate(timeout=30)
    assert [task["state"] for task in json.loads(out)["tasks"]] == ["done"], err
    assert shell.run("compaction", "run", "items", "minor").out.startswith("nothing to do")
    assert shell.run("compaction", "run", "items", "minor", "--partition", "week=1").code == Exit.USAGE
    assert shell.run("compaction", "cancel", "x", "--yes").code == Exit.REFUSED


def status_line(shell: Shell, name: str) -> str:
    (line,) = [line for line in shell.run("status").lines() if line.startswith(f"{name} ")]
    return line.removeprefix(name).strip()
