"""Spark jobs at once, in threads and in processes; tasks that fail; drivers that are killed.

The processes share one service. In `make test` one other driver plays all its parts, and is killed at the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from laketx import Lake, Table, connect
from metaservice.client import BlockedError
from protos.laketx.v1 import transaction_pb2
from tests.spark.jobs import SCHEMA, Done, Job, State, attempt, explained, random_jobs, replay, run
from tests.spark.processes import Cluster, Driver, Place, wait_until
from tests.spark.reading import union
from tests.spark.stored import staged_folders, stored_rows

PROFILES = ["maxcompute", "delta_serializable", "delta_write_serializable", "row_level"]
BEGIN: State = {number: (number, "ab"[number % 2]) for number in range(8)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("drivers"))
    yield made
    made.service.kill()


@pytest.fixture(scope="module")
def lake(place: Place, spark: SparkSession) -> Iterator[Lake]:
    with connect(f"laketx://{place.address}", spark, user="tests", warehouse=place.warehouse) as made:
        yield made


@pytest.fixture(scope="module")
def drivers(place: Place) -> Iterator[Callable[[int], list[Driver]]]:
    """As many that live; those that have been killed are replaced."""
    made: list[Driver] = []

    def living(many: int) -> list[Driver]:
        alive = [one for one in made if one.process.poll() is None]
        fresh = [Driver(place) for _ in range(many - len(alive))]
        made.extend(fresh)
        return [*alive, *fresh][:many]

    yield living
    for one in made:
        if one.process.poll() is None:
            one.kill()


@pytest.fixture(scope="module", autouse=True)
def _early(drivers: Callable[[int], list[Driver]]) -> None:
    """The first starts while others work."""
    drivers(1)


def make(lake: Lake, name: str, profile: str, *, keyed: bool, rows: State = BEGIN, parted: bool = True) -> Table:
    table = lake.create_table(
        name,
        SCHEMA,
        primary_key=["id"] if keyed else [],
        buckets=2 if keyed else None,
        partition_by=["day"] if parted else [],
        key_scope="partition" if keyed else None,
        profile=profile,
    )
    table.insert(lake.spark.createDataFrame([(one, *rest) for one, rest in rows.items()], SCHEMA).coalesce(1))
    return table


def content(table: Table, version: int | None = None) -> State:
    rows = stored_rows(table, version)
    found = {row["id"]: (row["amount"], row["day"]) for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """The answers of works that run at the same time; raises what one of them raised."""
    answers: list[Any] = [None] * len(works)
    failures: list[BaseException] = []

    def do(at: int) -> None:
        try:
            answers[at] = works[at]()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=do, args=[at]) for at in range(len(works))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failures:
        raise failures[0]
    return answers


def check_serial(table: Table, done: Sequence[Done], begin: State = BEGIN) -> None:
    """Every version is explained by an order of the jobs up to it, and there are no others."""
    assert sorted(one.version for one in done) == list(range(2, table.refresh().meta.head_version + 1))
    for version in range(1, table.meta.head_version + 1):
        so_far = [one for one in done if one.version <= version]
        assert explained(begin, so_far, content(table, version), table.meta.profile), (version, so_far)


# -- at once -----------------------------------------------------------------------------------------------------------


def check_race(lake: Lake, name: str, profile: str, seed: int, *, keyed: bool, threads: int, jobs: int) -> None:
    table = make(lake, name, profile, keyed=keyed)
    lists = [random_jobs(random.Random(seed * 100 + one), 100 * (one + 1), jobs) for one in range(threads)]
    policies = ["rerun", "fail", "rerun"]
    works = [
        lambda at=at, one=one: attempt(lake.table(name), one, on_conflict=policies[at % 3])
        for at, one in enumerate(lists)
    ]
    check_serial(table, [one for found in at_once(works) for one in found])


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
def test_jobs_at_once_have_an_order(lake: Lake, profile: str) -> None:
    keyed = profile in ("delta_serializable", "row_level")
    check_race(lake, f"race.{profile}", profile, 1, keyed=keyed, threads=3, jobs=2)


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_jobs_at_once_have_an_order(lake: Lake, profile: str, keyed: bool, seed: int) -> None:
    check_race(lake, f"race.{profile}_{keyed}_{seed}", profile, seed, keyed=keyed, threads=3, jobs=3)


def payments(chance: random.Random, many: int) -> list[Job]:
    found = []
    for _ in range(many):
        payer, payee = chance.sample(sorted(BEGIN), 2)
        amount = chance.randint(1, 9)
        found.append({"do": "pay", "sums": [[payer, -amount], [payee, amount]]})
    return found


def check_bank(table: Table, paid: Sequence[Done]) -> None:
    """All is paid once, and every version balances."""
    state = BEGIN
    for one in sorted(paid, key=lambda one: one.version):
        state = replay(state, one.job)
        assert content(table, one.version) == state
    sums = {
        version: sum(amount for amount, _ in BEGIN.values())
        for version in range(1, table.refresh().meta.head_version + 1)
    }
    frames = [table.read(version=version).select(sf.lit(version), "amount") for version in sums]
    found = dict.fromkeys(sums, 0)
    for version, amount in union(frames).collect():
        found[version] += amount
    assert found == sums


@pytest.mark.long
@pytest.mark.parametrize("profile", [PROFILES[0], *(pytest.param(one, marks=pytest.mark.long) for one in PROFILES[1:])])
def test_a_bank_of_two_drivers_balances(lake: Lake, drivers: Callable[[int], list[Driver]], profile: str) -> None:
    check_bank_at_work(
        lake, drivers(1), f"bank.{profile}", profile, keyed=profile != "delta_serializable", payments_each=2
    )


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_bank_of_many_drivers_balances(
    lake: Lake, drivers: Callable[[int], list[Driver]], profile: str, keyed: bool
) -> None:
    check_bank_at_work(lake, drivers(2), f"bank.{profile}_{keyed}", profile, keyed=keyed, payments_each=5)


def check_bank_at_work(
    lake: Lake, others: list[Driver], name: str, profile: str, *, keyed: bool, payments_each: int
) -> None:
    table = make(lake, name, profile, keyed=keyed, parted=False)
    ways = [
        lambda one=one: [
            Done(**done)
            for done in one.answer(
                one.tell("jobs", table=name, jobs=payments(random.Random(name), payments_each), on_conflict="rerun")
            )["done"]
        ]
        for one in others
    ]
    over = threading.Event()
    seen: list[int] = []

    def look() -> None:
        while not over.is_set():
            seen.append(lake.table(name).read().agg(sf.sum("amount")).head()[0])  # type: ignore[index]

    def pay() -> list[Done]:
        try:
            return attempt(lake.table(name), payments(random.Random(name + "!"), payments_each), on_conflict="rerun")
        finally:
            over.set()

    *paid, _ = at_once([*ways, pay, look])
    done = [one for found in paid for one in found]
    assert set(seen) == {sum(amount for amount, _ in BEGIN.values())}
    assert len(done) == payments_each * (len(others) + 1)
    check_bank(table, done)


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
def test_jobs_of_several_drivers_have_an_order(
    lake: Lake, drivers: Callable[[int], list[Driver]], profile: str
) -> None:
    name = f"race.drivers_{profile}"
    table = make(lake, name, profile, keyed=profile == "maxcompute")
    others = drivers(2)
    lists = [random_jobs(random.Random(one), 100 * (one + 1), 3) for one in range(3)]
    works = [
        lambda one=one, jobs=jobs: [
            Done(**done) for done in one.answer(one.tell("jobs", table=name, jobs=jobs, on_conflict="rerun"))["done"]
        ]
        for one, jobs in zip(others, lists[1:], strict=True)
    ]
    found = at_once([lambda: attempt(lake.table(name), lists[0], on_conflict="rerun"), *works])
    check_serial(table, [one for listed in found for one in listed])


# -- tasks that fail ---------------------------------------------------------------------------------------------------


INSERT = "INSERT INTO {{lake}}.{table} SELECT * FROM {{rows}}"
MERGE = (
    "MERGE INTO {{lake}}.{table} t USING {{rows}} s ON t.id = s.id "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
)


def by(statement: str, table: Table) -> dict[str, str]:
    """A write by this statement of Spark SQL, or by Python."""
    return {"sql": statement.format(table=table.name)} if statement else {}


@pytest.mark.parametrize(
    ("keyed", "statement"),
    [
        (False, INSERT),
        pytest.param(False, "", marks=pytest.mark.long),
        pytest.param(True, "", marks=pytest.mark.long),
        pytest.param(True, MERGE, marks=pytest.mark.long),
    ],
)
def test_a_task_that_is_tried_again_doubles_no_row(
    lake: Lake, drivers: Callable[[int], list[Driver]], tmp_path: Path, keyed: bool, statement: str
) -> None:
    table = make(lake, f"retry.{keyed}_{statement[:5]}", "", keyed=keyed, parted=not statement)
    [one] = drivers(1)
    mark = tmp_path / "mark"
    told = one.tell("stumble", table=table.name, mark=str(mark), first_id=1_000, **by(statement, table))
    assert one.answer(told)["version"] == 2
    assert mark.exists()
    assert set(content(table)) == {*BEGIN, *range(1_000, 1_200)}
    assert table.read().count() == len(BEGIN) + 200


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
def test_a_task_that_runs_twice_doubles_no_row(lake: Lake, place: Place, tmp_path: Path, keyed: bool) -> None:
    """A slow task and the copy that Spark starts of it both come to their ends."""
    table = make(lake, f"twice.{keyed}", "", keyed=keyed)
    with ExitStack() as ends:
        cluster = Cluster(tmp_path)
        ends.callback(cluster.kill)
        driver = Driver(place, cluster.address)
        ends.callback(driver.kill)
        mark = str(tmp_path / "mark")
        told = driver.tell("straggle", table=table.name, mark=mark, first_id=1_000)
        assert driver.answer(told)["version"] == 2
    assert (tmp_path / "mark-again").exists()
    assert set(content(table)) == {*BEGIN, *range(1_000, 1_200)}


# -- drivers that are killed -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_driver_killed_anywhere_leaves_whole_versions(
    lake: Lake, drivers: Callable[[int], list[Driver]], tmp_path: Path
) -> None:
    """In the middle of a task; with files staged and registered, on either side of a commit; with a version read."""
    [driver] = drivers(1)
    tables = {
        name: make(lake, f"killed.{name}", "", keyed=name in ("upsert", "one", "done_one"), parted=name == "upsert")
        for name in ("task", "sql", "upsert", "delete", "one", "two", "done_one", "done_two", "done", "read")
    }
    made = "CREATE TABLE {{lake}}.killed.made AS SELECT * FROM {{rows}}"
    jobs: dict[str, Job] = {
        "upsert": {"do": "merge", "rows": [[2, 100, "a"], [50, 5, "b"]]},
        "delete": {"do": "delete", "day": "a", "rest": 0},
        "done": {"do": "move", "from": "a", "to": "b", "rest": 0},
    }

    def stop(at: str, name: str, other: str = "") -> int:
        other_name = tables[other].name if other else ""
        return driver.tell("stop", at=at, table=tables[name].name, other=other_name, job=jobs.get(name), mark=str(mark))

    def stick(name: str, statement: str = "") -> None:
        """In its last task, most of its rows written."""
        within = tmp_path / f"in_{name}_{statement[:6]}"
        sql = by(statement, tables[name])
        driver.tell("stop", at="task", table=tables[name].name, mark=str(within), **sql)
        wait_until(within.exists)

    mark = tmp_path / "mark"
    stops = [stop("before", "upsert"), stop("before", "delete"), stop("before", "one", "two")]
    stops += [stop("after", "done"), stop("after", "done_one", "done_two"), stop("read", "read")]
    for one in stops:
        driver.answer(one)
    for name, statement in (("task", ""), ("sql", INSERT), ("sql", made)):
        stick(name, statement)
    open_ids = {one.txn_id for one in open_transactions(lake)}
    assert len(open_ids) in (4, 5, 6)  # an INSERT begins with its commit, or after ten seconds
    hidden = lake.client.get_transaction(next(iter(open_ids - known_by(lake, tables.values())))).tables[0].table_id
    assert pinned(lake, tables["read"], by="driver")
    driver.kill()

    paid = replay(BEGIN, {"do": "pay", "sums": [[1, -10]]}), replay(BEGIN, {"do": "pay", "sums": [[1, 10]]})
    expected = dict.fromkeys(tables, BEGIN)
    expected |= {"done": replay(BEGIN, jobs["done"]), "done_one": paid[0], "done_two": paid[1]}
    frames = [table.refresh().read().select(sf.lit(name), "id", "amount", "day") for name, table in tables.items()]
    shown: dict[str, State] = {name: {} for name in tables}
    for name, number, amount, day in union(frames).collect():
        shown[name][number] = (amount, day)
    assert shown == expected
    assert {name: content(table) for name, table in tables.items()} == expected

    again = run(lake.table(tables["upsert"].name), jobs["upsert"])  # who is dead is in nobody's way
    assert (again.version, content(tables["upsert"])) == (2, replay(BEGIN, jobs["upsert"]))
    wait_until(lambda: not open_transactions(lake))
    with pytest.raises(BlockedError, match="TABLE_DROPPED"):  # the table in the making went with its transaction
        lake.client.get_table(table_id=hidden)
    assert not [one for one in lake.client.list_tables(include_dropped=True) if one.name == "killed.made"]
    for one in open_ids:
        assert lake.client.get_transaction(one).state == transaction_pb2.TRANSACTION_STATE_EXPIRED
    wait_until(lambda: not pinned(lake, tables["read"], by="driver"))
    jobs["task"] = jobs["sql"] = jobs["delete"]
    for name in ("task", "sql", "delete"):
        run(lake.table(tables[name].name), jobs[name])
        assert content(tables[name]) == replay(BEGIN, jobs[name])
    assert staged_folders(tables["upsert"]) & open_ids  # what the dead one staged is still there, and shows nowhere


def open_transactions(lake: Lake) -> list[Any]:
    return list(lake.client.list_transactions(state=transaction_pb2.TRANSACTION_STATE_OPEN))


def known_by(lake: Lake, tables: Iterable[Table]) -> set[str]:
    """The open transactions on these tables."""
    known = {one.table_id for one in tables}
    return {one.txn_id for one in open_transactions(lake) if {each.table_id for each in one.tables} <= known}


def pinned(lake: Lake, table: Table, by: str = "") -> list[Any]:
    pins = [one for one in lake.client.list_pins() if one.table_id == table.table_id]
    return [one for one in pins if not by or one.principal.name == by]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_a_driver_killed_at_any_moment(lake: Lake, drivers: Callable[[int], list[Driver]], seed: int) -> None:
    """While it pays on and on."""
    chance = random.Random(seed)
    table = make(lake, f"killed.at_{seed}", PROFILES[seed % len(PROFILES)], keyed=seed % 2 == 0)
    [driver] = drivers(1)
    driver.answer(driver.tell("jobs", table=table.name, jobs=payments(chance, 1), on_conflict="rerun"))
    driver.tell("jobs", table=table.name, jobs=payments(chance, 50), on_conflict="rerun")
    wait_until(lambda: bool(open_transactions(lake)))
    time.sleep(chance.random() * 3)  # what is to be met is any moment
    driver.kill()
    wait_until(lambda: not open_transactions(lake))  # a commit that it had sent may yet be decided
    head = table.refresh().meta.head_version
    for version in range(1, head + 1):
        assert sum(amount for amount, _ in content(table, version).values()) == sum(one for one, _ in BEGIN.values())
    assert table.read().count() == len(BEGIN)
    attempt(table, payments(chance, 1))
    assert table.refresh().meta.head_version == head + 1
