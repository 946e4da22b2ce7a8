"""Increments with Arrow, against the difference of two dicts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.arrow.tables import Reads, open_lake, texts
from tests.spark.changed_rows import Oracle
from tests.spark.histories import grow_many
from tests.spark.reading import LabLake, LabTable
from worker.arrow.changes.commits import MODES

LOOKS = 15


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lake(tmp_path_factory.mktemp("changes")) as made:
        yield made


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 8))])
def test_every_range_shows_its_changes(lake: LabLake, seed: int) -> None:
    table = grow_many(lake, f"c{seed}", seed, keyed=bool(seed % 2), cases=6, sites=2, steps=10, alters=2)
    oracle = Oracle(table)
    chance = random.Random(seed)
    for _ in range(LOOKS):
        since, until = sorted(chance.choices(range(table.head + 1), k=2))
        check(table, oracle, since, until, chance.choice(MODES))


def test_rows_of_both_ends_have_their_own_zeros(lake: LabLake) -> None:
    """0.0 and -0.0 are one value: no commit below changes row 1, nor row 2 before it goes, but each writes it."""
    table = lake.create("zeros", {"id": "bigint", "d": "double"}, key=["id"], buckets=1)
    table.insert([{"id": 1, "d": 0.0}, {"id": 2, "d": -0.0}])
    table.insert([{"id": 1, "d": -0.0}, {"id": 2, "d": 0.0}])
    table.delete([(2,)])

    def found(since: int, mode: str) -> list[str]:
        return texts(Reads(table).to_arrow(since=since, until=3, mode=mode).drop_columns(["_commit_time"]))

    assert found(1, "log") == ["(2, 0.0, 'delete', 3)"]
    assert found(1, "changes") == ["(2, -0.0, 'delete', 3)"]
    assert found(0, "latest") == found(0, "changes") == ["(1, -0.0, 'insert', 1)"]


def check(table: LabTable, oracle: Oracle, since: int, until: int, mode: str) -> None:
    rows = Reads(table).to_arrow(since=since, until=until, mode=mode).drop_columns(["_commit_time"])
    wanted = sorted(text for listed in oracle.shown((since, until, mode)).values() for text in listed)
    assert texts(rows) == wanted, (since, until, mode)
