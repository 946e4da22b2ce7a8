"""Rows of append tables that are updated again and again: each old image is a file with one hidden row."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from laketx import Lake, Table, connect
from worker.arrow.scan.plans import entries_of
from worker.arrow.scan.version_rows import VersionRows

COLUMNS = "id bigint, p int, v bigint"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("updates") / "lake") as made:
        yield made


def new_table(lake: Lake, name: str, rows: list[dict[str, int]]) -> Table:
    table = lake.create_table(name, COLUMNS, partition_by=["p"], properties={"compaction.enabled": "false"})
    table.overwrite(rows)
    return table


def head_of(table: Table) -> int:
    return table.lake.client.get_table(table_id=table.table_id).head_version


def rows_of(table: Table, version: int | None = None) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(version=version).to_pylist())


def files_read(table: Table) -> int:
    version = head_of(table)
    return len(VersionRows(table.view, version).sources(entries_of(table.view, version)))


def test_the_hidden_images_of_a_row_are_not_opened(lake: Lake) -> None:
    table = new_table(lake, "often", [{"id": one, "p": 1, "v": 0} for one in range(10)])
    before = files_read(table)
    for value in range(1, 9):
        table.update({"v": value}, where="id = 3")
        assert files_read(table) == before + 1
    assert rows_of(table) == [(one, 1, 8 if one == 3 else 0) for one in range(10)]


def test_an_image_beside_a_row_without_an_id_is_hidden_alone(lake: Lake) -> None:
    """A row that comes from another partition gets a new id; it shares a file with the image of a row that stays."""
    table = new_table(lake, "beside", [{"id": 1, "p": 1, "v": 0}, {"id": 2, "p": 2, "v": 0}])
    table.update({"p": 1}, where="id IN (1, 2)")
    table.update({"v": 5}, where="id = 1")
    assert rows_of(table) == [(1, 1, 5), (2, 1, 0)]
    table.update({"v": 6}, where="id = 2")
    assert rows_of(table) == [(1, 1, 5), (2, 1, 6)]
    table.delete("id = 1")
    assert rows_of(table) == [(2, 1, 6)]


@pytest.mark.parametrize("seed", range(4))
def test_updates_of_a_few_rows_show_every_version(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    rows = {one: (one, one % 3, 0) for one in range(8)}
    table = new_table(lake, f"few{seed}", [dict(zip(("id", "p", "v"), row, strict=True)) for row in rows.values()])
    at = {head_of(table): sorted(rows.values())}
    for step in range(1, 30):
        ids = chance.sample(range(8), chance.choice([1, 1, 1, 2, 3]))
        where = f"id IN ({', '.join(map(str, ids))})"
        match chance.randrange(8):
            case 0:
                table.delete(where)
                rows = {one: row for one, row in rows.items() if one not in ids}
            case 1 | 2:
                place = chance.randrange(3)
                table.update({"p": place}, where=where)
                rows |= {one: (one, place, rows[one][2]) for one in ids if one in rows}
            case 3:
                new = [one for one in ids if one not in rows]
                table.append([{"id": one, "p": one % 3, "v": step} for one in new])
                rows |= {one: (one, one % 3, step) for one in new}
            case _:
                table.update({"v": step}, where=where)
                rows |= {one: (one, rows[one][1], step) for one in ids if one in rows}
        at[head_of(table)] = sorted(rows.values())
        assert rows_of(table) == sorted(rows.values()), (step, where)
    for version, expected in at.items():
        assert rows_of(table, version) == expected, version
