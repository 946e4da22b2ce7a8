"""Policies are evaluated after commits, when something comes of age, and when the schedule says so."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from metaservice.core.compaction.plans import TaskPlan
from metaservice.core.compaction.tasks import Task
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import Change, Entry, FileKind, Operation, Principal, Scope
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.schema import Column
from metaservice.service.commit.requests import Append, Begin, CommitRequest, Intent
from metaservice.service.commit.transactions import Transactions
from metaservice.service.compaction.layouts import LOOKS_MAX, Layouts, Waits
from metaservice.service.compaction.maintenance import Claim, Maintenance
from metaservice.service.compaction.scheduling import REST_TIMES, Scheduler
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.service.decider.views import TableView
from metaservice.service.table.catalog import Catalog
from metaservice.store.engines.memory import MemoryStore
from tests.simulation.world import START_US, Clock

WHO = Principal("tests")
HOUR_US = 3_600_000_000
MIB = 1 << 20


class Lake:
    """The service's parts on a memory store, with a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore()
        self.rng = random.Random(1)
        self.events: list[str] = []
        self.decider = Decider(lambda: State(self.store), lambda: self.maintenance.tick(), _never)  # noqa: PLW0108 - it is made later
        self.transactions = Transactions(self.decider, self.clock, 60_000, 10**12, 0)
        self.catalog = Catalog(self.decider, self.transactions, self.clock)
        self.maintenance = Maintenance(
            self.decider,
            self.transactions,
            self.clock,
            10,
            10**12,
            self.uuid,
            lambda name, **_: self.events.append(name),
        )
        self.layouts = Layouts(self.decider, lambda: None)
        self.scheduler = self.fresh_scheduler()
        self.decider.start()

    def fresh_scheduler(self) -> Scheduler:
        return Scheduler(
            self.decider,
            self.maintenance.queue,
            self.layouts,
            self.clock,
            0,
            lambda name, **_: self.events.append(name),
        )

    def uuid(self) -> str:
        tail = self.rng.getrandbits(74)
        number = (self.clock.us // 1000) << 80 | 7 << 76 | (tail >> 62) << 64 | 2 << 62 | tail & (1 << 62) - 1
        return str(UUID(int=number))

    def create(self, profile: Profile = Profile.MAXCOMPUTE, **properties: str) -> TableState:
        named = {f"compaction.{name.replace('_', '.')}": value for name, value in properties.items()}
        table_id = self.uuid()
        columns = (Column("id", "bigint", False), Column("p", "int", False))
        partitioning = Partitioning((("p", "int"),))
        meta = TableMeta(table_id, "t", partitioning, ("id",), 2, profile, 1, named, frozenset(), "", columns, 0, "t")
        self.decider.call(lambda: self.catalog.create(meta, WHO))
        return self.decider.state.tables[table_id]

    def file(self, txn_id: str, partition: str, bucket: int, size: int, kind: FileKind) -> Entry:
        path = f"{txn_id}/{self.rng.random()}"
        return Entry(path, partition, bucket, kind, 10, size, path.encode())

    def insert(self, table: TableState, partition: str = "p=0", bucket: int = 0, size: int = MIB) -> None:
        txn_id = self.uuid()
        added = [self.file(txn_id, partition, bucket, size, FileKind.DELTA)]
        request = Append(txn_id, table.meta.table_id, 0, WHO, "", b"d", added)
        self.decider.call(lambda: self.transactions.appends.append(request))
        self.pass_time(1_000_000)

    def overwrite(self, table: TableState, partition: str) -> None:
        scope = Scope(frozenset({partition}))
        self.commit(table, Change(table.meta.table_id, Operation.OVERWRITE, 0, scope=scope), self.uuid())

    def commit(self, table: TableState, change: Change, txn_id: str) -> None:
        begin = Begin(txn_id, (Intent(table.meta.table_id, change.operation),), WHO, "", b"b")
        self.decider.call(lambda: self.transactions.begin(begin))
        self.decider.call(lambda: self.transactions.commit(CommitRequest(txn_id, (change,), ((None, None),), b"c")))

    def compact(self, table: TableState, plan: TaskPlan) -> None:
        txn_id = self.uuid()
        kind = FileKind.DELTA if plan.operation is Operation.MINOR_COMPACT else FileKind.BASE
        adds = [self.file(txn_id, group.partition, group.bucket, group.size_bytes, kind) for group in plan.groups]
        groups = tuple(replace(g, outputs=(e.path,)) for g, e in zip(plan.groups, adds, strict=True))
        self.commit(table, Change(table.meta.table_id, plan.operation, 0, adds=adds, groups=groups), txn_id)

    def pass_time(self, us: int) -> None:
        self.clock.us += us
        self.clock.ms += us // 1000

    def tasks(self) -> list[Task]:
        return list(self.decider.state.tasks.tasks.values())

    def view(self, table: TableState) -> TableView:
        found = self.decider.state.views.find(table.meta.table_id)
        assert found is not None
        return found

    def plans(self, layouts: Layouts, table: TableState) -> list[TaskPlan]:
        return layouts.all_tasks(self.view(table), self.clock.us, frozenset())


def _never(error: BaseException) -> None:
    raise error


@pytest.fixture
def lake() -> Iterator[Lake]:
    found = Lake()
    yield found
    found.decider.stop()


def test_a_commit_is_enough(lake: Lake) -> None:
    table = lake.create(minor_files="3")
    for count in range(1, 4):
        lake.insert(table)
        lake.scheduler.round()
        assert len(lake.tasks()) == (count == 3)
    lake.insert(table)
    lake.scheduler.round()
    (task,) = lake.tasks()
    assert (task.operation, task.reason) == (Operation.MINOR_COMPACT, "3 delta files")
    claimed = lake.decider.call(lambda: lake.maintenance.claim(Claim(lake.uuid(), WHO)))
    assert isinstance(claimed, Task)
    assert claimed.read_version == 4
    assert lake.events == []


def test_time_is_enough(lake: Lake) -> None:
    table = lake.create()
    for _ in range(2):
        lake.insert(table)
    lake.scheduler.round()
    assert lake.tasks() == []
    lake.pass_time(HOUR_US)
    lake.scheduler.round()
    (task,) = lake.tasks()
    assert task.reason == "2 delta files, no base file"
    assert task.operation is Operation.MAJOR_COMPACT  # the partition has been quiet


def test_what_nobody_writes_to_is_tidied_up_soon(lake: Lake) -> None:
    table = lake.create(major_quiet_minutes="0")
    lake.insert(table)
    lake.pass_time(HOUR_US // 120)
    lake.insert(table)
    lake.pass_time(HOUR_US // 120)
    lake.scheduler.round()
    assert lake.tasks() == []
    lake.pass_time(HOUR_US // 120)
    lake.scheduler.round()
    (task,) = lake.tasks()
    assert (task.operation, task.reason) == (Operation.MAJOR_COMPACT, "2 delta files, and no recent writes")


def test_switched_off_nothing_is_planned(lake: Lake) -> None:
    table = lake.create(minor_files="2", enabled="false")
    for _ in range(3):
        lake.insert(table)
    lake.scheduler.round()
    assert lake.tasks() == []


def test_the_schedule_plans_whatever_the_thresholds_say(lake: Lake) -> None:
    """START_US is 2027-01-15 08:00 UTC."""
    assert START_US // 1_000_000 % 86_400 == 8 * 3_600
    table = lake.create(schedule="30 8 * * * minor", minor_age_minutes="0", settle_minutes="0")
    for _ in range(2):
        lake.insert(table)
    lake.scheduler.round()
    assert lake.tasks() == []
    lake.pass_time(HOUR_US // 2)
    lake.scheduler = lake.fresh_scheduler()  # as after a restart: what was due meanwhile is done once
    for _ in range(2):
        lake.scheduler.round()
        (task,) = lake.tasks()
        assert task.reason == "2 delta files"
    lake.decider.call(lambda: lake.maintenance.cancel(task.task_id, "done"))
    lake.pass_time(HOUR_US)
    lake.scheduler.round()
    assert lake.tasks() == []


def test_windows_hold_back_what_nobody_asked_for(lake: Lake) -> None:
    table = lake.create(minor_files="2", windows="22:00-23:00")
    for _ in range(2):
        lake.insert(table)
    lake.scheduler.round()
    assert len(lake.tasks()) == 1
    assert lake.decider.call(lambda: lake.maintenance.claim(Claim(lake.uuid(), WHO))) is None
    lake.pass_time(14 * HOUR_US)
    assert lake.decider.call(lambda: lake.maintenance.claim(Claim(lake.uuid(), WHO))) is not None


@pytest.mark.parametrize("seed", range(6))
def test_looking_where_it_changed_finds_what_looking_at_all_finds(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    profile = Profile.MAXCOMPUTE if seed % 2 else Profile.DELTA_SERIALIZABLE
    table = lake.create(profile, minor_files="3", cluster_files="2")
    for _ in range(60):
        partition, bucket = f"p={rng.randrange(4)}", rng.randrange(2)
        dice = rng.random()
        if dice < 0.06:
            lake.overwrite(table, partition)
        elif dice < 0.25 and (plans := lake.plans(lake.layouts, table)):
            lake.compact(table, rng.choice(plans))
        else:
            lake.insert(table, partition, bucket, rng.choice((1_000, MIB, 90 * MIB, 200 * MIB)))
        if rng.random() < 0.1:
            lake.pass_time(rng.choice((HOUR_US, 30 * HOUR_US)))
        if rng.random() < 0.6:
            assert lake.plans(lake.layouts, table) == lake.plans(Layouts(lake.decider, lambda: None), table)


def test_waits_are_as_many_as_partitions() -> None:
    """However often what one waits for changes; and each is told once, when that has come."""
    waits = Waits()
    for version in range(1_000):
        for partition in ("a", "b"):
            waits.put(partition, version)
    assert sum(map(len, waits.queues.values())) == 2
    waits.put("b", 10)
    waits.drop("a")
    waits.put("c", 20)
    assert (list(waits.take(9)), list(waits.take(10)), list(waits.take(998))) == ([], ["b"], ["c"])
    waits.put("a", 1_000)
    assert (list(waits.take(999)), list(waits.take(1_000)), list(waits.take(2_000))) == ([], ["a"], [])
    assert (waits.versions, waits.queued, waits.queues, waits.order) == ({}, {}, {}, [])


def test_a_full_queue_is_not_looked_at_all_the_time(lake: Lake) -> None:
    table = lake.create(minor_files="2")
    for _ in range(2):
        lake.insert(table)
    assert lake.layouts.best(lake.view(table), lake.clock.us, 0, frozenset()) == ([], False)
    found, has_more = lake.layouts.best(lake.view(table), lake.clock.us, 2, frozenset())
    assert (len(found), has_more) == (1, False)


def test_what_is_guessed_at_first_is_all_planned_in_the_end(lake: Lake) -> None:
    table = lake.create(Profile.DELTA_SERIALIZABLE, minor_files="2")
    partitions = {f"p={number:03}" for number in range(2 * LOOKS_MAX)}
    for partition in partitions:
        for _ in range(2 + (partition == "p=007")):
            lake.insert(table, partition, 0, MIB)
    layouts, busy = Layouts(lake.decider, lambda: None), set[tuple[str, int]]()
    (first,), has_more = layouts.best(lake.view(table), lake.clock.us, 1, busy)
    assert (first.groups[0].partition, has_more) == ("p=007", True)  # where there is most to gain
    while has_more:
        found, has_more = layouts.best(lake.view(table), lake.clock.us, 50, busy)
        busy.update(plan.groups[0].place for plan in found)
    assert busy == {(partition, 0) for partition in partitions}
    every = lake.plans(Layouts(lake.decider, lambda: None), table)
    assert {plan.groups[0].place for plan in every} == busy
    assert lake.plans(layouts, table) == every


def test_a_look_that_takes_long_and_finds_nothing_is_seldom_repeated(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create(minor_files="6")
    looks: list[int] = []
    best = lake.layouts.best

    def take_long(*asked: Any) -> tuple[list[TaskPlan], bool]:
        looks.append(table.head)
        lake.clock.ms += 500
        return best(*asked)

    monkeypatch.setattr(lake.layouts, "best", take_long)
    for _ in range(5):
        lake.insert(table)  # a second passes
        lake.scheduler.round()
    assert looks == [1]
    lake.pass_time(REST_TIMES * 500_000)
    lake.insert(table)
    lake.scheduler.round()
    assert looks == [1, 6]
    assert len(lake.tasks()) == 1
    lake.insert(table)
    lake.scheduler.round()  # that one found something
    assert looks == [1, 6, 7]
