"""Rows of versions with Arrow, against a dict."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.arrow.conditions import some_condition
from tests.arrow.tables import Reads, open_lake, texts
from tests.spark.histories import grow, grow_many
from tests.spark.reading import LabLake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lake(tmp_path_factory.mktemp("arrow")) as made:
        yield made


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 12))])
def test_every_version_shows_its_rows(lake: LabLake, seed: int) -> None:
    table = grow(lake, f"h{seed}", seed, keyed=bool(seed % 2))
    for version, rows in table.at.items():
        found = Reads(table).scanner(version=version)
        wanted = sorted(repr(tuple(row[name] for name in found.schema.names)) for row in rows.values())
        assert texts(found.to_arrow()) == wanted, version
        assert texts(found.to_batches().read_all()) == wanted, version
        assert found.count() == len(rows), version


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_every_version_shows_its_rows_under_its_columns(lake: LabLake, seed: int) -> None:
    table = grow_many(lake, f"m{seed}", seed, keyed=bool(seed % 2), cases=5, sites=2, steps=12, alters=4)
    for version, rows in table.at.items():
        found = Reads(table).to_arrow(version=version)
        names = found.schema.names
        assert texts(found) == sorted(repr(tuple(row[name] for name in names)) for row in rows.values()), version


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_conditions_mean_what_sql_means(lake: LabLake, seed: int) -> None:
    chance = random.Random(seed)
    table = grow(lake, f"c{seed}", seed, keyed=bool(seed % 2), steps=6)
    for _ in range(25):
        condition, holds = some_condition(chance)
        wanted = [row for row in table.rows.values() if holds(row) is True]
        found = Reads(table).scanner(where=condition, columns=["status", "id"])
        assert texts(found.to_arrow()) == sorted(repr((row["status"], row["id"])) for row in wanted), condition
        assert found.count() == len(wanted), condition
