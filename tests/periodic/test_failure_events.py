"""Failed runs of tasks and failed refreshes of views, as `laketx events serve` tells them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laketx import Lake
from metaservice.cli.event_delivery import Sender, Target
from metaservice.cli.event_feed import Feed
from tests.integration.warehouse import Warehouse, warehouse
from tests.integration.webhook import SECRET, Event, receiving, url
from worker.periodic.scheduler import TaskScheduler
from worker.views.refresher import ViewRefresher

WAIT_S = 30.0


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path / "lake") as made:
        yield made


def let_them_fail(found: Warehouse, lake: Lake) -> None:
    """The next run fails for good, and so does the refresh, for the same reason as before."""
    scheduler, refresher = TaskScheduler(lake), ViewRefresher(lake)
    for wait_ms in (60_000, 5_000, 10_000, 20_000):
        found.clock.advance(wait_ms)
        scheduler.run_once()
        scheduler.wait()
    refresher.run_once()
    refresher.stop(WAIT_S)


def test_failures_are_told_once(found: Warehouse, tmp_path: Path) -> None:
    lake, stopped = Lake(found.client, str(found.folder), None), threading.Event()
    orders = lake.create_table("shop.orders", "id bigint, amount bigint")
    days = lake.create_table("shop.log", "n bigint")
    statement = "INSERT INTO shop.log SELECT max(amount) FROM shop.orders"
    task = lake.create_periodic_task("shop.count", statement, schedule="every minute")
    query = "SELECT id, sum(amount) AS total FROM shop.orders GROUP BY id"
    view = lake.create_materialized_view("shop.totals", query, schedule="ON COMMIT")
    orders.append([{"id": 1, "amount": 1}])
    orders.drop_column("amount")
    with receiving() as receiver:
        sender = Sender(Target(url(receiver), SECRET), stopped, print, lambda: time.time_ns() // 1_000)

        def told(*patterns: str, lineage: str = "") -> list[Event]:
            """The failures that a feed tells which begins again."""
            receiver.events.clear()
            feed = Feed(
                found.client, sender, f"events{lineage}", patterns, tmp_path / f"state{lineage}.json",
                from_start=True, keep_ms=60_000, conflicts=False, branches=False, note=print, stopped=stopped,
                lineage=lineage,
            )  # fmt: skip
            feed.round()
            feed.flush()
            kinds = ("dev.laketx.failure", "FAIL")
            return [each for each in receiver.events if each.get("type", each.get("eventType")) in kinds]

        assert told() == []
        let_them_fail(found, lake)
        assert [run.outcome for run in task.history()] == ["failed"]
        assert told("shop.nothing") == []
        of_view, of_run = told()
        version = view.table.refresh().meta.head_version
        assert of_view["id"] == f"{view.table.table_id}/{version}/failure"
        assert of_run["id"].rpartition("/")[0] == f"periodic/{task.message.task_id}"
        assert [each["tableid"] for each in (of_view, of_run)] == [view.table.table_id, days.table_id]
        assert "was dropped" in of_view["data"]["error"]
        assert of_run["data"]["run"]["attempts"] == 4
        assert told() == [], "a feed that begins again knows what was told"

        of_view, of_run = told(lineage="main")
        assert [each["job"]["name"] for each in (of_view, of_run)] == ["refresh shop.totals", "shop.count"]
        assert [each["job"]["facets"]["sql"]["query"] for each in (of_view, of_run)] == [query, statement]
        assert "was dropped" in of_view["run"]["facets"]["errorMessage"]["message"]
        assert [each["name"] for each in of_view["inputs"]] == ["shop.orders"]
        assert [each["name"] for each in of_run["outputs"]] == ["shop.log"]
        assert of_view["run"]["runId"] != of_run["run"]["runId"]
        assert told(lineage="main") == []

        let_them_fail(found, lake)
        assert [len(told()), len(told(lineage="main"))] == [1, 1]
        sender.close()
