"""Periodic tasks over a real service: what they write, random histories with kills, conditions, failures, rights."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from laketx import AlreadyExistsError, Credentials, DeniedError, InputError, InvalidError, Lake, NotFoundError, connect
from laketx.companions import companions_of
from laketx.periodic_task import EPOCH
from metaservice.metrics import PERIODIC_LATE_SECONDS, PERIODIC_RUNS, PERIODIC_TASKS
from metaservice.service.decider.state import State
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import maintenance_pb2 as pb
from tests.conformance.play import new_uuid7
from tests.conformance.server import ROOT
from tests.integration.callers import guarded
from tests.integration.service import service
from tests.integration.warehouse import Clock, warehouse
from worker.periodic.attempts import run_attempt
from worker.periodic.runs import run_statement
from worker.periodic.scheduler import TaskScheduler

WAIT_S: Final = 30.0
LEASE_MS: Final = 30_000
NOTE: Final = "INSERT INTO {0}.log SELECT now() AS due, count(*) AS n FROM {0}.orders"


@dataclass
class World:
    """A lake whose service has a clock that the test moves."""

    lake: Lake
    clock: Clock
    state: Callable[[], State]
    spaces: Iterator[int] = field(default_factory=lambda: iter(range(1_000)))

    def space(self) -> str:
        """A namespace with orders, and a log of runs."""
        name = f"s{next(self.spaces)}"
        self.lake.create_table(f"{name}.orders", "id bigint, day date, amount bigint", primary_key=["id"])
        self.lake.create_table(f"{name}.log", "due timestamp, n bigint")
        return name

    def order(self, space: str, *numbers: int) -> None:
        rows = [{"id": each, "day": date(2026, 11, 1 + each % 3), "amount": each} for each in numbers]
        self.lake.table(f"{space}.orders").upsert(rows)

    def begin(self, name: str, worker: str) -> pb.BeginPeriodicRunResponse:
        return self.lake.client.begin_periodic_run(self.lake.periodic_task(name).message.task_id, worker)

    def dues(self, space: str) -> Counter[int]:
        """How often each due time is in the log."""
        rows = self.lake.table(f"{space}.log").to_arrow().to_pylist()
        return Counter(round((row["due"] - EPOCH) / timedelta(microseconds=1)) for row in rows)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with warehouse(tmp_path_factory.mktemp("periodic")) as found:
        found.service.calls.periodic.lease_ms = LEASE_MS
        lake = Lake(found.client, str(found.folder), None)
        yield World(lake, found.clock, lambda: found.service.decider.state)


def outcomes(lake: Lake, name: str) -> list[str]:
    return [run.outcome for run in lake.periodic_task(name).history()]


# -- statements --------------------------------------------------------------------------------------------------------


def test_each_kind_of_statement_writes_what_it_says(world: World) -> None:
    lake, space = world.lake, world.space()
    lake.create_table(f"{space}.days", "day date, total bigint, note string")
    world.order(space, *range(9))

    def run(statement: str) -> int:
        name = f"{space}.t{new_uuid7()[-6:]}"
        return lake.create_periodic_task(name, statement.format(space), schedule="every hour").run().rows

    def days() -> list[tuple[object, ...]]:
        rows = lake.table(f"{space}.days").to_arrow().to_pylist()
        return sorted((row["day"].day, row["total"], row["note"]) for row in rows)

    assert run("INSERT INTO {0}.days (total, day) SELECT sum(amount), day FROM lake.{0}.orders GROUP BY day") == 3
    assert days() == [(1, 9, None), (2, 12, None), (3, 15, None)]
    assert run("UPDATE {0}.days SET note = 'late' WHERE day <= DATE '2026-11-01' + 1") == 2
    merge = """MERGE INTO {0}.days AS d
      USING (SELECT day, max(amount) AS most FROM {0}.orders WHERE amount > 6 GROUP BY day
        UNION ALL SELECT DATE '2026-11-09', 1) AS s
      ON d.day = s.day
      WHEN MATCHED AND s.most > 7 THEN UPDATE SET total = d.total + s.most WHEN MATCHED THEN DELETE
      WHEN NOT MATCHED THEN INSERT (day, total) VALUES (s.day, s.most)"""
    assert run(merge) == 2
    assert days() == [(1, 9, "late"), (3, 23, None), (9, 1, None)]
    assert run("DELETE FROM {0}.days WHERE note IS NULL AND day < current_date + 9999 AND total = 20 + 3") == 1
    assert run("INSERT OVERWRITE {0}.days BY NAME SELECT day, total * 2 AS total FROM {0}.days") == 2
    assert days() == [(1, 18, None), (9, 2, None)]
    assert run("INSERT INTO {0}.orders SELECT id, day, amount + 1 FROM {0}.orders WHERE id < 2") == 2
    assert sorted(lake.table(f"{space}.orders").to_arrow(where="id < 3")["amount"].to_pylist()) == [1, 2, 2]
    version = lake.table(f"{space}.days").meta.head_version
    assert run("INSERT INTO {0}.days SELECT day, 1, 'none' FROM {0}.orders WHERE id > 99") == 0
    assert lake.table(f"{space}.days").meta.head_version == version, "no rows, no commit"


def test_an_insert_fills_and_replaces_the_partitions_that_it_names(world: World) -> None:
    lake, space = world.lake, world.space()
    table = lake.create_table(f"{space}.p", "id bigint, day date, g string", partition_by=["day", "g"])
    world.order(space, 1, 2, 3)

    def run(statement: str) -> set[tuple[int, str, str]]:
        name = f"{space}.t{new_uuid7()[-6:]}"
        lake.create_periodic_task(name, statement.format(space), schedule="every hour").run()
        return {(row["id"], str(row["day"]), row["g"]) for row in table.to_arrow().to_pylist()}

    one, two, three = (1, "2026-11-02", "a"), (2, "2026-11-03", "a"), (3, "2026-11-01", "a")
    five, nine, seven = (5, "2026-11-01", "a"), (9, "2026-11-02", "a"), (7, "2026-11-03", "z")
    assert run("INSERT INTO {0}.p PARTITION (G = upper('a')) SELECT id, day FROM {0}.orders WHERE FALSE") == set()
    assert run("INSERT INTO {0}.p PARTITION (g = 'a', day) SELECT id, day FROM {0}.orders") == {one, two, three}
    first = (
        "INSERT OVERWRITE {0}.p PARTITION (day = '2026-11-0' || 1, g = 'a') SELECT id + 4 FROM {0}.orders WHERE id < 2"
    )
    assert run(first) == {one, two, five}
    assert run("INSERT OVERWRITE {0}.p PARTITION (day, g) SELECT 9, DATE '2026-11-02', 'a'") == {nine, two, five}
    by_name = "INSERT INTO {0}.p PARTITION (day = DATE '2026-11-03') BY NAME SELECT 'z' AS g, 7 AS id"
    assert run(by_name) == {nine, two, five, seven}
    none = "INSERT OVERWRITE {0}.p PARTITION (day = '2026-11-03', g = 'z') SELECT id FROM {0}.orders WHERE FALSE"
    assert run(none) == {nine, two, five}


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO {0}.log PARTITION (n = 1) SELECT now()", InputError),
        ("INSERT INTO {0}.parts PARTITION (day = 'x') SELECT 1, 'a'", InputError),
        ("INSERT INTO {0}.parts PARTITION (id = 1) SELECT DATE '2026-11-01', 'a'", InputError),
        ("INSERT INTO {0}.parts PARTITION (day = '2026-11-01') SELECT 1, DATE '2026-11-01', 'a'", InputError),
        ("INSERT INTO {0}.parts PARTITION (day = '2026-11-01') (id, day) SELECT 1, DATE '2026-11-01'", InputError),
        ("INSERT OVERWRITE {0}.parts PARTITION (day = '2026-11-01', g) SELECT 1, 'a'", InputError),
        ("SELECT 1", InputError),
        ("DROP TABLE {0}.log", InputError),
        ("INSERT INTO {0}.log SELECT now()", InputError),
        ("INSERT INTO {0}.log SELECT 1, 2", InputError),
        ("INSERT INTO {0}.log SELECT now(), nothing FROM {0}.orders", InputError),
        ("INSERT INTO {0}.nothing SELECT 1", NotFoundError),
        ("INSERT INTO {0}.log SELECT now(), n FROM {0}.nothing", NotFoundError),
        ("UPDATE {0}.orders SET id = 1", InputError),
        ("UPDATE {0}.orders SET amount = amount / 0.3", InputError),
        ("DELETE FROM {0}.orders WHERE nothing = 1", InputError),
        ("MERGE INTO {0}.orders o USING {0}.log l ON o.id = l.n WHEN MATCHED THEN UPDATE SET x = 1", InputError),
    ],
)
def test_a_bad_statement_is_refused_when_the_task_is_made(world: World, statement: str, error: type[Exception]) -> None:
    space = world.space()
    world.lake.create_table(f"{space}.parts", "id bigint, day date, g string", partition_by=["day", "g"])
    with pytest.raises(error):
        world.lake.create_periodic_task(f"{space}.bad", statement.format(space), schedule="every hour")
    assert world.lake.periodic_tasks(space) == []


def test_definitions_are_kept_and_versioned(world: World) -> None:
    lake, space = world.lake, world.space()
    name, note = f"{space}.log_it", NOTE.format(space)
    made = lake.create_periodic_task(name, note, schedule="5 MINUTES", comment="c", when=f"has_data('{space}.orders')")
    assert (made.schedule, made.comment, made.message.revision) == ("every 5 minutes", "c", 1)
    with pytest.raises(AlreadyExistsError, match="PERIODIC_TASK_EXISTS"):
        lake.create_periodic_task(name, note, schedule="every hour")
    assert lake.create_periodic_task(name, note, schedule="every hour", if_not_exists=True).schedule == made.schedule
    run = made.run()
    replaced = lake.create_periodic_task(name, note, schedule="cron 0 9 * * *", or_replace=True)
    assert (replaced.message.task_id, replaced.message.revision) == (made.message.task_id, 2)
    assert [each.due for each in replaced.history()] == [run.due]
    with pytest.raises(InvalidError, match="RUN_SCHEDULE_INVALID"):
        replaced.alter(schedule="at times")
    replaced.alter(schedule="every 2 hours", comment="d")
    assert lake.periodic_task(name.upper()).refresh().comment == "d"
    state = world.state()
    assert State(state.store).periodic.tasks == state.periodic.tasks, "a new process knows the same"
    view = lake.create_materialized_view(f"{space}.view", f"SELECT id FROM {space}.orders")
    with pytest.raises(Exception, match="VIEW_READ_ONLY"):
        lake.create_periodic_task(f"{space}.bad", f"DELETE FROM {view.name} WHERE id = 1", schedule="every hour")
    replaced.drop()
    with pytest.raises(NotFoundError, match="PERIODIC_TASK_UNKNOWN"):
        replaced.history()
    assert lake.periodic_tasks(space) == []


# -- histories ---------------------------------------------------------------------------------------------------------


class History:
    """Random steps of workers that are killed and doubled, against a plain account of what is due."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.space = world.space()
        self.name = f"{self.space}.noted"
        self.interval_us = 60_000_000
        task = world.lake.create_periodic_task(
            self.name, NOTE.format(self.space), schedule="every minute", when=f"HAS_DATA('{self.space}.orders')"
        )
        self.anchor_us = task.message.create_time_us
        self.ended_us = self.pending_us = self.attempts = 0
        self.is_requested = self.is_suspended = False
        self.data = self.noted = self.seen = 0  # commits of orders
        self.rows: Counter[int] = Counter()
        self.skipped: set[int] = set()
        self.asked: dict[str, int] = {}  # due times by the ids of requests

    def play(self, steps: int) -> None:
        for number in range(steps):
            step = self.rng.choice([self.work, self.work, self.work, self.order, self.pause, self.ask])
            self.world.clock.advance(self.rng.choice([1_000, 20_000, 61_000, 200_000]))
            step(number)
        self.kill_none = True
        if self.is_suspended:
            self.pause(0)
        self.work(0)

    kill_none = False

    def order(self, number: int) -> None:
        self.world.order(self.space, number)
        self.data += 1

    def pause(self, _: int) -> None:
        task = self.world.lake.periodic_task(self.name)
        if self.is_suspended:
            task.resume()
            self.attempts = 0
        else:
            task.suspend()
        self.is_suspended = not self.is_suspended

    def ask(self, _: int) -> None:
        ask = self.world.lake.client.ask_periodic_run
        for request_id, due_us in self.asked.items():
            assert ask(self.name, request_id=request_id).due_time_us == due_us, "a repeated request asks for nothing"
        self.settle()
        asked = ask(self.name, request_id=(request_id := new_uuid7()))
        self.pending_us = self.asked[request_id] = self.pending_us or self.world.clock.now_us()
        self.attempts, self.is_requested = 0, True
        assert asked.due_time_us == asked.task.run_time_us == self.pending_us

    def settle(self) -> None:
        """A run whose worker was killed after its commit has ended."""
        if self.rows[self.pending_us]:
            self.end()

    def due(self) -> int:
        """The due time of what a worker must get now; 0: nothing."""
        if self.is_suspended and not self.is_requested:
            return 0
        if self.pending_us:
            return self.pending_us
        newest = self.world.clock.now_us() - (self.world.clock.now_us() - self.anchor_us) % self.interval_us
        return newest if newest > max(self.ended_us, self.anchor_us) else 0

    def work(self, _: int) -> None:
        """A worker begins what is due, and is killed somewhere, or not."""
        self.world.clock.advance(LEASE_MS)
        self.settle()
        due = self.due()
        begun = self.world.begin(self.name, "w1")
        if due and not self.pending_us and self.data <= self.seen:
            self.skipped.add(due)
            self.ended_us, due = due, 0
        assert begun.due_time_us == due
        if not due:
            return
        if not self.attempts:
            self.noted = self.data
        self.pending_us, self.attempts = due, self.attempts + 1
        killed = "no" if self.kill_none else self.rng.choice(["before", "after", "doubled", "no"])
        if killed == "before":
            return
        ids = frozenset([begun.task.table_id, *begun.task.source_ids])
        for _ in range({"no": 0, "after": 1, "doubled": 2}[killed]):
            run_statement(self.world.lake, begun.task.statement, ids, begun.app_id, due, self.name)
        self.rows[due] = 1
        if killed != "after":
            run_attempt(self.world.lake, begun, "w1")
            self.end()

    def end(self) -> None:
        self.ended_us, self.pending_us, self.attempts, self.is_requested = self.pending_us, 0, 0, False
        self.seen = self.noted


def _us(time: datetime) -> int:
    return round((time - EPOCH) / timedelta(microseconds=1))


@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.long) for each in range(2, 12))])
def test_each_due_run_is_in_the_table_once_over_random_histories(world: World, seed: int) -> None:
    history = History(world, seed)
    history.play(60)
    runs = world.lake.periodic_task(history.name).history()
    assert world.dues(history.space) == history.rows
    assert sorted(_us(run.due) for run in runs if run.outcome == "done") == sorted(history.rows)
    assert {_us(run.due) for run in runs if run.outcome == "skipped"} <= history.skipped
    assert sum(run.skips or 1 for run in runs) == len(history.rows) + len(history.skipped)


def test_a_repeated_request_for_a_run_has_its_answer_again(world: World) -> None:
    lake, space = world.lake, world.space()
    task = lake.create_periodic_task(f"{space}.noted", NOTE.format(space), schedule="every hour")
    first, second = new_uuid7(), new_uuid7()
    run = task.run(request_id=first)
    assert task.run(request_id=first.upper()) == run
    world.clock.advance(61 * 60_000)
    assert world.begin(task.name, "w").due_time_us, "another run is due, which a repeated request leaves alone"
    assert task.run(request_id=first) == run
    joined = lake.client.ask_periodic_run(task.name, request_id=second)
    assert joined.due_time_us == joined.task.run_time_us != _us(run.due)
    assert len(world.dues(space)) == 1
    with pytest.raises(InvalidError, match="REQUEST_ID_INVALID"):
        task.run(request_id="again")


def test_two_workers_never_run_a_task_at_the_same_time(world: World) -> None:
    lake, space = world.lake, world.space()
    task = lake.create_periodic_task(f"{space}.noted", NOTE.format(space), schedule="every minute")
    world.clock.advance(61_000)
    first = world.begin(task.name, "w1")
    assert first.due_time_us
    assert world.begin(task.name, "w2").due_time_us == 0
    world.clock.advance(LEASE_MS - 1_000)
    assert world.begin(task.name, "w1").due_time_us == first.due_time_us, "a renewal"
    world.clock.advance(LEASE_MS - 1_000)
    assert world.begin(task.name, "w2").due_time_us == 0
    world.clock.advance(1_000)
    assert world.begin(task.name, "w2").due_time_us == first.due_time_us
    late = lake.client.end_periodic_run(task.message.task_id, first.due_time_us, "w1", error="it was slow")
    assert (late.worker, late.error) == ("w2", ""), "the run is another worker's"
    assert isinstance(run_attempt(lake, first, "w2"), object)
    assert world.dues(space) == Counter([first.due_time_us])


def test_a_failure_is_in_the_history_and_the_run_is_tried_again(world: World) -> None:
    lake, space = world.lake, world.space()
    lake.create_table(f"{space}.other", "id bigint")
    task = lake.create_periodic_task(
        f"{space}.count", f"INSERT INTO {space}.log SELECT now(), max(id) FROM {space}.other", schedule="every minute"
    )
    lake.table(f"{space}.other").rename_column("id", "key")
    scheduler = TaskScheduler(lake)

    def passes() -> list[str]:
        names: list[str] = []
        while found := scheduler.run_once():
            scheduler.wait()
            names += found
        return [name for name in names if name == task.name]

    assert passes() == []
    world.clock.advance(60_000)
    assert passes() == [task.name]
    assert "id" in task.refresh().error
    assert passes() == [], "it rests"
    world.clock.advance(5_000)
    assert passes() == [task.name]
    lake.table(f"{space}.other").rename_column("key", "id")
    world.clock.advance(10_000)
    assert passes() == [task.name]
    [run] = task.refresh().history()
    assert (run.outcome, run.attempts, run.rows, task.error) == ("done", 3, 1, "")
    lake.drop_table(f"{space}.other")
    for _ in range(4):
        world.clock.advance(60_000)
        passes()
    assert outcomes(lake, task.name) == ["failed", "done"]
    lake.create_table(f"{space}.other", "id bigint")
    with pytest.raises(InputError, match="PERIODIC_TABLE_REPLACED"):
        task.run()


@pytest.mark.parametrize("mode", ["latest", "changes"])
def test_a_statement_reads_each_change_once_by_a_cursor(world: World, mode: str) -> None:
    lake, space = world.lake, world.space()
    orders, name = lake.table(f"{space}.orders"), f"{space}.follow"
    lake.create_table(f"{space}.copy", "id bigint, amount bigint, kind string, version bigint")
    insert = f"""INSERT INTO {space}.copy SELECT id, amount, _change_type, _commit_version
      FROM changes('{space}.orders', 'etl', '{mode}') WHERE id > 0"""
    with pytest.raises(InputError, match="has no cursor etl"):
        lake.create_periodic_task(name, insert, schedule="every minute")
    world.order(space, 1)
    cursor = orders.cursor("etl")  # after the first order
    task = lake.create_periodic_task(name, insert, schedule="every minute", when=f"HAS_DATA('{space}.orders', 'etl')")
    world.clock.advance(60_000)
    assert world.begin(name, "w").due_time_us == 0
    world.order(space, 0)
    assert task.run().version == 0, "no rows, no commit"
    assert cursor.refresh().version == 2, "but it has read them"
    world.order(space, 2, 3)
    world.clock.advance(60_000)
    begun = world.begin(name, "w")
    ids = frozenset([begun.task.table_id, *begun.task.source_ids])
    for _ in range(2):  # doubled
        run_statement(lake, begun.task.statement, ids, begun.app_id, begun.due_time_us, name)
    assert cursor.refresh().version == 3
    world.clock.advance(LEASE_MS)
    orders.delete("id = 2")
    world.clock.advance(60_000)
    run_attempt(lake, world.begin(name, "v"), "v")
    assert cursor.refresh().version == 4
    rows = lake.table(f"{space}.copy").to_arrow().to_pylist()
    deleted = [(2, "delete", 4)] if mode == "changes" else []
    found = sorted((row["id"], row["kind"], row["version"]) for row in rows)
    assert found == [*deleted, (2, "insert", 3), (3, "insert", 3)]
    world.clock.advance(60_000)
    assert world.begin(name, "w").due_time_us == 0
    assert outcomes(lake, name) == ["skipped", "done", "done", "done", "skipped"]


def test_a_merge_follows_a_table_by_a_cursor(world: World) -> None:
    lake, space = world.lake, world.space()
    orders = lake.table(f"{space}.orders")
    copy = lake.create_table(f"{space}.copy", "id bigint, amount bigint", primary_key=["id"])
    orders.cursor("etl")
    merge = f"""MERGE INTO {space}.copy AS t
      USING (SELECT * FROM changes('{space}.orders', 'etl', 'changes') WHERE _change_type <> 'update_preimage') AS s
      ON t.id = s.id WHEN MATCHED AND s._change_type = 'delete' THEN DELETE
      WHEN MATCHED THEN UPDATE SET amount = s.amount
      WHEN NOT MATCHED AND s._change_type <> 'delete' THEN INSERT (id, amount) VALUES (s.id, s.amount)"""
    task = lake.create_periodic_task(f"{space}.follow", merge, schedule="every minute")
    for step in (lambda: world.order(space, 1, 2, 3), lambda: orders.update({"amount": 9}, "id = 1"), orders.truncate):
        step()
        task.run()
        expected = orders.to_arrow(columns=["id", "amount"]).sort_by("id").to_pylist()
        assert copy.to_arrow().sort_by("id").to_pylist() == expected


def test_metrics_count_tasks_and_say_how_late_they_are(tmp_path: Path) -> None:
    with warehouse(tmp_path) as found:
        readings, lake = found.service.operators.metrics.readings, Lake(found.client, str(found.folder), None)
        lake.create_table("shop.orders", "id bigint")
        statement = "DELETE FROM shop.orders WHERE id = 1"
        task = lake.create_periodic_task(
            "shop.clean", statement, schedule="every minute", when="HAS_DATA('shop.orders')"
        )
        assert (readings[PERIODIC_TASKS](), readings[PERIODIC_LATE_SECONDS]()) == (1, 0)
        found.clock.advance(90_000)
        assert readings[PERIODIC_LATE_SECONDS]() == pytest.approx(30, abs=1)
        found.client.begin_periodic_run(task.message.task_id, "w")
        assert (readings[PERIODIC_RUNS](), readings[PERIODIC_LATE_SECONDS]()) == ({"skipped": 1}, 0)


def test_runs_without_data_are_skipped_and_need_no_worker(world: World) -> None:
    lake, space = world.lake, world.space()
    when = f"HAS_DATA('{space}.orders')"
    task = lake.create_periodic_task(f"{space}.noted", NOTE.format(space), schedule="every minute", when=when)
    for _ in range(3):
        world.clock.advance(60_000)
        assert world.begin(task.name, "w").due_time_us == 0
    [run] = task.history()
    assert (run.outcome, run.skips, run.worker) == ("skipped", 3, "")
    world.order(space, 1)
    world.clock.advance(60_000)
    begun = world.begin(task.name, "w")
    world.order(space, 2)  # what comes while it runs may not be in its rows
    run_attempt(lake, begun, "w")
    lake.table(f"{space}.orders").compact()
    world.clock.advance(60_000)
    again = world.begin(task.name, "w")
    run_attempt(lake, again, "w")
    lake.table(f"{space}.orders").compact()
    world.clock.advance(60_000)
    assert world.begin(task.name, "w").due_time_us == 0, "a compaction is no data"
    assert outcomes(lake, task.name) == ["skipped", "done", "done", "skipped"]


# -- rights, processes -------------------------------------------------------------------------------------------------


def test_a_run_needs_the_rights_of_the_owner_as_they_are_then(tmp_path: Path) -> None:
    with guarded(tmp_path / "data") as guards:
        guards.owner.call("CatalogService/CreateNamespace", name="shop", request_id=new_uuid7())
        address, files = f"laketx://{guards.service.address}", str(tmp_path / "files")

        def lake_of(user: str, role: str = "") -> Lake:
            if role:
                guards.grant(f"user:{user}", role, namespace="shop")
            return connect(address, warehouse=files, credentials=Credentials(token=guards.token(user)))

        statement = "INSERT INTO shop.log SELECT now() AS due, count(*) AS n FROM shop.orders"
        with lake_of("amy", "maintainer") as amy, lake_of("ana", "reader") as ana:
            amy.create_table("shop.orders", "id bigint")
            log = amy.create_table("shop.log", "due timestamp, n bigint")
            with pytest.raises(DeniedError, match="ROLE_MISSING"):
                ana.create_periodic_task("shop.noted", statement, schedule="every hour")
            guards.grant("user:ana", "writer", table_id=log.table_id)
            task = ana.create_periodic_task("shop.noted", statement, schedule="every hour")
            assert task.run().outcome == "done"
            assert amy.periodic_task("shop.noted").run().outcome == "done"
            with lake_of("ben") as ben:
                assert ben.periodic_tasks() == []
                with pytest.raises(NotFoundError, match="PERIODIC_TASK_UNKNOWN"):
                    ben.periodic_task("shop.noted")
                guards.grant("user:ben", "writer", namespace="shop")
                assert ben.periodic_task("shop.noted").owner == "ana"
                with pytest.raises(DeniedError, match="ROLE_MISSING"):
                    ben.periodic_task("shop.noted").suspend()
            guards.grant("user:ana", "reader", table_id=log.table_id)
            with pytest.raises(InputError, match=r"ana needs the role writer on shop\.log"):
                amy.periodic_task("shop.noted").run()
            assert len(log.to_arrow()) == 2


def test_a_statement_in_sparks_sql_waits_for_a_worker_with_spark(world: World) -> None:
    lake, space = world.lake, world.space()
    log_id, orders_id = (lake.table(f"{space}.{name}").table_id for name in ("log", "orders"))
    definition = pb.PeriodicTask(
        name=f"{space}.spark",
        statement=NOTE.format(space),
        engine=pb.PERIODIC_ENGINE_SPARK,
        operation=common_pb2.OPERATION_INSERT,
        table_id=log_id,
        source_ids=[orders_id],
        schedule="every minute",
        conditions=[pb.HasData(table_id=orders_id)],
    )
    lake.client.put_periodic_task(definition)
    task = lake.periodic_task(definition.name)
    task_id = task.message.task_id

    def begin() -> pb.BeginPeriodicRunResponse:
        return lake.client.begin_periodic_run(task_id, "s", [pb.PERIODIC_ENGINE_DUCKDB, pb.PERIODIC_ENGINE_SPARK])

    world.clock.advance(60_000)
    assert task.refresh().waits_for == "", "nothing is there to run for"
    assert world.begin(task.name, "w").due_time_us == 0
    world.order(space, 1)
    world.clock.advance(60_000)
    assert task.refresh().waits_for == "a worker with Spark: laketx worker --spark"
    assert world.begin(task.name, "w").due_time_us == 0
    assert (task.refresh().message.attempts, task.message.failures, task.error) == (0, 0, ""), "left alone"
    failed = begin().due_time_us
    assert (failed > 0, task.refresh().waits_for) == (True, "")
    assert world.begin(task.name, "s").due_time_us == failed, "a renewal"
    lake.client.end_periodic_run(task_id, failed, "s", error="no executors")
    world.clock.advance(10_000)
    assert [world.begin(task.name, "w").due_time_us, begin().due_time_us] == [0, failed]
    lake.client.end_periodic_run(task_id, failed, "s", rows=3, version=1)
    assert [(run.outcome, run.engine, run.attempts) for run in task.history()] == [
        ("done", "spark", 2),
        ("skipped", "", 0),
    ]
    state = world.state()
    assert State(state.store).periodic.tasks == state.periodic.tasks
    definition.engine = 9  # type: ignore[assignment]
    with pytest.raises(InvalidError, match="PERIODIC_ENGINE_INVALID"):
        lake.client.put_periodic_task(definition)


def test_a_worker_runs_tasks(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        lake.create_table("shop.orders", "id bigint")
        lake.create_table("shop.log", "due timestamp, n bigint")
        task = lake.create_periodic_task("shop.noted", NOTE.format("shop"), schedule="every hour")
        lake.client.ask_periodic_run("shop.noted")
        assert companions_of(lake, vectors=False, key_index=False, views=False, periodic=False) == []
        [scheduler] = companions_of(lake, vectors=False, key_index=False, views=False)
        scheduler.start()
        deadline = time.monotonic() + WAIT_S
        while not task.history():
            assert time.monotonic() < deadline, "no worker ran it"
            time.sleep(0.1)
        scheduler.stop(WAIT_S)
        [run] = task.history()
    assert (run.outcome, run.requested, run.rows) == ("done", True, 1)


@pytest.mark.long
def test_workers_that_are_killed_run_each_due_run_once(tmp_path: Path) -> None:
    rng = random.Random(5)
    words = [sys.executable, "-m", "laketx.commands.worker", "--no-vectors", "--no-views", "--no-key-index"]
    with (
        service(tmp_path / "data", "--lease-ms", "1000") as (running, _),
        connect(f"laketx://{running.address}", warehouse=str(tmp_path / "files")) as lake,
    ):
        lake.create_table("shop.orders", "id bigint")
        log = lake.create_table("shop.log", "due timestamp, n bigint")
        task = lake.create_periodic_task("shop.noted", NOTE.format("shop"), schedule="every hour")
        due: set[int] = set()
        kills = 0

        def work(until: Callable[[], bool]) -> None:
            nonlocal kills
            files = str(tmp_path / "files")
            worker = subprocess.Popen([*words, "--server", running.address, "--warehouse", files], cwd=ROOT)
            try:
                deadline = time.monotonic() + WAIT_S
                while not until():
                    assert time.monotonic() < deadline, "the run did not end"
                    time.sleep(0.005)
            finally:
                kills += 1
                worker.kill()
                worker.wait(WAIT_S)

        for _ in range(10):
            asked = lake.client.ask_periodic_run("shop.noted").due_time_us
            due.add(asked)
            version = log.refresh().meta.head_version

            def is_begun() -> bool:
                return bool(task.refresh().message.worker) or not task.message.run_time_us

            def is_committed(version: int = version) -> bool:
                return log.refresh().meta.head_version > version

            work(rng.choice([is_begun, is_committed, lambda: not task.refresh().message.run_time_us]))
        work(lambda: not task.refresh().message.run_time_us)
        counts = Counter(_us(row["due"]) for row in log.to_arrow().to_pylist())
        assert counts == Counter(due)
        assert sorted(_us(run.due) for run in task.history() if run.outcome == "done") == sorted(due)
        assert kills == 11
