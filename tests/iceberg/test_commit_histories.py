"""Random histories of a table that pyiceberg, DuckDB in both formats and LakeTX write, against a plain dict."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from laketx import Lake
from tests.iceberg.servers import Server, catalog_of
from tests.iceberg.writers import Ducks, head

pytest.importorskip("pyiceberg.types", reason="pyiceberg is not installed")
Rows = dict[int, tuple[str, int]]  # by id: note, part


class History:
    """A table, its writers, and what it must show."""

    def __init__(self, lake: Lake, server: Server, ducks: Ducks, seed: int, *, parted: bool) -> None:
        self.chance = random.Random(seed)
        self.server, self.ducks = server, ducks
        self.name = f"history_{seed}_{'parted' if parted else 'plain'}"
        properties = {} if seed % 2 else {"write.inline.rows": "0"}
        self.ours = lake.create_table(
            f"shop.{self.name}",
            "id bigint, note string, part int",
            partition_by=["part"] if parted else [],
            properties=properties,
        )
        self.rows: Rows = {}
        self.at: dict[int, Rows] = {0: {}}
        self.next_id = 0

    def step(self) -> None:
        writers: list[Callable[[], None]] = [self.append, self.append, self.pyiceberg, self.pyiceberg, self.laketx]
        writers += [lambda: self.duckdb(2), lambda: self.duckdb(3)] * 2
        self.chance.choice(writers)()
        self.at[head(self.ours)] = dict(self.rows)
        assert shown(self.ours.refresh().to_arrow()) == self.rows

    def theirs(self) -> Any:
        return catalog_of(self.server, 2).load_table(f"shop.{self.name}")

    def new(self) -> Rows:
        count = self.chance.choice((1, 3, 40))
        self.next_id += count
        return {one: (self.note(), self.chance.randrange(3)) for one in range(self.next_id - count, self.next_id)}

    def note(self) -> str:
        return f"n{self.chance.randrange(5)}"

    def span(self) -> tuple[str, set[int]]:
        """A condition, and the ids that it is true for."""
        match self.chance.randrange(4):
            case 0:
                note = self.note()
                return f"note = '{note}'", {one for one, row in self.rows.items() if row[0] == note}
            case 1:
                part = self.chance.randrange(3)
                return f"part = {part}", {one for one, row in self.rows.items() if row[1] == part}
            case _:
                low = self.chance.randrange(self.next_id + 1)
                high = low + self.chance.choice((1, 5, 60))
                return f"id >= {low} AND id < {high}", {one for one in self.rows if low <= one < high}

    def append(self) -> None:
        rows = self.new()
        match self.chance.randrange(3):
            case 0:
                self.ours.append(table_of(rows))
            case 1:
                self.theirs().append(table_of(rows))
            case _:
                form = self.chance.choice((2, 3))
                self.ducks[form].execute(f"INSERT INTO lake.shop.{self.name} {selected(rows)}")
        self.rows |= rows

    def laketx(self) -> None:
        condition, gone = self.span()
        self.ours.delete(condition)
        self.drop(gone)

    def pyiceberg(self) -> None:
        condition, gone = self.span()
        match self.chance.randrange(3):
            case 0:
                self.theirs().delete(condition)
                self.drop(gone)
            case 1:
                rows = self.new()
                self.theirs().overwrite(table_of(rows), overwrite_filter=condition)
                self.drop(gone)
                self.rows |= rows
            case _:
                rows = {one: (self.note(), self.rows[one][1]) for one in sorted(gone)[:5]} | self.new()
                self.theirs().upsert(table_of(rows), join_cols=["id"])
                self.rows |= rows

    def duckdb(self, form: int) -> None:
        condition, meant = self.span()
        run, name = self.ducks[form].execute, f"lake.shop.{self.name}"
        match self.chance.randrange(3):
            case 0:
                run(f"DELETE FROM {name} WHERE {condition}")
                self.drop(meant)
            case 1:
                note = self.note()
                run(f"UPDATE {name} SET note = '{note}' WHERE {condition}")
                self.rows |= {one: (note, self.rows[one][1]) for one in meant}
            case _:
                rows = {one: (self.note(), self.rows[one][1]) for one in sorted(meant)[:5]} | self.new()
                run(
                    f"MERGE INTO {name} AS t USING ({selected(rows)}) AS s ON t.id = s.id "
                    "WHEN MATCHED THEN UPDATE SET note = s.note WHEN NOT MATCHED THEN INSERT"
                )
                self.rows |= rows

    def drop(self, gone: set[int]) -> None:
        for one in gone:
            del self.rows[one]

    def check_readers(self) -> None:
        for form in (2, 3):
            scan = catalog_of(self.server, form).load_table(f"shop.{self.name}").scan()
            assert shown(scan.to_arrow()) == self.rows, f"pyiceberg, format {form}"
            read = self.ducks[form].execute(f"SELECT * FROM lake.shop.{self.name}").to_arrow_table()
            assert shown(read) == self.rows, f"DuckDB, format {form}"

    def check_versions(self) -> None:
        """Every version still shows what it showed when it was the newest."""
        known: Rows = {}
        for version in range(max(self.at) + 1):
            known = self.at.get(version, known)
            if version in self.at:
                assert shown(self.ours.to_arrow(version=version)) == known, version


def table_of(rows: Rows) -> pa.Table:
    notes, parts = [row[0] for row in rows.values()], [row[1] for row in rows.values()]
    return pa.table({"id": pa.array(rows, pa.int64()), "note": notes, "part": pa.array(parts, pa.int32())})


def selected(rows: Rows) -> str:
    listed = ", ".join(f"({one}::BIGINT, '{note}', {part}::INT)" for one, (note, part) in rows.items())
    return f"SELECT * FROM (VALUES {listed}) AS v(id, note, part)"


def shown(rows: pa.Table) -> Rows:
    found = rows.select(["id", "note", "part"]).to_pylist()
    by_id = {row["id"]: (row["note"], row["part"]) for row in found}
    assert len(by_id) == len(found), "an id is there twice"
    return by_id


@pytest.mark.parametrize(
    ("seed", "parted"),
    [
        (0, True),
        *(
            pytest.param(seed, parted, marks=pytest.mark.long)
            for seed in range(22)
            for parted in (False, True)
            if (seed, parted) != (0, True)
        ),
    ],
)
def test_random_histories_of_many_writers(lake: Lake, server: Server, ducks: Ducks, seed: int, parted: bool) -> None:
    history = History(lake, server, ducks, seed, parted=parted)
    for number in range(20):
        history.step()
        if number % 10 == 9:
            history.check_readers()
    history.check_versions()


@pytest.mark.long
@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("seed", range(100, 104))
def test_random_histories_with_compactions(lake: Lake, server: Server, ducks: Ducks, seed: int, parted: bool) -> None:
    """What increments say of them adds up to the rows."""
    history = History(lake, server, ducks, seed, parted=parted)
    for number in range(40):
        history.step()
        if number % 4 == 3:
            kind = history.chance.choice(("minor", "major", "cluster"))
            history.ours.compact(kind, sort_by=["id"] if kind == "cluster" else [])
            assert shown(history.ours.refresh().to_arrow()) == history.rows, kind
        if number % 10 == 9:
            history.check_readers()
    history.check_versions()
    for mode in ("changes", "latest"):
        net: Counter[tuple[Any, ...]] = Counter()
        for row in history.ours.changes(since=0, mode=mode).collect():
            net[row["id"], row["note"], row["part"]] += (
                1 if row["_change_type"] in ("insert", "update_postimage") else -1
            )
        assert +net == Counter((one, *row) for one, row in history.rows.items()), mode
        assert not -net, mode


@pytest.mark.long
@pytest.mark.parametrize(("form", "kinds"), [(2, ["delete", "insert"]), (3, ["update_postimage", "update_preimage"])])
def test_increments_show_what_a_client_says_of_rows(lake: Lake, ducks: Ducks, form: int, kinds: list[str]) -> None:
    """Files of format 3 say which row is which."""
    table = lake.create_table(f"shop.increments_{form}", "id bigint, note string")
    ducks[form].execute(f"INSERT INTO lake.{table.name} VALUES (1, 'a'), (2, 'b')")
    ducks[form].execute(f"UPDATE lake.{table.name} SET note = 'z' WHERE id = 2")
    found = table.changes(since=1, mode="changes").collect()
    assert sorted(row["_change_type"] for row in found) == kinds
    assert {row["id"] for row in found} == {2}
