"""The rows of a table that have some keys, or that may equal some rows, against all rows of the table."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pytest

from laketx import Lake, Table, connect
from worker.arrow.scan.version_rows import VersionRows, shown_schema
from worker.arrow.write.updates import target_rows
from worker.views import key_rows
from worker.views.key_rows import KeyRows, read_rows, rows_like

COLUMNS = "n int, day date, word string, yes boolean, part double"
KINDS = {"n": "int", "day": "date", "word": "string", "yes": "boolean"}
FIRST = date(2026, 11, 1)
LISTED_MAX = [0, key_rows.KEYS_LISTED_MAX]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("keys")) as made:
        yield made


def random_rows(rng: random.Random, count: int) -> list[dict[str, object]]:
    def some(value: object) -> object:
        return value if rng.random() < 0.9 else None

    numbers = [rng.randrange(-9, 9) for _ in range(count)]
    return [
        {
            "n": some(number),
            "day": some(FIRST + timedelta(number)),
            "word": some("abc"[number % 3] * rng.randrange(3)),
            "yes": some(number > 0),
            "part": some(number / 3),
        }
        for number in numbers
    ]


def filled(lake: Lake, name: str, rng: random.Random) -> Table:
    """A table of files and rows in commits, some rows of which were deleted."""
    table = lake.create_table(name, COLUMNS, partition_by=["yes"])
    for _ in range(3):
        table.append(random_rows(rng, 12))
    table.compact()
    for _ in range(3):
        table.append(random_rows(rng, 4))
    table.delete(f"n = {rng.randrange(-9, 9)}")
    return table


def bag(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True))


@pytest.mark.parametrize("listed_max", LISTED_MAX)
def test_rows_are_those_with_the_keys(lake: Lake, monkeypatch: pytest.MonkeyPatch, listed_max: int) -> None:
    monkeypatch.setattr(key_rows, "KEYS_LISTED_MAX", listed_max)
    monkeypatch.setattr(key_rows, "CHOSEN_AT_ONCE", 10)
    rng = random.Random(3)
    table = filled(lake, f"keys.of{listed_max}", rng)
    view = table.view.refreshed()
    reader = VersionRows(view, view.meta.head_version)
    every = read_rows(reader, reader.schema.names, None)
    for column, kind in KINDS.items():
        values = every.column(column).unique().to_pylist()
        for count in range(6):
            some = rng.choices([*values, None], k=count)
            keys = pa.array(list(dict.fromkeys(some)), reader.schema.field(column).type)
            found = read_rows(reader, reader.schema.names, KeyRows(column, kind, keys))
            wanted = every.filter(pa.array([value in some for value in every.column(column).to_pylist()], pa.bool_()))
            assert bag(found) == bag(wanted), (column, some)


@pytest.mark.parametrize("listed_max", LISTED_MAX)
def test_rows_that_may_equal_some_have_these_among_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, listed_max: int
) -> None:
    monkeypatch.setattr(key_rows, "KEYS_LISTED_MAX", listed_max)
    rng = random.Random(4)
    table = filled(lake, f"likes.of{listed_max}", rng)
    view = table.view.refreshed()
    names = shown_schema(view).names
    every = target_rows(view, view.meta.head_version, None).rows.select(names)
    fewest = len(every)
    for count in (1, 1, 2, 4, 8):
        some = every.take(pa.array(rng.sample(range(len(every)), count)))
        like = rows_like(view.meta, shown_schema(view), some)
        assert like is not None
        found = target_rows(view, view.meta.head_version, like.condition, like.near, like.among).rows.select(names)
        assert bag(found) <= bag(every)
        assert all(bag(found)[row] == bag(every)[row] for row in bag(some))
        fewest = min(fewest, len(found))
    assert fewest < len(every) / 2


def test_keys_may_be_long(lake: Lake) -> None:
    source = lake.create_table("keys.long", "word string, n int")
    words = ["a", "x" * 5_000, "x" * 5_001, None]
    source.append([{"word": word, "n": 1} for word in words])
    text = "SELECT word, {} FROM keys.long GROUP BY word"
    views = [
        lake.create_materialized_view(f"keys.{name}", text.format(answer))
        for name, answer in (("counts", "count(*) AS n"), ("lists", "max(n) AS most"))
    ]
    source.append([{"word": word, "n": 2} for word in words[:2]])
    source.delete("n = 1")
    for view in views:
        assert view.refresh(incremental=True).kind == "incremental"
        assert view.verify().holds
        assert len(view.table.to_arrow()) == 2


def test_files_beyond_the_keys_are_not_read(lake: Lake) -> None:
    table = lake.create_table("keys.ordered", "n bigint, m bigint")
    for begin in range(0, 40_000, 10_000):
        numbers = np.arange(begin, begin + 10_000)
        table.append(pa.table({"n": numbers, "m": -numbers}))
    view = table.view.refreshed()
    reader = VersionRows(view, view.meta.head_version)
    seen: list[int] = []

    def counted(rows: pa.Table) -> pa.Table:
        seen.append(len(rows))
        return rows

    keys = pa.array(np.arange(20_100, 29_000, 2))
    assert len(keys) > key_rows.KEYS_LISTED_MAX
    found = read_rows(reader, ["m", "n"], KeyRows("n", "bigint", keys), counted)
    assert sorted(found.column("n").to_pylist()) == keys.to_pylist()
    assert sum(seen) == 10_000
    some = pa.table({"n": keys, "m": pa.repeat(pa.scalar(-15_000, pa.int64()), len(keys))})
    like = rows_like(view.meta, shown_schema(view), some)
    assert like is not None
    assert like.column == "n"
    assert len(target_rows(view, view.meta.head_version, like.condition, like.near, like.among).rows) == 0
