"""Random histories over a lake, its branches, branches of those, and clones, against plain dicts.

Every version of every table on every line is read and compared, under the columns that it has. A merge is compared with
the effects of the branch's commits on the parent, in their order; one that is refused changes nothing. A consumer of
each table reads here and there: what it has seen is the table at its cursor, on every line.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laketx import Lake, MergeRefusedError, connect
from laketx.table import Table
from metaservice.client import BlockedError, GoneError
from protos.laketx.v1 import common_pb2

Row = dict[str, Any]
Rows = dict[int, Row]
Columns = dict[str, str]  # what was added, by a name that it keeps here: its name in the table
# ("put", rows), ("gone", ids), ("clear", partition or None), ("set", all rows), ("same", None), ("alter", None),
# ("name", a column's two names), ("drop", a column)
Effect = tuple[str, Any]

TABLES = {
    "shop.keyed": {"primary_key": ["id", "p"], "partition_by": ["p"], "buckets": 2, "key_scope": "partition"},
    "shop.plain": {},
}
SCHEMA = pa.schema({"id": pa.int64(), "p": pa.int32(), "v": pa.int64()})
REWRITES = (common_pb2.OPERATION_MINOR_COMPACT, common_pb2.OPERATION_MAJOR_COMPACT)
PROFILES = ("maxcompute", "row_level", "delta_serializable")


def applied(rows: Rows, effect: Effect) -> Rows:
    what, given = effect
    if what == "put":
        return {**rows, **given}
    if what == "gone":
        return {one: row for one, row in rows.items() if one not in given}
    if what == "clear":
        return {} if given is None else {one: row for one, row in rows.items() if row["p"] != given}
    if what == "set":
        return dict(given)
    if what == "all":
        for one in given:
            rows = applied(rows, one)
    return dict(rows)


def altered(columns: Columns, effect: Effect) -> Columns:
    what, given = effect
    if what == "name":
        return {**columns, given[0]: given[1]} if given[0] in columns or given[0] == given[1] else dict(columns)
    return {own: name for own, name in columns.items() if (what, own) != ("drop", given)}


@dataclass
class Line:
    """One table on one line: its rows and columns, those of each version, and what was committed since its base."""

    name: str
    rows: Rows = field(default_factory=dict)
    at: dict[int, Rows] = field(default_factory=dict)
    done: list[Effect] = field(default_factory=list)
    columns: Columns = field(default_factory=dict)
    columns_at: dict[int, Columns] = field(default_factory=lambda: {0: {}})

    def did(self, version: int, effect: Effect) -> None:
        self.rows, self.columns = applied(self.rows, effect), altered(self.columns, effect)
        self.at[version], self.columns_at[version] = dict(self.rows), self.columns
        self.done.append(effect)

    def shown(self, version: int) -> Rows:
        columns = self.columns_at[version].items()
        return {
            one: {name: row[name] for name in SCHEMA.names} | {name: row.get(own) for own, name in columns}
            for one, row in self.at[version].items()
        }

    def did_all(self, version: int, effects: list[Effect]) -> None:
        """One commit with several effects."""
        self.did(version, ("all", effects))

    def forked(self, name: str, version: int) -> Line:
        kept = {one: dict(rows) for one, rows in self.at.items() if one <= version}
        columns = {one: names for one, names in self.columns_at.items() if one <= version}
        return Line(name, dict(self.at[version]), kept, [], columns[version], columns)


class World:
    """A lake and what it must show."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.chance = random.Random(seed)
        self.fresh = 0
        self.lines: dict[str, dict[str, Line]] = {"": {}}  # by branch, of those that were asked for there
        self.left: dict[str, dict[str, Line]] = {}  # what the parent's tables were when a branch left
        self.parents: dict[str, str] = {}
        self.clones: list[Line] = []
        self.merged = self.refused = self.forward = self.refreshed = 0
        self.left_before: dict[str, Line] = {}
        profile = self.chance.choice(PROFILES)
        self.guarded = self.chance.choice(["", "", *TABLES])  # it takes commits by merges alone
        for name, options in TABLES.items():
            given = {"write.only_by_merge": "true"} if name == self.guarded else {}
            lake.create_table(name, "id bigint, p int, v bigint", profile=profile, properties=given, **options)  # type: ignore[arg-type]
            self.lines[""][name] = Line(name, at={0: {}})
            lake.table(name).cursor("etl", version=0)
        self.seen: dict[str, Rows] = {name: {} for name in TABLES}  # by the consumer of a line that has used its cursor
        self.moved: set[str] = set()  # lines of branches whose cursor is elsewhere than the branch found it

    # -- lines

    def line(self, branch: str, name: str) -> Line:
        """A table on a branch; the first look forks it."""
        known = self.lines[branch].get(name)
        if known is None:
            before = self.left[branch][name]
            known = self.lines[branch][name] = before.forked(f"{name}@{branch}", max(before.at))
        return known

    def some_line(self) -> Line:
        if self.clones and self.chance.random() < 0.15:
            return self.chance.choice(self.clones)
        branch = self.chance.choice(list(self.lines))
        return self.line(branch, self.chance.choice(list(TABLES)))

    def table(self, line: Line) -> Table:
        return self.lake.table(line.name)

    # -- operations

    def step(self) -> None:
        weights = {
            self.insert: 8, self.update: 5, self.delete: 4, self.overwrite: 2, self.compact: 3, self.restore: 1,
            self.alter: 2, self.consume: 2,
            self.branch: 4, self.merge: 4, self.refresh: 3, self.drop: 1, self.clone: 1, self.look: 5,
        }  # fmt: skip
        try:
            self.chance.choices(list(weights), list(weights.values()))[0]()
        except BlockedError as refusal:
            if refusal.reason != "ONLY_BY_MERGE" or not self.guarded:
                raise

    def insert(self) -> None:
        line = self.some_line()
        rows: Rows = {}
        for _ in range(self.chance.randint(1, 4)):
            row = self._row()
            if "keyed" in line.name and line.rows and self.chance.random() < 0.4:
                row = dict(self.chance.choice(list(line.rows.values()))) | {"v": row["v"]}
            filled = [own for own in line.columns if self.chance.random() < 0.5]
            rows[row["id"]] = {name: row[name] for name in SCHEMA.names} | dict.fromkeys(filled, row["v"] + 7)
        table, names = self.table(line), dict(line.columns)
        schema = pa.schema([*SCHEMA, *((name, pa.int32()) for name in names.values())])
        given = [{names.get(own, own): cell for own, cell in row.items()} for row in rows.values()]
        done = table.insert(pa.Table.from_pylist(given, schema=schema))
        line.did(done.version, ("put", rows))

    def _row(self) -> Row:
        self.fresh += 1
        return {"id": self.fresh, "p": self.chance.randint(0, 2), "v": self.chance.randint(0, 99)}

    def _chosen(self, line: Line) -> list[int]:
        return self.chance.sample(list(line.rows), min(len(line.rows), self.chance.randint(1, 3)))

    def update(self) -> None:
        line = self.some_line()
        chosen = self._chosen(line)
        if not chosen:
            return
        done = self.table(line).update({"v": "v + 100"}, where=f"id in ({', '.join(map(str, chosen))})")
        images = {one: line.rows[one] | {"v": line.rows[one]["v"] + 100} for one in chosen}
        line.did(done.version, ("put", images))

    def delete(self) -> None:
        line = self.some_line()
        chosen = self._chosen(line)
        if not chosen:
            return
        done = self.table(line).delete(f"id in ({', '.join(map(str, chosen))})")
        line.did(done.version, ("gone", set(chosen)))

    def overwrite(self) -> None:
        line = self.some_line()
        if "keyed" not in line.name:
            done = self.table(line).truncate()
            line.did(done.version, ("clear", None))
            return
        row = self._row()
        done = self.table(line).overwrite([row], partition="dynamic")
        line.did_all(done.version, [("clear", row["p"]), ("put", {row["id"]: row})])

    def compact(self) -> None:
        line = self.some_line()
        table = self.table(line)
        before = table.meta.head_version
        table.compact(self.chance.choice(["minor", "major"]))
        head = table.refresh().meta.head_version
        for version in range(before + 1, head + 1):
            line.did(version, ("same", None))

    def alter(self) -> None:
        """Changes what readers don't see, or columns: adds one, renames one, drops one."""
        line = self.some_line()
        table = self.table(line)
        self.fresh += 1
        effect: Effect = ("alter", None)
        own = self.chance.choice(list(line.columns)) if line.columns else ""
        match self.chance.choice(["set", "add", "add", "rename", "drop"]):
            case "rename" if own:
                effect = ("name", (own, f"named{self.fresh}"))
                table.rename_column(line.columns[own], effect[1][1])
            case "drop" if own:
                effect = ("drop", own)
                table.drop_column(line.columns[own])
            case "add":
                effect = ("name", (f"extra{self.fresh}",) * 2)
                table.add_columns(f"extra{self.fresh} int")
            case _:
                table.set_properties(**{"user.mark": str(self.fresh)})
        line.did(table.refresh().meta.head_version, effect)

    def consume(self) -> None:
        branch = self.chance.choice(list(self.lines))
        line = self.line(branch, self.chance.choice(list(TABLES)))
        table = self.table(line)
        cursor = table.cursor("etl")
        before = cursor.version
        if line.name in self.seen:
            assert self.seen[line.name] == line.at[before]
        try:
            cursor.to_arrow(mode="latest", until=self.chance.randint(before, table.meta.head_version))
        except GoneError:
            return
        after = cursor.advance()
        self.seen[line.name] = dict(line.at[after])
        if branch and after != before:
            self.moved.add(line.name)

    def check_consumer(self, line: Line) -> None:
        """What it has seen is the table at its cursor: nothing was left out by a merge, and nothing comes twice."""
        found = [one for one in self.lake.client.list_cursors(self.table(line).table_id) if one.name == "etl"]
        assert self.seen[line.name] == line.at[found[0].version], line.name

    def _consumers_of(self, branch: str, parent: str) -> None:
        """A merge hands what they have seen to the parent."""
        for name in TABLES:
            mine, above = f"{name}@{branch}", self.line(parent, name)
            if mine in self.moved:
                self.seen[above.name] = self.seen[mine]
                if parent:
                    self.moved.add(above.name)
            self.seen.pop(mine, None)
            self.moved.discard(mine)
            if above.name in self.seen:
                self.check_consumer(above)

    def restore(self) -> None:
        line = self.some_line()
        version = self.chance.choice(list(line.at))
        try:
            done = self.table(line).restore(version=version)
        except GoneError:
            return
        line.did(done.version, ("set", dict(line.at[version])))

    def branch(self) -> None:
        if len(self.lines) > 4:
            return
        parent = self.chance.choice(list(self.lines))
        name = f"b{self.fresh}_{len(self.lines)}"
        if name in self.lines:
            return
        self.lake.branch(name, parent=parent)
        self.leave(name, parent)
        self.lines[name], self.parents[name] = {}, parent

    def _leaf(self) -> str | None:
        leaves = [one for one in self.parents if one not in self.parents.values()]
        return self.chance.choice(leaves) if leaves else None

    def merge(self) -> None:
        branch = self._leaf()
        if branch is None:
            return
        parent = self.parents[branch]
        keep = self.chance.random() < 0.3
        handle = self.lake.branch(branch)
        would = handle.merge(dry_run=True)
        heads = {one: self.lake.table(self.line(parent, one).name).meta.head_version for one in TABLES}
        if any(one.reason for one in would):
            with pytest.raises(MergeRefusedError):
                handle.merge(keep=keep)
            assert heads == {one: self.lake.table(self.line(parent, one).name).meta.head_version for one in TABLES}
            self.refused += 1
            return
        assert handle.merge(keep=keep) == would
        self.merged += 1
        for name, line in self.lines[branch].items():
            above = self.line(parent, name)
            effects = [one for one in line.done if one[0] != "same"]
            forward = heads[name] == max(self.left[branch][name].at)
            self.forward += forward and bool(line.done)
            for effect in line.done if forward else effects:
                heads[name] += 1
                above.did(heads[name], effect)
        self._consumers_of(branch, parent)
        del self.lines[branch]
        if keep:
            self.leave(branch, parent)
            self.lines[branch] = {}
        else:
            del self.parents[branch], self.left[branch]
        self.look_at_all(parent)

    def refresh(self) -> None:
        """The branch begins anew as its parent is, with its own commits on top: the same as a merge leaves there."""
        branch = self._leaf()
        if branch is None:
            return
        parent, handle = self.parents[branch], self.lake.branch(branch)
        would = handle.refresh(dry_run=True)
        if any(one.reason for one in would):
            with pytest.raises(MergeRefusedError):
                handle.refresh()
            self.refused += 1
            return
        done, self.lines[branch], before = handle.refresh(), {}, self.lines[branch]
        assert done == would
        self.refreshed += 1
        self.leave(branch, parent)
        for name, line in before.items():
            if not line.done:
                continue
            base, forward = max(self.left[branch][name].at), max(self.left_before[name].at)
            anew = self.line(branch, name)
            for effect in line.done if base == forward else [one for one in line.done if one[0] != "same"]:
                base += 1
                anew.did(base, effect)
        for name in TABLES:
            mine = f"{name}@{branch}"
            if mine in self.moved:
                self.check_consumer(self.line(branch, name))
            else:
                self.seen.pop(mine, None)
        self.look_at_all(branch)

    def leave(self, branch: str, parent: str) -> None:
        """What the branch shows is its parent's present."""
        self.left_before = self.left.get(branch, {})
        self.left[branch] = {one: line.forked(one, max(line.at)) for one in TABLES for line in [self.line(parent, one)]}

    def drop(self) -> None:
        branch = self._leaf()
        if branch is None or self.chance.random() < 0.5:
            return
        self.lake.branch(branch).drop()
        del self.lines[branch], self.parents[branch], self.left[branch]

    def clone(self) -> None:
        line = self.some_line()
        version = self.chance.choice(list(line.at))
        name = f"shop.clone{self.fresh}_{len(self.clones)}_{'keyed' if 'keyed' in line.name else 'plain'}"
        self.lake.clone_table(line.name, name, version=version)
        self.clones.append(line.forked(name, version))

    # -- reads

    def look(self) -> None:
        line = self.some_line()
        self.check(line, self.chance.choice(list(line.at)))

    def look_at_all(self, branch: str) -> None:
        for name in TABLES:
            line = self.line(branch, name)
            self.check(line, max(line.at))

    def check(self, line: Line, version: int) -> None:
        table = self.table(line)
        read = table.to_arrow(version=version)
        found = {row["id"]: row for row in read.to_pylist()}
        assert found == line.shown(version), (line.name, version)
        assert len(found) == read.num_rows
        assert set(read.column_names) == {*SCHEMA.names, *line.columns_at[version].values()}, (line.name, version)

    def check_everything(self) -> None:
        for branch in list(self.lines):
            for name in TABLES:
                line = self.line(branch, name)
                assert self.table(line).meta.head_version == max(line.at), line.name
                for version in line.at:
                    self.check(line, version)
        for line in self.clones:
            for version in line.at:
                self.check(line, version)
        if self.guarded:
            commits = list(self.lake.client.list_versions(self.lake.table(self.guarded).table_id))
            assert all(
                "laketx.branch" in each.properties
                for each in commits
                if each.version and each.operation not in (*REWRITES, common_pb2.OPERATION_ALTER)
            )
        problems = [problem for part in self.lake.client.check() for problem in part.problems]
        assert problems == []


def run(folder: Path, seed: int, steps: int) -> World:
    with connect(folder) as lake:
        world = World(lake, seed)
        for _ in range(steps):
            world.step()
        world.check_everything()
        return world


@pytest.mark.parametrize("seed", range(4))
def test_every_line_shows_its_rows(tmp_path: Path, seed: int) -> None:
    world = run(tmp_path, seed, steps=80)
    assert world.merged + world.refused > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_every_line_shows_its_rows_in_many_histories(tmp_path: Path, seed: int) -> None:
    world = run(tmp_path, seed, steps=250)
    assert world.merged + world.refused > 0
