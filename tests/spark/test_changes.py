"""Increments, against the rows of every version."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import functions as sf

from metaservice.client import InvalidError, drop_column, rename_column, widen_column
from tests.spark.changed_rows import wanted
from tests.spark.histories import grow
from tests.spark.reading import LabLake, LabTable, open_lab, union
from worker.base.errors import InputError
from worker.dataframes.changes import read_changes


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("increments")) as made:
        yield made


def check(table: LabTable, ranges: list[tuple[int, int]]) -> None:
    """Every range in every mode, in one job."""
    modes = ("log", "changes", "latest")
    cases = [(since, until, mode) for at, (since, until) in enumerate(ranges) for mode in modes[: 2 if at else 3]]
    frames = [
        read_changes(table.view, since=since, until=until, mode=mode).select(sf.lit(at).alias("case"), "*")
        for at, (since, until, mode) in enumerate(cases)
    ]
    times = {one.version: one.commit_time_us for one in table.lake.client.list_versions(table.table_id)}
    found: dict[int, list[str]] = {at: [] for at in range(len(cases))}
    for row in union(frames).withColumn("_commit_time", sf.unix_micros("_commit_time")).collect():
        values: list[Any] = list(row)
        assert values[-1] == times[values[-2]]
        found[values[0]].append(repr(tuple(values[1:-1])))
    for at, case in enumerate(cases):
        assert sorted(found[at]) == wanted(table, *case), case


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_random_histories(lake: LabLake, seed: int, keyed: bool) -> None:
    table = grow(lake, f"history_{seed}_{keyed}", seed, keyed=keyed)
    chance = random.Random(seed)
    since, until = sorted(chance.choices(range(table.head + 1), k=2))
    check(table, [(since, until), (0, table.head)])


def test_rows_are_compared_under_the_schema_of_the_end(lake: LabLake) -> None:
    columns = {"id": "bigint", "pay": "int", "note": "string"}
    table = lake.create("evolving", columns, key=["id"], buckets=1)
    table.insert([{"id": 1, "pay": 10, "note": "a"}, {"id": 2, "pay": 20, "note": "a"}])
    table.insert([{"id": 1, "pay": 10, "note": "b"}])  # nothing else than a column that goes
    table.alter(
        rename_column("pay", "salary"),
        widen_column("salary", "bigint"),
        drop_column("note"),
        rows=lambda row: {"id": row["id"], "salary": row["pay"]},
    )
    table.insert([{"id": 2, "salary": 1 << 40}])
    log = read_changes(table.view, since=1, mode="log").drop("_commit_time").collect()
    assert sorted(tuple(row) for row in log) == [
        (2, 20, "update_preimage", 4),
        (2, 1 << 40, "update_postimage", 4),
    ]
    whole = read_changes(table.view, since=0, mode="latest").drop("_commit_time").collect()
    assert sorted(tuple(row) for row in whole) == [(1, 10, "insert", 1), (2, 1 << 40, "insert", 4)]


def test_rows_of_both_ends_have_their_own_zeros(lake: LabLake) -> None:
    """0.0 and -0.0 are one value: no commit below changes row 1, nor row 2 before it goes, but each writes it."""
    table = lake.create("zeros", {"id": "bigint", "d": "double"}, key=["id"], buckets=1)
    table.insert([{"id": 1, "d": 0.0}, {"id": 2, "d": -0.0}])
    table.insert([{"id": 1, "d": -0.0}, {"id": 2, "d": 0.0}])
    table.delete([(2,)])

    def found(since: int, mode: str) -> list[str]:
        rows = read_changes(table.view, since=since, until=3, mode=mode).drop("_commit_time").collect()
        return sorted(repr(tuple(row)) for row in rows)

    assert found(1, "log") == ["(2, 0.0, 'delete', 3)"]
    assert found(1, "changes") == ["(2, -0.0, 'delete', 3)"]
    assert found(0, "latest") == found(0, "changes") == ["(1, -0.0, 'insert', 1)"]


def test_new_rows_of_an_append_table_are_a_plain_scan(lake: LabLake) -> None:
    table = lake.create("plain", {"id": "bigint"})
    for number in range(3):
        table.insert([{"id": number}])
    found = read_changes(table.view, since=1)
    assert sorted((row["id"], row["_change_type"], row["_commit_version"]) for row in found.collect()) == [
        (1, "insert", 2),
        (2, "insert", 3),
    ]
    assert read_changes(table.view, since=3).collect() == []
    assert read_changes(table.view, since=3).columns == found.columns


def test_a_range_that_makes_no_sense(lake: LabLake) -> None:
    table = lake.create("ranges", {"id": "bigint"})
    table.insert([{"id": 1}])
    with pytest.raises(InputError, match="RANGE_INVALID"):
        read_changes(table.view, since=1, until=0)
    with pytest.raises(InputError, match="MODE_INVALID"):
        read_changes(table.view, since=0, mode="all")
    with pytest.raises(InvalidError):
        read_changes(table.view, since=0, until=9)
    assert [row["id"] for row in read_changes(table.view, since=0, until="9999-01-01").collect()] == [1]
