"""row_level is serialisable with real Spark jobs: a serial order explains what transactions that cross have done."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyspark.sql import DataFrame

from laketx import Lake, Table
from laketx.transaction import MultiTableTransaction, TableInTransaction
from metaservice.client import ConflictError
from tests.model import programs
from tests.model.world import Rows

SCHEMA = "p string, id bigint, v bigint"
PARTITIONS = ("a", "b")
VALUES = 10
HISTORIES = 4
MORE_HISTORIES = 40
MORE_SEEDS = 4


class Search(programs.Search):
    """The same in SQL."""

    @property
    def sql(self) -> str:
        where = f"v BETWEEN {self.low} AND {self.high}"
        return where if self.partition is None else f"{where} AND p = '{self.partition}'"


@dataclass(frozen=True)
class Program:
    """What a transaction does to a table, and what that comes to on plain rows."""

    name: str
    do: Callable[[TableInTransaction], None]
    on: Callable[[Rows], Rows]


class Histories:
    """A table under `row_level`, what it holds, and transactions on it that cross."""

    def __init__(self, lake: Lake, name: str, seed: int, *, keyed: bool) -> None:
        self.lake = lake
        self.chance = random.Random(seed)
        self.keyed = keyed
        self.table: Table = lake.create_table(
            name,
            SCHEMA,
            primary_key=["id"] if keyed else [],
            buckets=2 if keyed else None,
            partition_by=["p"],
            key_scope="partition" if keyed else None,
            profile="row_level",
        )
        self._numbers = itertools.count(100)
        self.rows: Rows = {(p, number): number % VALUES for p in PARTITIONS for number in range(8)}
        self.table.insert(self.frame(self.rows))
        self.committed = self.refused = self.compacted = 0

    def frame(self, rows: Rows) -> DataFrame:
        return self.lake.spark.createDataFrame([(*place, value) for place, value in rows.items()], SCHEMA).coalesce(1)

    def shown(self) -> Rows:
        found = [(row["p"], row["id"], row["v"]) for row in self.table.refresh().read().collect()]
        assert len({one[:2] for one in found}) == len(found), "a row is there twice"
        return {(p, identity): value for p, identity, value in found}

    # -- programs

    def search(self) -> Search:
        low = self.chance.randrange(VALUES)
        return Search(low, low + self.chance.randrange(4), self.chance.choice([None, *PARTITIONS]))

    def new(self) -> Rows:
        """Places that nobody has; in a table with a key also some that are there."""
        fresh = {(self.chance.choice(PARTITIONS), next(self._numbers)): self.chance.randrange(VALUES) for _ in range(2)}
        known = self.chance.sample(sorted(self.rows), min(1, len(self.rows))) if self.keyed else []
        return fresh | dict.fromkeys(known, self.chance.randrange(VALUES))

    def program(self) -> Program:
        kinds = [self.insert, self.delete, self.update, self.update_from_count, self.insert_count, self.merge]
        return self.chance.choices([*kinds, self.overwrite], [2, 2, 3, 3, 2, 2, 1])[0]()

    def insert(self) -> Program:
        new = self.new()
        return Program(f"insert {new}", lambda table: table.insert(self.frame(new)), lambda rows: rows | new)

    def delete(self) -> Program:
        search = self.search()
        return Program(
            f"delete {search.sql}",
            lambda table: table.delete(search.sql),
            lambda rows: {place: value for place, value in rows.items() if place not in search.of(rows)},
        )

    def update(self) -> Program:
        search = self.search()
        return Program(
            f"update {search.sql}",
            lambda table: table.update({"v": f"(v + 3) % {VALUES}"}, where=search.sql),
            lambda rows: rows | {place: (value + 3) % VALUES for place, value in search.of(rows).items()},
        )

    def update_from_count(self) -> Program:
        """The stuff of write skew."""
        search, counted = self.search(), self.search()

        def do(table: TableInTransaction) -> None:
            count = table.read(counted.sql).count() % VALUES
            table.update({"v": str(count)}, where=search.sql)

        def on(rows: Rows) -> Rows:
            return rows | dict.fromkeys(search.of(rows), len(counted.of(rows)) % VALUES)

        return Program(f"update {search.sql} from count {counted.sql}", do, on)

    def insert_count(self) -> Program:
        counted, place = self.search(), (self.chance.choice(PARTITIONS), next(self._numbers))

        def do(table: TableInTransaction) -> None:
            table.insert(self.frame({place: table.read(counted.sql).count() % VALUES}))

        return Program(f"insert count {counted.sql}", do, lambda rows: rows | {place: len(counted.of(rows)) % VALUES})

    def merge(self) -> Program:
        source = self.new() | dict.fromkeys(self.chance.sample(sorted(self.rows), min(2, len(self.rows))), 1)

        def do(table: TableInTransaction) -> None:
            merge = table.merge(self.frame(source), on=["p", "id"])
            merge.when_matched_update({"v": f"(target.v + source.v) % {VALUES}"}).when_not_matched_insert().execute()

        def on(rows: Rows) -> Rows:
            return rows | {place: (rows[place] + v) % VALUES if place in rows else v for place, v in source.items()}

        return Program(f"merge {source}", do, on)

    def overwrite(self) -> Program:
        partition = self.chance.choice(PARTITIONS)
        new = {(partition, next(self._numbers)): self.chance.randrange(VALUES) for _ in range(6)}
        return Program(
            f"overwrite {partition}",
            lambda table: table.overwrite(self.frame(new), partition={"p": partition}),
            lambda rows: {place: value for place, value in rows.items() if place[0] != partition} | new,
        )

    # -- histories

    def play(self) -> None:
        """Two or three transactions, begun and ended in any order; a compaction among them at times."""
        programs = [self.program() for _ in range(self.chance.choice([2, 2, 3]))]
        events = [at for at in range(len(programs)) for _ in ("begin", "end")]
        self.chance.shuffle(events)
        if self.chance.random() < 0.4:
            events.insert(self.chance.randrange(1, len(events)), -1)
        open_now: dict[int, MultiTableTransaction] = {}
        done: list[Program] = []
        for event in events:
            if event < 0:
                self.compacted += self.table.compact(self.chance.choice(["minor", "major"])) is not None
            elif event not in open_now:
                open_now[event] = self.lake.transaction()
                programs[event].do(open_now[event].table(self.table.name))
            elif self.ended(open_now[event]):
                done.append(programs[event])
        before, self.rows = self.rows, self.shown()
        assert self.explains(before, done), f"{before}\n{[one.name for one in done]}\n{self.rows}"

    def ended(self, txn: MultiTableTransaction) -> bool:
        """Blocks end inside each other; these end in any order."""
        try:
            txn.__exit__(None, None, None)
        except ConflictError:
            self.refused += 1
            return False
        self.committed += 1
        return True

    def explains(self, before: Rows, done: list[Program]) -> bool:
        """Whether what the table holds is what the programs make of it in some order."""
        for order in itertools.permutations(done):
            rows = before
            for program in order:
                rows = program.on(rows)
            if rows == self.rows:
                return True
        return False


def check(histories: Histories, count: int) -> None:
    for _ in range(count):
        histories.play()
    assert histories.committed >= count, histories.committed
    assert histories.refused >= count // 8, histories.refused


@pytest.mark.parametrize("keyed", [True, pytest.param(False, marks=pytest.mark.long)], ids=["primary-key", "append"])
def test_a_serial_order_explains_some_histories(lake: Lake, new_name: Callable[[], str], keyed: bool) -> None:
    check(Histories(lake, new_name(), 1, keyed=keyed), HISTORIES)


@pytest.mark.long
@pytest.mark.parametrize("keyed", [True, False], ids=["primary-key", "append"])
@pytest.mark.parametrize("seed", range(10, 10 + MORE_SEEDS))
def test_a_serial_order_explains_every_history(lake: Lake, new_name: Callable[[], str], seed: int, keyed: bool) -> None:
    histories = Histories(lake, new_name(), seed, keyed=keyed)
    check(histories, MORE_HISTORIES)
    assert histories.compacted
