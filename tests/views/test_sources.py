"""The rows of a source with some keys, at both versions, against the same rows of the whole source."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from laketx import Lake, Table, connect
from worker.views import key_rows
from worker.views.definition import ViewSource
from worker.views.delta import Restriction
from worker.views.sources import SourceTables

NAME = "s.rows"
TEXT = f'SELECT * FROM "{NAME}@from" UNION ALL SELECT * FROM "{NAME}@to"'
KEYS = f'SELECT DISTINCT k FROM "{NAME}@changes"'
STEPS = 7


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("sources")) as made:
        yield made


def changed(table: Table, rng: random.Random) -> None:
    rows = [
        {"k": rng.choice([None, 1, 2, 3, 4]), "x": rng.choice([None, "a", "b"])} for _ in range(rng.randrange(1, 6))
    ]
    match rng.randrange(4):
        case 0:
            table.delete(f"k = {rng.randrange(1, 5)}")
        case 1:
            table.overwrite(rows)
        case _:
            table.append(rows * rng.randrange(1, 3))


def bag(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(rows.column(name).to_pylist() for name in ("k", "x")), strict=True))


@pytest.mark.parametrize("listed_max", [key_rows.KEYS_LISTED_MAX, 0], ids=["listed", "chosen afterwards"])
@pytest.mark.parametrize("kind", ["bigint", "double"])
def test_rows_with_some_keys_are_those_of_the_whole_source(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str, listed_max: int
) -> None:
    monkeypatch.setattr(key_rows, "KEYS_LISTED_MAX", listed_max)
    monkeypatch.setattr(key_rows, "CHOSEN_AT_ONCE", 4)
    rng = random.Random(7)
    table = lake.create_table(f"s.{kind}{listed_max}", f"k {kind}, x string")
    for _ in range(STEPS):
        changed(table, rng)
    meta = lake.client.get_table(table_id=table.table_id)
    source = ViewSource(table.name, table.table_id, {column.name: column.column_id for column in meta.columns})
    seen = 0
    for before in range(STEPS):
        for after in range(before + 1, STEPS + 1):
            of_some, of_all = (
                SourceTables(table.view.lake, {NAME: source}, {NAME: before}, {NAME: after}) for _ in range(2)
            )
            restriction = Restriction("k", KEYS)
            some = of_some.relations(TEXT, {(NAME, "from"): restriction, (NAME, "to"): restriction})
            keys = {row["k"] for row in of_some.relations(KEYS)[f"{NAME}@changes"].to_pylist()}
            for side, rows in of_all.relations(TEXT).items():
                chosen = Counter({row: count for row, count in bag(rows).items() if row[0] in keys})
                found = Counter({row: count for row, count in bag(some[side]).items() if row[0] in keys})
                assert found == chosen, (before, after, side)
                assert some[side].schema == rows.schema
                seen += sum(chosen.values())
            if kind == "bigint":
                assert {row[0] for row in bag(some[f"{NAME}@from"])} <= keys, "only these are read"
    assert seen > 100
