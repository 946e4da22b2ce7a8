"""Schedules of views: their words, which views are due, and workers that refresh them, are killed, fail and compete."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laketx import InputError, InvalidError, Lake, Table, connect
from metaservice.client.calling import Caller
from metaservice.shared.view_schedules import ViewSchedule, is_view_schedule, parse_view_schedule
from tests.conformance.server import ROOT
from tests.integration.service import service
from worker.views import refresher as refreshers
from worker.views.due_views import SECOND_US, ScheduledView, due_views
from worker.views.refresh import last_refresh
from worker.views.refresher import ViewRefresher

TOTALS = "SELECT day, count(*) AS n, sum(amount) AS total FROM {}.orders GROUP BY day"
DAY = date(2026, 11, 1)
WAIT_S = 30.0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("schedules")) as made:
        yield made


def orders(lake: Lake, space: str) -> Table:
    return lake.create_table(f"{space}.orders", "id bigint, day date, amount bigint", primary_key=["id"])


def order(table: Table, number: int) -> None:
    table.upsert([{"id": number, "day": DAY, "amount": 1}])


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def settle(refresher: ViewRefresher) -> None:
    """Wait until no refresh runs."""
    wait_until(lambda: not refresher._running)


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("", ViewSchedule("manual")),
        ("Manual", ViewSchedule("manual")),
        ("ON  COMMIT", ViewSchedule("on commit")),
        ("EVERY 5 MINUTES", ViewSchedule("every", 300)),
        ("every hour", ViewSchedule("every", 3_600)),
        ("target lag '90 seconds'", ViewSchedule("target lag", 90)),
        ("TARGET LAG DOWNSTREAM", ViewSchedule("downstream")),
        ("downstream", ViewSchedule("downstream")),
    ],
)
def test_the_words_of_schedules(text: str, schedule: ViewSchedule) -> None:
    assert parse_view_schedule(text) == schedule
    assert parse_view_schedule(schedule.text) == schedule


@pytest.mark.parametrize(
    "text", ["every", "every 0 minutes", "every -1 hour", "5 minutes", "every 5", "on commits", "target lag", "* * *"]
)
def test_other_words_are_no_schedule(lake: Lake, text: str) -> None:
    assert not is_view_schedule(text)
    with pytest.raises(InputError, match="VIEW_SCHEDULE_INVALID"):
        lake.create_materialized_view("words.none", "SELECT 1 AS x FROM words.orders", schedule=text)


def test_only_views_have_schedules(lake: Lake) -> None:
    table = orders(lake, "lone")
    with pytest.raises(InvalidError, match=r"view\.schedule is a property of materialized views"):
        table.set_properties(**{"view.schedule": "on commit"})
    view = lake.create_materialized_view("lone.totals", TOTALS.format("lone"), schedule="ON COMMIT")
    with pytest.raises(InvalidError, match="PROPERTY_INVALID"):
        view.table.set_properties(**{"view.schedule": "at times"})
    assert view.status().schedule == "on commit"
    clone = lake.clone_table("lone.totals", "lone.copy")
    assert not [name for name in clone.meta.properties if name.startswith("view.")]
    with pytest.raises(InputError, match="leave one of them out"):
        view.alter(schedule="ON COMMIT", target_lag="1 minute")
    view.alter(schedule="MANUAL")
    assert view.status().schedule == ""


# -- which views are due -----------------------------------------------------------------------------------------------

SCHEDULES = ["on commit", "every 10 seconds", "target lag 20 seconds", "downstream", ""]


@st.composite
def lakes(draw: st.DrawFn) -> list[ScheduledView]:
    """Views of two tables and of each other."""
    views: list[ScheduledView] = []
    for at in range(draw(st.integers(2, 5))):
        names = ["t0", "t1", *(view.view_id for view in views)]
        sources = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        schedule = parse_view_schedule(draw(st.sampled_from(SCHEDULES)))
        suspended = draw(st.integers(0, 9)) == 0
        vector = dict.fromkeys(sources, 0)
        views.append(ScheduledView(f"v{at}", schedule, frozenset(sources), vector, is_suspended=suspended))
    return views


class Simulation:
    """A lake whose refreshes take no time or some, at simulated times."""

    def __init__(self, views: list[ScheduledView]) -> None:
        self.views = {view.view_id: view for view in views}
        self.heads = dict.fromkeys(["t0", "t1", *self.views], 0)
        self.commits = {name: [0] for name in self.heads}  # their times
        self.now_us = 0
        self.running: dict[str, dict[str, int]] = {}
        self.begun: dict[str, int] = {}

    def commit(self, name: str) -> None:
        self.heads[name] += 1
        self.commits[name].append(self.now_us)

    def behind(self, view: ScheduledView) -> bool:
        assert view.vector is not None
        return any(self.heads[source] != version for source, version in view.vector.items())

    def look(self) -> None:
        """A pass of a worker."""
        for view_id, view in self.views.items():
            assert view.vector is not None
            lacking = [self.commits[s][v + 1] for s, v in view.vector.items() if self.heads[s] > v]
            self.views[view_id] = ScheduledView(
                view_id,
                view.schedule,
                view.sources,
                view.vector,
                view.refreshed_us,
                min(lacking, default=0),
                view.is_suspended,
            )
        due = due_views(self.views.values(), self.heads, self.now_us, running=set(self.running), begun=self.begun)
        for view_id in due.begins:
            view = self.views[view_id]
            assert view.is_active
            assert view_id not in self.running
            assert not view.sources & set(self.running), "it began while a view that it reads was being refreshed"
            self.begun[view_id] = len(self.begun) + max(self.begun.values(), default=0) + 1
            self.running[view_id] = {source: self.heads[source] for source in view.sources}
        self.begins = list(due.begins)

    def end(self, view_id: str) -> None:
        vector = self.running.pop(view_id)
        self.commit(view_id)
        view = self.views[view_id]
        self.views[view_id] = ScheduledView(
            view_id, view.schedule, view.sources, vector, self.now_us, 0, view.is_suspended
        )


@settings(max_examples=150, deadline=None)
@given(lakes(), st.lists(st.sampled_from(["t0", "t1", "look", "look", "end", "tick"]), min_size=8, max_size=40))
def test_views_end_up_to_date_in_the_order_in_which_they_read_each_other(
    views: list[ScheduledView], steps: list[str]
) -> None:
    lake = Simulation(views)
    for step in steps:
        if step == "look":
            lake.look()
        elif step == "end" and lake.running:
            lake.end(min(lake.running))
        elif step == "tick":
            lake.now_us += 4 * SECOND_US
        elif step in ("t0", "t1"):
            lake.commit(step)
    for _ in range(30):
        lake.now_us += 11 * SECOND_US
        lake.look()
        for view_id in list(lake.running):
            lake.end(view_id)
    assert lake.begins == []
    for view in lake.views.values():
        readers = [each for each in lake.views.values() if view.view_id in each.sources and each.is_active]
        is_needed = view.schedule.kind != "downstream" or any(each.schedule.kind != "downstream" for each in readers)
        if view.is_active and is_needed:
            assert not lake.behind(view), (view, lake.heads)


def scheduled(name: str, schedule: str, *sources: str, behind_since_s: int = 0, refreshed_s: int = 0) -> ScheduledView:
    vector = dict.fromkeys(sources, 1)
    times = (refreshed_s * SECOND_US, behind_since_s * SECOND_US)
    return ScheduledView(name, parse_view_schedule(schedule), frozenset(sources), vector, *times)


def test_the_times_at_which_a_view_is_due() -> None:
    heads = {"t": 2, "still": 1}
    views = [
        scheduled("commit", "on commit", "t"),
        scheduled("still", "on commit", "still"),
        scheduled("every", "every 10 seconds", "t", refreshed_s=5),
        scheduled("lag", "target lag 10 seconds", "t", behind_since_s=8),
        scheduled("none", "", "t"),
    ]

    def due_at(second: int) -> set[str]:
        return set(due_views(views, heads, second * SECOND_US).views)

    assert due_at(12) == {"commit"}
    assert due_at(13) == {"commit", "lag"}
    assert due_at(14) == {"commit", "lag"}
    assert due_at(15) == {"commit", "lag", "every"}
    assert due_views(views, heads, 15 * SECOND_US, resting=["commit"]).views == {"lag", "every"}


def test_a_downstream_view_is_refreshed_before_the_views_that_read_it_and_only_for_them() -> None:
    heads = {"t": 2, "down": 1}
    down = scheduled("down", "downstream", "t", behind_since_s=1)
    reader = scheduled("reader", "every 10 seconds", "down")
    assert due_views([down, reader], heads, 9 * SECOND_US).views == frozenset()
    due = due_views([down, reader], heads, 10 * SECOND_US)
    assert due.views == {"down", "reader"}
    assert list(due.begins) == ["down"]
    resting = due_views([down, reader], heads, 10 * SECOND_US, resting=["down"])
    assert resting.views == frozenset(), "a view would find nothing to do until the other one is tried again"
    after = due_views([down, reader], heads, 10 * SECOND_US, begun={"down": 1})
    assert list(after.begins) == ["reader", "down"]
    assert list(due_views([down, reader], heads, 10 * SECOND_US, running=["down"], begun={"down": 1}).begins) == []


# -- workers -----------------------------------------------------------------------------------------------------------

KILLED_WORKER = """
import os, signal, sys
from laketx.commands import worker
from metaservice.client import MetaClient
real = MetaClient.commit
def commit(self, *given, **options):
    os.kill(os.getpid(), signal.SIGKILL)
MetaClient.commit = commit
worker.main(sys.argv[1:])
"""


@contextmanager
def worker(address: str, files: Path, *, program: str = "") -> Iterator[subprocess.Popen[str]]:
    words = ["-c", program] if program else ["-m", "laketx.commands.worker"]
    process = subprocess.Popen(
        [sys.executable, *words, "--server", address, "--warehouse", str(files)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)


def test_a_worker_refreshes_views_of_views_and_another_one_takes_over_when_it_is_killed(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data") as (running, _),
        connect(f"laketx://{running.address}", warehouse=str(tmp_path / "files"), user="ana") as lake,
    ):
        table = orders(lake, "shop")
        order(table, 1)
        daily = lake.create_materialized_view("shop.daily", TOTALS.format("shop"), schedule="DOWNSTREAM")
        top = lake.create_materialized_view("shop.top", "SELECT sum(n) AS n FROM shop.daily", schedule="ON COMMIT")
        by_hand = lake.create_materialized_view("shop.by_hand", TOTALS.format("shop"))

        def counted() -> object:
            return top.to_arrow().to_pylist()

        with worker(running.address, tmp_path / "files") as first:
            for number in range(2, 5):
                order(table, number)
                wait_until(lambda number=number: counted() == [{"n": number}])  # type: ignore[misc]
            first.kill()
        owner = last_refresh(top.view, top._definition)
        order(table, 5)
        with worker(running.address, tmp_path / "files", program=KILLED_WORKER) as second:
            second.wait(WAIT_S)  # in the middle of its first refresh
            assert second.returncode == -signal.SIGKILL
        assert counted() == [{"n": 4}]
        with worker(running.address, tmp_path / "files") as third:
            wait_until(lambda: counted() == [{"n": 5}])
            assert third.poll() is None
        heir = last_refresh(top.view, top._definition)
        assert owner is not None
        assert heir is not None
        assert owner.worker != heir.worker != ""
        assert top.verify().holds
        assert daily.verify().holds
        assert by_hand.table.meta.head_version == 1
        assert (top.status().behind, top.status().lag_s) == ({"shop.daily": 0}, 0.0)


def test_a_view_whose_sources_did_not_move_costs_one_look(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    order(orders(lake, "still"), 1)
    lake.create_materialized_view("still.totals", TOTALS.format("still"), schedule="ON COMMIT")
    refresher = ViewRefresher(lake)
    assert refresher.run_once() == []
    calls: list[str] = []
    real = Caller._call

    def call(self: Caller, method: Any, request: Any, **more: Any) -> Any:
        calls.append(type(request).__name__.removesuffix("Request"))
        return real(self, method, request, **more)

    monkeypatch.setattr(Caller, "_call", call)
    assert refresher.run_once() == []
    assert [name for name in calls if name not in ("RenewPin", "Unpin")] == ["ListTables"]


def test_suspended_views_stay_as_they_are(lake: Lake) -> None:
    table = orders(lake, "rests")
    view = lake.create_materialized_view("rests.totals", TOTALS.format("rests"), schedule="ON COMMIT")
    view.suspend()
    order(table, 1)
    refresher = ViewRefresher(lake)
    assert "rests.totals" not in refresher.run_once()
    assert (view.status().is_suspended, view.status().behind) == (True, {"rests.orders": 1})
    assert 0 < view.status().lag_s < WAIT_S
    view.resume()
    assert "rests.totals" in refresher.run_once()
    settle(refresher)
    assert view.status().behind == {"rests.orders": 0}


def test_a_failure_is_in_the_status_and_the_view_rests(lake: Lake) -> None:
    table = orders(lake, "fails")
    view = lake.create_materialized_view("fails.totals", TOTALS.format("fails"), schedule="ON COMMIT")
    table.drop_column("amount")
    now = [0.0]
    refresher = ViewRefresher(lake, now_s=lambda: now[0])

    def tried() -> bool:
        names = refresher.run_once()
        settle(refresher)
        return "fails.totals" in names

    assert tried()
    status = view.status()
    assert "the column amount of fails.orders, which the view reads, was dropped" in status.failure
    assert status.failed is not None
    version = view.table.meta.head_version
    assert not tried()
    now[0] += refreshers.REST.base_s
    assert tried()
    now[0] += refreshers.REST.base_s * 0.99
    assert not tried()  # twice as long now, at least half of it
    assert view.table.meta.head_version == version  # the same reason is noted once
    view.resume()
    assert view.status().failure == ""
    assert tried()
    assert "was dropped" in view.status().failure


def test_a_failure_of_a_view_does_not_keep_others_from_their_refreshes(lake: Lake) -> None:
    table = orders(lake, "beside")
    lake.create_materialized_view("beside.a", TOTALS.format("beside"), schedule="ON COMMIT")
    other = lake.create_materialized_view("beside.b", "SELECT count(*) AS n FROM beside.orders", schedule="ON COMMIT")
    table.drop_column("amount")
    table.upsert([{"id": 1, "day": DAY}])
    refresher = ViewRefresher(lake)
    refresher.start()
    wait_until(lambda: other.to_arrow().to_pylist() == [{"n": 1}])
    refresher.stop(WAIT_S)
    assert lake.materialized_view("beside.a").status().failure


def test_two_workers_share_views_without_racing_for_ever(lake: Lake) -> None:
    table = orders(lake, "shared")
    view = lake.create_materialized_view("shared.totals", TOTALS.format("shared"), schedule="ON COMMIT")
    workers = [ViewRefresher(lake, poll_s=0.05, now_s=lambda: 0.0) for _ in range(2)]  # none is ever overdue
    for each in workers:
        each.start()
    for number in range(1, 9):
        order(table, number)
        wait_until(lambda: not any(view.status().behind.values()))
    for each in workers:
        each.stop(WAIT_S)
    owners = []
    for version in range(2, view.table.meta.head_version + 1):
        last = last_refresh(view.view, view._definition, version)
        assert last is not None
        owners.append(last.worker)
    assert set(owners) <= {each.worker for each in workers}
    changes = sum(left != right for left, right in pairwise(owners))
    assert changes == 0, "both begin at once, and then one of them has the view"
    assert len(owners) <= 8, "one commit for each order, at most"
    assert view.verify().holds
