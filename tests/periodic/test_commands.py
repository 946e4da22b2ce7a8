"""`laketx periodic`, as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laketx import Lake
from metaservice.cli import command_line
from metaservice.cli.failures import Exit
from protos.laketx.v1 import maintenance_pb2 as pb
from tests.integration.terminal import Ended
from tests.integration.warehouse import warehouse

COUNT = "INSERT INTO shop.log SELECT now() AS due, count(*) AS n FROM shop.orders"


def test_tasks_are_created_run_listed_and_dropped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with warehouse(tmp_path) as found:
        lake = Lake(found.client, str(found.folder), None)
        environment = {"LAKETX_SERVER": found.client_address, "LAKETX_WAREHOUSE": str(found.folder)}

        def run(*words: str) -> Ended:
            capfd.readouterr()
            code = command_line.run(("periodic", *words), environment)
            printed = capfd.readouterr()
            return Ended(code, printed.out, printed.err)

        def shown(*words: str) -> object:
            return json.loads(run(*words, "-o", "json").out)

        lake.create_table("shop.orders", "id bigint")
        lake.create_table("shop.log", "due timestamp, n bigint")
        every = ("--schedule", "5 minutes", "--when", "HAS_DATA('shop.orders')")
        planned = run("create", "shop.count", COUNT, *every, "--dry-run")
        assert planned.out == "would create shop.count, which changes shop.log and reads shop.orders\n"
        assert shown("list") == []
        made = run("create", "shop.count", COUNT, *every, "--comment", "for the board")
        assert made.out.startswith("created shop.count: every 5 minutes, next run 20")
        refused = run("create", "shop.bad", "SELECT 1", *every)
        assert (refused.code, "PERIODIC_STATEMENT_INVALID" in refused.err) == (Exit.REFUSED, True)

        assert run("run", "shop.count").out.startswith("ran shop.count: 1 rows, version 1, ")
        found.clock.advance(300_000)
        task_id = lake.periodic_task("shop.count").message.task_id
        for _ in range(2):
            found.client.begin_periodic_run(task_id, "w")
            found.clock.advance(300_000)
        assert [run["outcome"] for run in shown("history", "shop.count")] == ["skipped", "done"]  # type: ignore[attr-defined]
        history = run("history", "shop.count").out
        assert "skipped, 2 in succession" in history
        assert "done" in history
        assert len(run("history", "shop.count", "--limit", "1").lines()) == 2
        assert "skipped, 2 in succession" in run("list").out
        text = run("show", "shop.count").out
        for part in (COUNT, "duckdb", "every 5 minutes", "HAS_DATA('shop.orders')", "for the board"):
            assert part in text

        other = found.client.get_periodic_task("shop.count")
        spark = pb.PeriodicTask(
            name="shop.spark", statement="…", engine=pb.PERIODIC_ENGINE_SPARK, schedule="every hour"
        )
        spark.MergeFrom(pb.PeriodicTask(operation=other.operation, table_id=other.table_id))
        found.client.put_periodic_task(spark)
        found.clock.advance(3_600_000)
        for words in (("list",), ("show", "shop.spark")):
            assert "a worker with Spark: laketx worker --spark" in run(*words).out
        found.client.drop_periodic_task("shop.spark")

        assert run("suspend", "shop.count").out == "suspended shop.count\n"
        assert "suspended" in run("list").out
        assert run("resume", "shop.count").out.startswith("resumed shop.count, next run 20")
        assert run("alter", "shop.count", "--schedule", "every hour").out == "altered shop.count: every 1 hour\n"
        assert run("alter", "shop.count").code == Exit.USAGE
        assert run("drop", "shop.count", "--dry-run").out == "would drop periodic task shop.count\n"
        assert run("drop", "shop.count", "--yes").out == "dropped periodic task shop.count\n"
        assert run("show", "shop.count").code == Exit.NOT_FOUND
