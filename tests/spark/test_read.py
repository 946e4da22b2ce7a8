"""Reads of tables whose every version is known."""

from collections.abc import Iterator

import pytest
from pyspark.sql import functions as sf

from tests.spark.histories import grow
from tests.spark.reading import LabLake, LabTable, expected, open_lab, shown, union
from worker import scan


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("a lake")) as made:
        yield made


COLUMNS = {"id": "bigint", "amount": "double", "status": "string"}


def row(number: int, amount: float = 1.0, status: str = "new") -> dict[str, object]:
    return {"id": number, "amount": amount, "status": status}


def test_an_append_table_shows_every_version(lake: LabLake) -> None:
    table = lake.create("appended", COLUMNS)
    assert shown(scan.read(table)) == []
    table.insert([row(number) for number in range(200)])
    table.insert([row(number) for number in range(200, 230)])
    table.delete(table.find(0, 63, 64, 127, 199, 229))
    five, other = table.find(5, 210)
    table.update({five: row(5, 7.5, "paid"), other: row(210, 2.5, "paid")})
    table.delete([five])
    table.insert([row(1000)])
    table.compact()
    table.delete([other])
    check(table)


def test_a_primary_key_table_shows_every_version(lake: LabLake) -> None:
    table = lake.create("keyed", COLUMNS, key=["id"])
    table.insert([row(number) for number in range(100)])
    table.insert([row(number, 2.0) for number in range(50, 60)])
    table.delete([(number,) for number in (1, 55, 99)])
    table.insert([row(99, 3.0), row(200)])
    table.minor()
    table.delete([(200,)])
    table.compact()
    table.insert([row(7, 9.0)])
    check(table)


def check(table: LabTable) -> None:
    """Every version, in one job."""
    frames = [scan.read(table, version=version).select(sf.lit(version).alias("v"), "*") for version in table.at]
    found: dict[int, list[tuple[object, ...]]] = {version: [] for version in table.at}
    for one in union(frames).collect():
        found[one[0]].append(tuple(one)[1:])
    for version in table.at:
        assert sorted(found[version], key=repr) == expected(table, version), version


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_random_histories(lake: LabLake, seed: int, keyed: bool) -> None:
    check(grow(lake, f"history_{seed}_{keyed}", seed, keyed=keyed))
