"""Inlined rows under Spark: its reads, writes and compactions, in any order with those of Arrow."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, Table

Names = Callable[[], str]
Row = dict[str, Any]
STEPS = 9


def live(table: Table) -> list[bool]:
    entries = table.lake.client.list_files(table.table_id)
    return [one.file.inlined for one in entries if one.HasField("file")]


def files_on_disk(table: Table) -> list[Path]:
    return [path for path in Path(table.view.folder).rglob("*") if path.is_file()]


def counted(rows: Iterable[Row]) -> Counter[str]:
    return Counter(repr((row["id"], row["day"], row["v"])) for row in rows)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 4))])
def test_histories_with_compactions_show_every_version(
    lake: Lake, spark: SparkSession, new_name: Names, seed: int
) -> None:
    chance, keyed = random.Random(seed), bool(seed % 2)
    key: dict[str, Any] = {"primary_key": ["id"], "buckets": 2} if keyed else {"partition_by": ["day"]}
    table = lake.create_table(new_name(), "id bigint, day int, v string", properties={"write.inline.rows": "4"}, **key)
    rows: dict[Any, Row] = {}
    states: dict[int, list[Row]] = {0: []}
    fresh = iter(range(1_000))
    for _ in range(STEPS):
        before = list(rows.values())
        match chance.choice(["arrow", "arrow", "spark", "delete", "update", "minor", "major", "restore"]):
            case "arrow":
                new = [{"id": one, "day": one % 2, "v": "a"} for one in chance.sample(range(9), chance.randint(1, 6))]
                (table.upsert if keyed else table.append)(new)
                rows |= {row["id"] if keyed else next(fresh): row for row in new}
            case "spark":
                new = [{"id": one, "day": one % 2, "v": "s"} for one in chance.sample(range(9), 2)]
                table.insert(spark.createDataFrame(new, "id bigint, day int, v string"))
                rows |= {row["id"] if keyed else next(fresh): row for row in new}
            case "delete":
                number = chance.randint(0, 8)
                table.delete(f"id = {number}") if chance.random() < 0.5 else spark_delete(table, number)
                rows = {at: row for at, row in rows.items() if row["id"] != number}
            case "update":
                number = chance.randint(0, 8)
                table.update({"v": "'u'"}, where=f"id = {number}")
                rows = {at: {**row, "v": "u"} if row["id"] == number else row for at, row in rows.items()}
            case "restore":
                version = chance.choice(sorted(states))
                table.restore(version=version)
                back = states[version]
                rows = {row["id"] if keyed else next(fresh): row for row in back}
            case kind:
                table.compact("minor" if kind == "minor" else "major")
                assert counted(before) == counted(rows.values())
                assert kind == "minor" or not any(live(table))
        states[table.refresh().meta.head_version] = list(rows.values())
    for version, wanted in states.items():
        assert counted(table.to_arrow(version=version).to_pylist()) == counted(wanted), version
        assert counted(one.asDict() for one in table.read(version=version).collect()) == counted(wanted), version
    assert not [one for progress in lake.client.check() for one in progress.problems]


def spark_delete(table: Table, number: int) -> None:
    table.delete(f"id + 0 = {number}")  # more than a condition without Spark


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_minor_writes_out_even_a_single_inlined_file(lake: Lake, new_name: Names, keyed: bool) -> None:
    key: dict[str, Any] = {"primary_key": ["id"], "buckets": 1} if keyed else {}
    table = lake.create_table(new_name(), "id bigint, v string", **key)
    (table.upsert if keyed else table.append)([{"id": 1, "v": "x"}])
    assert (live(table), files_on_disk(table)) == ([True], [])
    before = table.refresh().meta.head_version
    table.compact("minor")
    assert live(table) == [False]
    assert len(files_on_disk(table)) == 1
    for version in (before, None):
        assert table.to_arrow(version=version).to_pylist() == [{"id": 1, "v": "x"}]
        assert [tuple(row) for row in table.read(version=version).collect()] == [(1, "x")]
    assert table.compact("minor") is None


def test_evolved_columns_of_inlined_rows(lake: Lake, new_name: Names) -> None:
    table = lake.create_table(
        new_name(), "id int, x float, s struct<a:int,b:string>, gone string, l array<struct<q:int>>"
    )
    table.append([{"id": 1, "x": 0.5, "s": {"a": 1, "b": "b"}, "gone": "g", "l": [{"q": 1}, None]}])
    table.rename_column("x", "y")
    table.widen_column("y", "double")
    table.widen_column("id", "bigint")
    table.drop_column("gone")
    table.add_columns("gone int, s.c int")
    table.widen_column("s.a", "bigint")
    wanted = {"id": 1, "y": 0.5, "s": {"a": 1, "b": "b", "c": None}, "l": [{"q": 1}, None], "gone": None}
    assert table.to_arrow().to_pylist() == [wanted]
    assert [row.asDict(recursive=True) for row in table.read().collect()] == [wanted]
    table.compact("minor")
    assert table.to_arrow().to_pylist() == [wanted]
