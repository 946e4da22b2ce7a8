"""`laketx view`, as a person runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from laketx import connect
from metaservice.cli import command_line
from metaservice.cli.failures import Exit
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.integration.service import service
from tests.integration.terminal import Shell
from worker.arrow.write.inlined_files import inlined_files
from worker.arrow.write.input_rows import fitted

QUERY = "SELECT day, count(*) AS n FROM shop.orders GROUP BY day"


def test_views_are_created_refreshed_verified_and_dropped(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data") as (running, _),
        connect(f"laketx://{running.address}", warehouse=str(tmp_path / "files"), user="ana") as lake,
    ):
        shell = Shell(running.address)
        files = {"LAKETX_WAREHOUSE": str(tmp_path / "files")}
        orders = lake.create_table("shop.orders", "id bigint, day bigint")
        orders.append([{"id": 1, "day": 1}, {"id": 2, "day": 1}])

        planned = shell.run("view", "create", "shop.daily", QUERY, "--dry-run", environment=files)
        assert planned.lines()[0] == "would create shop.daily"
        assert "invertible: GROUP BY orders.day" in planned.out
        made = shell.run("view", "create", "shop.daily", QUERY, "--comment", "for the board", environment=files)
        assert made.out == "created shop.daily, version 1\n"
        orders.append([{"id": 3, "day": 2}])
        [status] = json.loads(shell.run("view", "status", "-o", "json", environment=files).out)
        assert (status["name"], status["behind"]) == ("shop.daily", {"shop.orders": 1})
        done = json.loads(shell.run("view", "refresh", "shop.daily", "-o", "json", environment=files).out)
        assert (done["kind"], done["version"], done["rows_added"]) == ("incremental", 2, 1)
        proof = json.loads(
            shell.run("view", "verify", "shop.daily", "--version", "1", "-o", "json", environment=files).out
        )
        assert (proof["holds"], proof["vector"]) == (True, {"shop.orders": 1})

        refused = shell.run("view", "create", "shop.bad", "SELECT now() AS n FROM shop.orders", environment=files)
        assert (refused.code, "VIEW_QUERY_INVALID" in refused.err) == (Exit.REFUSED, True)
        assert shell.run("view", "drop", "shop.daily", "--dry-run").out == "would drop view shop.daily\n"
        assert shell.run("view", "drop", "shop.daily", "--yes").out == "dropped view shop.daily\n"
        assert lake.materialized_views() == []
        assert list(lake.client.list_cursors()) == []


def test_a_view_that_differs_ends_the_command_with_a_code(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data") as (running, _),
        connect(f"laketx://{running.address}", warehouse=str(tmp_path / "files"), user="ana") as lake,
    ):
        lake.create_table("shop.orders", "id bigint, day bigint").append([{"id": 1, "day": 1}])
        view = lake.create_materialized_view("shop.daily", QUERY)
        client, view_id = lake.client, view.view.table_id

        [cursor] = client.list_cursors()
        intent = transaction_pb2.TableIntent(table_id=view_id, operation=common_pb2.OPERATION_MERGE)
        vector = json.dumps({cursor.table_id: cursor.version})
        with client.begin([intent], properties={"view.vector": vector, "view.class": "full"}) as txn:
            row = fitted(pa.table({"day": [9], "n": [9]}), view.view.meta)
            parts = [(f"{txn.txn_id}/0.arrow", row)]
            txn.queue(view_id, inlined_files(view.view.meta, parts, common_pb2.FILE_KIND_UNSPECIFIED) or [], [])
            move = transaction_pb2.CursorMove(
                table_id=cursor.table_id, name=cursor.name, expected_version=cursor.version, version=cursor.version
            )
            txn.commit([common_pb2.Change(table_id=view_id)], [move])
        files = {"LAKETX_WAREHOUSE": str(tmp_path / "files")}
        ended = Shell(running.address).run("view", "verify", "shop.daily", environment=files)
        assert (ended.code, ended.out) == (Exit.CORRUPT, "surplus: day=9, n=9\n")
        assert "laketx view refresh shop.daily --full" in ended.err
        assert Shell(running.address).run("view", "refresh", "shop.daily", "--full", environment=files).code == 0
        assert view.verify().holds


def test_the_other_answers_of_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process: a new one takes seconds."""
    with connect(tmp_path / "lake") as lake:
        lake.create_table("shop.orders", "id bigint, day bigint").append([{"id": 1, "day": 1}])
        lake.create_materialized_view("shop.daily", QUERY)

        def run(*words: str) -> tuple[int, str]:
            code = command_line.run([*words, "--folder", str(tmp_path / "lake")], dict(os.environ))
            return code, capsys.readouterr().out

        assert run("view", "refresh", "shop.daily") == (0, "nothing to do: shop.daily is at shop.orders 1\n")
        assert "invertible  GROUP BY orders.day" in run("view", "explain", "shop.daily")[1]
        assert run("view", "status", "shop.daily")[1].splitlines()[1].split()[0] == "shop.daily"
        assert "has the 1 rows of its query" in run("view", "verify", "shop.daily")[1]
        query = "SELECT count(*) AS n FROM shop.orders"
        assert run("view", "create", "shop.count", query, "--target-lag", "90 seconds")[0] == 0
        assert run("view", "alter", "shop.count", "--schedule", "EVERY hour") == (
            0,
            "schedule of shop.count: every 1 hour\n",
        )
        assert run("view", "suspend", "shop.count") == (0, "suspended shop.count\n")
        assert "every 1 hour (suspended)" in run("view", "status", "shop.count")[1]
        assert run("view", "resume", "shop.count") == (0, "resumed shop.count\n")
        assert run("view", "alter", "shop.count", "--schedule", "manual")[1] == "schedule of shop.count: manual\n"
        assert run("view", "alter", "shop.count", "--schedule", "now and then")[0] == Exit.USAGE
        assert run("view", "suspend", "shop.orders")[0] == Exit.REFUSED
        assert run("view", "refresh", "shop.none")[0] == Exit.NOT_FOUND
        assert run("view", "refresh", "shop.orders")[0] == Exit.REFUSED


def test_the_lineage_of_tables_and_views(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with connect(tmp_path / "lake") as lake:
        orders = lake.create_table("shop.orders", "id bigint, day bigint, buyer bigint")
        lake.create_table("shop.buyers", "buyer bigint, name string")
        daily = lake.create_materialized_view("shop.daily", QUERY)
        lake.create_materialized_view("shop.best", "SELECT day FROM shop.daily WHERE n > 1")
        lake.create_materialized_view("shop.named", "SELECT name FROM shop.best CROSS JOIN shop.buyers")
        orders.rename_column("day", "date")
        lake.rename_table("shop.orders", "shop.sales")

        def run(*words: str) -> list[dict[str, object]]:
            assert command_line.run([*words, "--folder", str(tmp_path / "lake"), "-o", "json"], dict(os.environ)) == 0
            answer: list[dict[str, object]] = json.loads(capsys.readouterr().out)
            return answer

        edges = [(read["view"], read["source"], read["columns"]) for read in run("view", "lineage")]
        assert edges == [
            ("shop.best", "shop.daily", ["day", "n"]),
            ("shop.daily", "shop.sales", ["date"]),
            ("shop.named", "shop.best", ["day"]),
            ("shop.named", "shop.buyers", ["name"]),
        ]
        around = [(read.direction, read.steps, read.view, read.source) for read in daily.lineage()]
        assert around == [
            ("reads", 1, "shop.daily", "shop.sales"),
            ("read by", 1, "shop.best", "shop.daily"),
            ("read by", 2, "shop.named", "shop.best"),
        ]
        assert [(read["steps"], read["view"]) for read in run("view", "lineage", "shop.sales")] == [
            (1, "shop.daily"),
            (2, "shop.best"),
            (3, "shop.named"),
        ]
        lake.drop_table("shop.buyers")
        assert ("shop.named", "shop.buyers (dropped)") in [(r["view"], r["source"]) for r in run("view", "lineage")]
