"""Writers of all kinds of change, who tell the oracle what they did."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame

from laketx import Commit, Table
from tests.spark.oracle import Key, Oracle, State, Step, adding, changing, replacing

DAYS: Final = ("a", "b", "c")
IDS: Final = 12
NEW_IDS = itertools.count(1_000)
SCHEMA: Final = "id bigint, day string, amount bigint"
Partition = Any


class Writer:
    """Writes to one table. `write` does one change and says which kind it was; a lost race is raised."""

    def __init__(self, table: Table, oracle: Oracle, chance: random.Random) -> None:
        self._table = table
        self._oracle = oracle
        self._chance = chance
        self._keyed = bool(table.meta.primary_key)

    def write(self) -> str:
        kinds: list[Callable[[], tuple[Commit, Step]]] = [
            *(self.insert, self.update, self.move, self.delete, self.merge),
            *(self.overwrite, self.truncate, self.restore),
        ]
        kind = self._chance.choices(kinds, [8, 4, 2, 3, 3, 2, 1, 2])[0]
        commit, step = kind()
        self._oracle.did(commit.version, step)
        return kind.__name__

    # -- rows

    def fresh(self, days: tuple[str, ...], most: int = 6) -> State:
        rows: State = {}
        for _ in range(self._chance.randint(1, most)):
            one = self._chance.randrange(IDS) if self._keyed else next(NEW_IDS)
            rows[one, self._chance.choice(days)] = self._chance.choice([0, 1, 2, None])
        return rows

    def frame(self, rows: State) -> DataFrame:
        spark = self._table.lake.spark
        return spark.createDataFrame([(*key, amount) for key, amount in rows.items()], SCHEMA).coalesce(1)

    def some(self) -> tuple[Callable[[Key], bool], str]:
        """Rows of a day, or now and then of all."""
        divisor, rest = self._chance.choice([2, 3, 5]), self._chance.randrange(2)
        day = self._chance.choice([*DAYS, None])
        where = f"id % {divisor} = {rest}" + (f" and day = '{day}'" if day else "")
        return lambda key: key[0] % divisor == rest and day in (None, key[1]), where

    def scope(self) -> tuple[Callable[[str], bool], Partition, tuple[str, ...]]:
        days = tuple(self._chance.sample(DAYS, self._chance.choice([1, 1, 1, 2])))
        if self._chance.random() < 0.1:
            return lambda _day: True, "all", DAYS
        return lambda day: day in days, [{"day": day} for day in days], days

    # -- changes

    def insert(self) -> tuple[Commit, Step]:
        rows = self.fresh(tuple(self._chance.sample(DAYS, self._chance.randint(1, 2))))
        return self._table.insert(self.frame(rows)), adding(rows)

    def update(self) -> tuple[Commit, Step]:
        holds, where = self.some()
        plus = self._chance.randint(1, 5)

        def change(key: Key, amount: int | None) -> tuple[Key, int | None]:
            return key, (amount * 2 + plus) % 1000 if holds(key) and amount is not None else amount

        return self._table.update({"amount": f"(amount * 2 + {plus}) % 1000"}, where=where), changing(change)

    def move(self) -> tuple[Commit, Step]:
        """To another day, under a new id: a RESTORE of the old day brings the row back there, and both may meet again.

        A table with a key can't have its key set; there some rows are deleted instead.
        """
        if self._keyed:
            return self.delete()
        holds, where = self.some()
        day, plus = self._chance.choice(DAYS), self._chance.randrange(1 << 40)
        commit = self._table.update({"day": f"'{day}'", "id": f"id + {plus}"}, where=where)
        return commit, changing(lambda key, amount: ((key[0] + plus, day) if holds(key) else key, amount))

    def delete(self) -> tuple[Commit, Step]:
        holds, where = self.some()
        return self._table.delete(where), changing(lambda key, amount: None if holds(key) else (key, amount))

    def merge(self) -> tuple[Commit, Step]:
        """Of rows that are there, mostly, and of new ones; NULL takes a row away."""
        day = self._chance.choice(DAYS)
        known = sorted(key for key in self._oracle.states[-1] if key[1] == day)
        source = self.fresh((day,), 3)
        for key in self._chance.sample(known, min(len(known), 3)):
            source[key] = self._chance.choice([None, 7, 8])
        commit = (
            self._table.merge(
                self.frame(source), on=f"target.id = source.id and target.day = source.day and target.day = '{day}'"
            )
            .when_matched_delete(condition="source.amount is null")
            .when_matched_update({"amount": "source.amount"})
            .when_not_matched_insert()
            .execute()
        )

        def change(key: Key, amount: int | None) -> tuple[Key, int | None] | None:
            if key not in source:
                return key, amount
            return None if source[key] is None else (key, source[key])

        return commit, changing(change, source)

    def overwrite(self) -> tuple[Commit, Step]:
        holds, partition, days = self.scope()
        rows = self.fresh(days)
        if self._chance.random() < 0.3:
            written = {key[1] for key in rows}
            return self._table.overwrite(self.frame(rows), partition="dynamic"), replacing(written.__contains__, rows)
        return self._table.overwrite(self.frame(rows), partition=partition), replacing(holds, rows)

    def truncate(self) -> tuple[Commit, Step]:
        holds, partition, _ = self.scope()
        return self._table.truncate(partition=partition), replacing(holds, {})

    def restore(self) -> tuple[Commit, Step]:
        """To a version that is held meanwhile."""
        holds, partition, _ = self.scope()
        with self._table.snapshot() as held:
            then = self._oracle.at(held.version)
            for _ in range(self._chance.randint(0, 2)):
                held.read().count()  # time goes by
            commit = self._table.restore(version=held.version, partition=partition)
        return commit, replacing(holds, {key: one for key, one in then.items() if holds(key[1])})
