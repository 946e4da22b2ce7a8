"""Images that set single columns, against a dict; concurrency by cells; doors that are closed."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest

from laketx import ConflictError, InputError, Lake, Table, connect
from laketx.input_rows import arrow_rows
from laketx.merge_builder import MergeBuilder
from metaservice.client import BlockedError, InvalidError
from protos.laketx.v1 import common_pb2
from worker.arrow.write.merge import plan_merge
from worker.arrow.write.merge_sources import source_of_dicts
from worker.arrow.write.updates import plan_update
from worker.arrow.write.writes import plan_delete, plan_upsert
from worker.commit.transaction import run_writes
from worker.commit.writes import Write

COLUMNS = "id bigint, a int, b int default 7, c string, n int not null default 3"
NEW = {"a": None, "b": 7, "c": None, "n": 3}
VALUES: dict[str, Sequence[Any]] = {"a": [1, 2, None], "b": [5, 6, None], "c": ["x", "y", None], "n": [3, 4]}
KEYS = 10
Row = dict[str, Any]
Sets = dict[int, frozenset[str] | None]


class Rows(dict[int, Row]):
    """The rows by their keys, and what the last change set of each that it wrote: None is the whole row."""

    def __init__(self, rows: dict[int, Row] | None = None) -> None:
        super().__init__({key: dict(row) for key, row in (rows or {}).items()})
        self.sets: Sets = {}
        self.are_replaced = False

    def put(self, row: Row, names: Collection[str] | None) -> None:
        self[row["id"]] = row
        others = frozenset(names or VALUES) - {"id"}
        self.sets[row["id"]] = None if names is None or len(others) == len(VALUES) else others

    def drop(self, key: int) -> None:
        if self.pop(key, None) is not None:
            self.sets[key] = None


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("partial")) as made:
        yield made


def made(lake: Lake, name: str, profile: str = "row_level", *, buckets: int = 1, inline_rows: int = 1_000) -> Table:
    properties = {"merge.engine": "partial", "write.inline.rows": str(inline_rows)}
    return lake.create_table(name, COLUMNS, primary_key=["id"], buckets=buckets, profile=profile, properties=properties)


def found(table: Table, version: int | None = None, where: str | None = None) -> Rows:
    rows = table.to_arrow(version=version, where=where).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), rows
    return Rows({row["id"]: row for row in rows})


# -- histories ---------------------------------------------------------------------------------------------------------


class History:
    """Writes at the newest version, and in transactions that others overtake, against a dict."""

    def __init__(self, lake: Lake, table: Table, chance: random.Random) -> None:
        self.lake = lake
        self.table = table
        self.chance = chance
        self.rows = Rows()
        self.states: dict[int, Rows] = {0: Rows()}  # with what each version set
        self.late: list[tuple[Any, Callable[[Rows], None]]] = []
        self.lost = self.passed = 0

    def some_rows(self, *, whole: bool = False) -> list[Row]:
        """Rows with some of the columns each; what a row lacks it leaves as it is."""
        rows = []
        for key in self.chance.sample(range(KEYS), self.chance.randint(1, 4)):
            names = list(VALUES) if whole else self.chance.sample(list(VALUES), self.chance.randint(0, 3))
            rows.append({"id": key, **{name: self.chance.choice(VALUES[name]) for name in names}})
        return rows

    def step(self) -> None:
        kinds = ["now"] * 6 + ["begin"] * 3 + ["end"] * 3 + ["minor", "minor", "major", "restore", "overwrite"]
        match self.chance.choice(kinds):
            case "now":
                write, effect = self.change()
                write(self.table)
                effect(self.rows)
            case "begin" if len(self.late) < 3:
                txn = self.lake.transaction()
                txn.__enter__()
                write, effect = self.change()
                write(txn.table(self.table.name))
                self.late.append((txn, effect))
            case "end" if self.late:
                self.end()
            case "minor" | "major" as how:
                self.table.compact(how)
            case "restore":
                version = self.chance.choice(sorted(self.states))
                self.table.restore(version=version)
                self.rows = replaced(self.rows, self.states[version])
            case "overwrite" if self.chance.random() < 0.5:
                rows = self.some_rows(whole=True)
                self.table.overwrite(rows)
                self.rows = replaced(self.rows, Rows({row["id"]: row for row in rows}))
        self.look()

    def look(self) -> None:
        assert found(self.table) == self.rows
        keys = self.chance.sample(range(KEYS), 3)
        looked_up = {row["id"]: row for row in self.table.get(keys).to_pylist()}
        assert looked_up == {key: self.rows[key] for key in keys if key in self.rows}
        both = {key: row for key, row in self.rows.items() if row["a"] == 1 and row["b"] == 5}
        assert found(self.table, where="a = 1 AND b = 5") == both  # set by different images, perhaps
        state = self.states.setdefault(self.table.refresh().meta.head_version, Rows(self.rows))
        state.sets = state.sets or self.rows.sets
        state.are_replaced |= self.rows.are_replaced
        self.rows.sets, self.rows.are_replaced = {}, False

    def change(self) -> tuple[Callable[[Any], Any], Callable[[Rows], None]]:
        """A change, and what it does to the rows."""
        rows, key = self.some_rows(), self.chance.randrange(KEYS)
        name = self.chance.choice(["a", "b"])
        other = "b" if name == "a" else "a"
        kinds = ["upsert"] * 4 + ["set", "set", "add", "add", "delete", "merge", "stream", "whole"]
        match self.chance.choice([*kinds, "merge some", "merge found", "merge found", "merge both", "merge both"]):
            case "set":
                value = self.chance.choice(VALUES[name])
                where = lambda row: row[other] == 5 or row["id"] == key  # noqa: E731
                return (
                    lambda table: table.update({name: value}, where=f"{other} = 5 OR id = {key}"),
                    lambda state: put(state, where, lambda _: {name: value}),
                )
            case "add":
                return (
                    lambda table: table.update({name: f"{other} + 1"}, where=f"id >= {key}"),
                    lambda state: put(state, lambda row: row["id"] >= key, lambda row: {name: plus_one(row[other])}),
                )
            case "delete":
                return (
                    lambda table: table.delete(f"{name} = 1 OR id = {key}"),
                    lambda state: drop(state, lambda row: row[name] == 1 or row["id"] == key),
                )
            case "merge some":  # as an upsert
                some = [{"id": row["id"], name: self.chance.choice(VALUES[name])} for row in rows]
                return (
                    lambda table: table.merge(some, on="id").when_matched_update().when_not_matched_insert().execute(),
                    lambda state: upserted(state, some),
                )
            case "merge found":  # it makes no row, and reads the other column
                some = [{"id": row["id"], "x": 1} for row in rows]
                keys = {row["id"] for row in rows}
                return (
                    lambda table: (
                        table.merge(some, on="id")
                        .when_matched_update({name: "source.x"}, condition=f"target.{other} = 5")
                        .execute()
                    ),
                    lambda state: put(state, lambda row: row["id"] in keys and row[other] == 5, lambda _: {name: 1}),
                )
            case "merge both":  # new rows are whole; rows that the source lacks go, perhaps
                some = [{"id": row["id"], "x": self.chance.choice((1, 5))} for row in rows]
                deletes = self.chance.random() < 0.3

                def merge(table: Any) -> Any:
                    begun = table.merge(some, on="id").when_matched_update({name: "source.x"})
                    begun = begun.when_not_matched_insert({"id": "source.id", "c": "'new'", name: "source.x"})
                    return (
                        begun.when_not_matched_by_source_delete(condition="target.a = 2") if deletes else begun
                    ).execute()

                return merge, lambda state: merged(state, some, name, deletes=deletes)
            case "merge":
                whole = self.some_rows(whole=True)
                return (
                    lambda table: table.merge(whole, on="id").when_matched_update().when_not_matched_insert().execute(),
                    lambda state: whole_rows(state, whole),
                )
            case "whole":
                whole = self.some_rows(whole=True)
                return (
                    lambda table: table.upsert(whole),
                    lambda state: whole_rows(state, whole),
                )
            case "stream":
                given = [{"id": row["id"], "a": 1, "op": self.chance.choice("uud"), "at": 1} for row in rows]
                return lambda table: table.apply_changes(given, op="op", sequence="at"), lambda state: streamed(
                    state, given
                )
            case _:
                return lambda table: table.upsert(rows), lambda state: upserted(state, rows)

    def end(self) -> None:
        txn, effect = self.late.pop(self.chance.randrange(len(self.late)))
        try:
            txn.__exit__(None, None, None)
        except ConflictError:
            self.lost += 1
        else:
            self.passed += 1
            effect(self.rows)


def upserted(state: Rows, rows: Sequence[Row]) -> None:
    for row in rows:
        state.put({"id": row["id"], **NEW, **state.get(row["id"], {}), **row}, row)


def whole_rows(state: Rows, rows: Sequence[Row]) -> None:
    for row in rows:
        state.put(dict(row), None)


def merged(state: Rows, some: Sequence[Row], name: str, *, deletes: bool) -> None:
    keys = {row["id"] for row in some}
    if deletes:
        drop(state, lambda row: row["a"] == 2 and row["id"] not in keys)
    for row in some:
        old = state.get(row["id"])
        new = {"id": row["id"], **NEW, "c": "new"} if old is None else old
        state.put({**new, name: row["x"]}, None if old is None else [name])


def replaced(before: Rows, after: Rows) -> Rows:
    result = Rows(after)
    result.sets = dict.fromkeys([*before, *after])
    result.are_replaced = True
    return result


def put(state: Rows, where: Callable[[Row], bool], values: Callable[[Row], Row]) -> None:
    for row in list(state.values()):
        if where(row):
            state.put({**row, **values(row)}, values(row))


def drop(state: Rows, where: Callable[[Row], bool]) -> None:
    for key in [key for key, row in state.items() if where(row)]:
        state.drop(key)


def streamed(state: Rows, given: Sequence[Row]) -> None:
    for one in given:
        if one["op"] == "d":
            state.drop(one["id"])
        else:
            upserted(state, [{"id": one["id"], "a": one["a"]}])


def plus_one(value: int | None) -> int | None:
    return None if value is None else value + 1


def told(table: Table, states: dict[int, Rows]) -> Rows:
    """The rows by the whole history as increments, whose images before and after are whole and say what was set."""
    rows = Rows()
    by_version: dict[int, list[Row]] = {}
    for one in table.to_arrow(since=0, mode="log").to_pylist():
        by_version.setdefault(one["_commit_version"], []).append(one)
    for version, changes in sorted(by_version.items()):
        before = {one["id"]: bare(one) for one in changes if one["_change_type"] in ("delete", "update_preimage")}
        after = {one["id"]: bare(one) for one in changes if one["_change_type"] in ("insert", "update_postimage")}
        assert {key: rows[key] for key in before} == before
        rows = Rows({key: row for key, row in rows.items() if key not in before} | after)
        assert rows == states[version]
        for one in changes:
            assert names_set(one) == states[version].sets[one["id"]], one
    return rows


def names_set(change: Row) -> frozenset[str] | None:
    names = change["_set_columns"]
    return None if names is None else frozenset(names)


def check_range(table: Table, states: dict[int, Rows], since: int, until: int) -> None:
    """The difference of two versions says what all changes in between set, or none where one wrote the row whole.

    It begins after whatever replaced all rows: that may have left a bucket as it was.
    """
    since = max([since, *(version for version in states if states[version].are_replaced and version <= until)])
    united: Sets = {}
    for version in sorted(states):
        if since < version <= until:
            for key, names in states[version].sets.items():
                before = united.get(key, frozenset())
                united[key] = None if names is None or before is None else before | names
    for one in table.to_arrow(since=since, until=until, mode="changes").to_pylist():
        assert names_set(one) == united[one["id"]], (one, since, until)


def bare(row: Row) -> Row:
    return {name: row[name] for name in ("id", *VALUES)}


def play(lake: Lake, profile: str, seed: int, steps: int) -> History:
    chance = random.Random(f"{profile} {seed}")
    table = made(
        lake, f"h_{profile}_{seed}", profile, buckets=chance.choice([1, 3]), inline_rows=chance.choice([0, 99])
    )
    history = History(lake, table, chance)
    for _ in range(steps):
        history.step()
    while history.late:
        history.end()
        history.look()
    for version, rows in history.states.items():
        assert found(table, version) == rows
    assert told(table, history.states) == history.rows
    for _ in range(5):
        check_range(table, history.states, *sorted(chance.sample(sorted(history.states), 2)))
    return history


@pytest.mark.parametrize(("profile", "seed"), [("row_level", 0), ("maxcompute", 0)])
def test_images_fold_as_a_dict_does(lake: Lake, profile: str, seed: int) -> None:
    history = play(lake, profile, seed, 40)
    assert history.passed
    assert history.lost


@pytest.mark.long
@pytest.mark.parametrize("profile", ["maxcompute", "row_level", "delta_serializable", "delta_write_serializable"])
@pytest.mark.parametrize("seed", range(100, 130))
def test_images_fold_as_a_dict_does_in_many_histories(lake: Lake, profile: str, seed: int) -> None:
    assert play(lake, profile, seed, 120).states


# -- concurrency by cells ----------------------------------------------------------------------------------------------


class Late:
    """Writes that begin at the version that the table had when this was made."""

    def __init__(self, lake: Lake, table: Table) -> None:
        self.lake = lake
        self.view = table.refresh().view

    def upsert(self, rows: list[Row]) -> None:
        self.run(plan_upsert(self.view, arrow_rows(rows, self.view.meta)))

    def update(self, values: Row, where: str) -> None:
        self.run(plan_update(self.view, values, where))

    def delete(self, where: str) -> None:
        self.run(plan_delete(self.view, where))

    def merge(self, rows: list[Row], on: str) -> MergeBuilder[None]:
        source = source_of_dicts(rows, self.view.meta)
        return MergeBuilder(lambda clauses, _: self.run(plan_merge(self.view, source, on, clauses)))

    def run(self, write: Write) -> None:
        run_writes(self.lake, lambda: [write.at(self.view.meta.head_version)], on_conflict="fail")


def both(lake: Lake, table: Table, mine: Callable[[Any], Any], theirs: Callable[[Any], Any]) -> ConflictError | None:
    """Two writes that begin at one version; the error of the first, if it loses to the other."""
    late = Late(lake, table)
    theirs(table)
    try:
        mine(late)
    except ConflictError as error:
        return error
    return None


def update(column: str, value: Any, where: str = "id >= 0") -> Callable[[Any], Any]:
    return lambda table: table.update({column: value}, where=where)


def upsert(**values: Any) -> Callable[[Any], Any]:
    return lambda table: table.upsert([{"id": 1, **values}])


def merge(
    on: str = "target.id = source.id", *, keys: Sequence[int] = (1,), then: str = "", if_new: Any = None, **values: Any
) -> Callable[[Any], Any]:
    """A MERGE that sets these values of rows that it finds; `if_new`: and makes those that it doesn't."""

    def change(table: Any) -> Any:
        begun = table.merge([{"id": key} for key in keys], on=on).when_matched_update(values, condition=then or None)
        return (begun if if_new is None else begun.when_not_matched_insert({"id": "source.id", **if_new})).execute()

    return change


def merge_all(*keys: int, **values: Any) -> Callable[[Any], Any]:
    """A MERGE that is an upsert of some columns."""
    rows = [{"id": key, **values} for key in keys]
    return lambda table: table.merge(rows, on="id").when_matched_update().when_not_matched_insert().execute()


Change = Callable[[Any], Any]
APART: dict[str, tuple[Change, Change, Row]] = {
    "updates": (update("a", 8), update("b", 9), {"a": 8, "b": 9}),
    "upserts": (upsert(a=8), upsert(b=9), {"a": 8, "b": 9}),
    "an update of an upserted row": (update("a", 8, "id = 1"), upsert(b=9), {"a": 8, "b": 9}),
    "an upsert of an updated row": (upsert(a=8), update("b", 9), {"a": 8, "b": 9}),
    "an expression": (update("a", "n + 1"), update("b", None), {"a": 4, "b": None}),
    "a condition": (update("a", 8, "n = 3"), update("b", 9), {"a": 8, "b": 9}),
    "rows apart": (update("a", 8, "id = 1"), update("a", 9, "id = 2"), {"a": 8}),
    "merges": (merge(a=8), merge(b=9), {"a": 8, "b": 9}),
    "merges of some rows that both find": (merge(a=8, keys=(1, 7)), merge(b=9, keys=(2, 1)), {"a": 8, "b": 9}),
    "a merge that finds rows that an upsert made": (merge(a=8), upsert(b=9), {"a": 8, "b": 9}),
    "a merge that makes no rows, a condition": (
        merge(a="target.a + target.n", then="target.n = 3", if_new={}),
        merge(b=9, if_new={}, keys=(1, 2)),
        {"a": 4, "b": 9},
    ),
    "an update, a merge that makes no row": (update("a", 8), merge(b=9, if_new={}), {"a": 8, "b": 9}),
    "upserts by merge, of new rows too": (merge_all(1, 7, a=8), merge_all(7, 1, b=9), {"a": 8, "b": 9}),
    "an upsert by merge, an upsert": (merge_all(1, 7, a=8), upsert(b=9), {"a": 8, "b": 9}),
}
MEET: dict[str, tuple[Change, Change]] = {
    "one column": (update("a", 8), update("a", 9)),
    "one column upserted": (upsert(a=8), upsert(a=9)),
    "what an expression reads": (update("a", "b + 1"), update("b", 9)),
    "what a condition reads": (update("a", 8, "b = 5"), update("b", 9)),
    "what a delete reads": (lambda table: table.delete("b = 5"), update("b", 9)),
    "a deleted row": (update("a", 8, "id = 1"), lambda table: table.delete("id = 1")),
    "a whole row": (upsert(a=8), upsert(a=1, b=1, c="x", n=1)),
    "a merge of one column": (merge(a=8), merge(a=9)),
    "a merge of a row that is made since": (merge(a=8, keys=(1, 7)), lambda table: table.upsert([{"id": 7, "b": 9}])),
    "a row that two merges make": (merge(a=8, if_new={}, keys=(1, 7)), merge(b=9, if_new={}, keys=(7,))),
    "a merge that makes a row, and changes one in its file": (merge(a=8, if_new={}, keys=(1, 7)), update("b", 9)),
    "a row that an upsert by merge makes": (update("a", 8), merge_all(1, 7, b=9)),
    "a merge that makes a row": (update("a", 8), merge(b=9, if_new={}, keys=(1, 7))),
    "what a merge's ON reads": (merge("target.id = source.id AND target.b = 5", a=8), merge(b=9)),
    "what a merge's condition reads": (merge(a=8, then="target.b = 5"), merge(b=9)),
    "what a merge's value reads": (merge(a="target.b + 1"), merge(b=9)),
    "a row that a merge found": (merge(a=8), lambda table: table.delete("id = 1")),
    "an upsert by merge of a row that is gone": (merge_all(1, a=8), lambda table: table.delete("id = 1")),
    "a row that a merge deletes": (
        lambda table: table.merge([{"id": 1}], on="id").when_matched_delete().execute(),
        merge(b=9),
    ),
    "a deleting merge": (
        merge(a=8),
        lambda table: table.merge([{"id": 1}], on="id").when_matched_delete().execute(),
    ),
    "a new row": (update("a", 8), lambda table: table.upsert([{"id": 5, "b": 9}])),
    "other rows": (update("a", 8), lambda table: table.overwrite([{"id": 1, "a": 1, "b": 1, "c": "x", "n": 1}])),
}


COLUMNS_MET = {  # those that the winner set; a row that is new, or whole, and a tombstone name none
    "one column": {"a"},
    "one column upserted": {"a"},
    "what an expression reads": {"b"},
    "what a condition reads": {"b"},
    "what a delete reads": {"b"},
    "a merge of one column": {"a"},
    "a merge that makes a row, and changes one in its file": {"b"},
    "a row that a merge deletes": {"b"},
    "what a merge's ON reads": {"b"},
    "what a merge's condition reads": {"b"},
    "what a merge's value reads": {"b"},
}


def two_rows(lake: Lake, name: str, inline_rows: int) -> Table:
    table = made(lake, name, inline_rows=inline_rows)
    table.upsert([{"id": key, "a": 1, "b": 5, "c": "x", "n": 3} for key in (1, 2)])
    return table


@pytest.mark.parametrize("case", APART)
def test_writers_of_different_cells_both_commit(lake: Lake, case: str) -> None:
    mine, theirs, wanted = APART[case]
    table = two_rows(lake, f"apart_{list(APART).index(case)}", inline_rows=99)
    assert both(lake, table, mine, theirs) is None
    row = found(table)[1]
    assert {name: row[name] for name in wanted} == wanted


@pytest.mark.parametrize("case", MEET)
def test_writers_of_one_cell_conflict_and_so_do_those_who_read_it(lake: Lake, case: str) -> None:
    mine, theirs = MEET[case]
    table = two_rows(lake, f"meet_{list(MEET).index(case)}", inline_rows=99)
    lost = both(lake, table, mine, theirs)
    assert lost is not None
    names = {column.name for column in table.meta.columns if column.column_id in lost.conflict.columns}
    assert names == COLUMNS_MET.get(case, set())


def test_any_number_of_rows_commutes_by_cells(lake: Lake) -> None:
    count = common_pb2.LIMIT_KEYS_NAMED + 1  # more than a change names
    table = made(lake, "many", inline_rows=0, buckets=4)
    table.upsert([{"id": key, "a": 1, "b": 1} for key in range(count)])
    assert both(lake, table, update("a", "a + 1"), update("b", "b + 1")) is None
    assert both(lake, table, update("a", "a + 1"), update("a", "a + 2")) is not None
    rows = table.to_arrow(columns=["a", "b"]).to_pylist()
    assert len(rows) == count
    assert all(row == {"a": 4, "b": 2} for row in rows)


def test_a_branch_merges_cells_that_its_parent_left_alone(lake: Lake) -> None:
    table = two_rows(lake, "s.branched", inline_rows=99)
    branch = lake.branch("cells")
    branch.table("s.branched").update({"a": 8}, where="id = 1")
    table.update({"b": 9}, where="id = 1")
    branch.merge()
    assert found(table)[1] == {"id": 1, "a": 8, "b": 9, "c": "x", "n": 3}


# -- what else a table meets -------------------------------------------------------------------------------------------


def test_a_column_is_known_by_what_its_id_says(lake: Lake) -> None:
    """Columns move, change their names, go and come; images of before keep what they set."""
    table = two_rows(lake, "evolved", inline_rows=0)
    table.upsert([{"id": 1, "b": 6}])
    table.rename_column("a", "z")
    table.rename_column("b", "a")
    table.drop_column("c")
    table.add_columns("b int")
    table.upsert([{"id": 1, "b": 4}])
    wanted = {"id": 1, "z": 1, "a": 6, "n": 3, "b": 4}
    assert table.get([1]).to_pylist() == [wanted]
    table.compact("minor")
    assert next(row for row in table.to_arrow().to_pylist() if row["id"] == 1) == wanted


def test_a_row_of_a_key_alone_is_there_and_changes_nothing(lake: Lake) -> None:
    table = two_rows(lake, "keys_alone", inline_rows=99)
    table.upsert([{"id": 1}, {"id": 4}])
    assert found(table)[1]["b"] == 5
    assert found(table)[4] == {"id": 4, **NEW}


def test_a_writer_keeps_what_earlier_rows_of_a_key_set(lake: Lake) -> None:
    table = two_rows(lake, "grouped", inline_rows=99)
    with table.writer(flush_ms=2_000) as writer:
        for row in ({"id": 1, "a": 8}, {"id": 1, "B": 9}, {"id": 1, "b": None}):
            writer.write(row)
    assert found(table)[1] == {"id": 1, "a": 8, "b": None, "c": "x", "n": 3}


def test_partitions_have_images_of_their_own(lake: Lake) -> None:
    table = lake.create_table(
        "parted",
        "id bigint, day string, a int, b int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="partition",
        buckets=1,
        properties={"merge.engine": "partial"},
    )
    table.upsert([{"id": 1, "day": day, "a": 1, "b": 1} for day in "xy"])
    table.upsert([{"id": 1, "day": "x", "b": 2}])
    table.update({"day": "'z'"}, where="day = 'y'")  # it moves whole
    rows = sorted(map(repr, table.to_arrow().to_pylist()))
    assert rows == [repr({"id": 1, "day": "x", "a": 1, "b": 2}), repr({"id": 1, "day": "z", "a": 1, "b": 1})]
    with pytest.raises(InputError, match="COLUMN_MISSING"):
        table.upsert([{"id": 1, "b": 2}])
    with pytest.raises(InputError, match="COLUMN_MISSING"):
        table.upsert([{"id": 1, "day": "x", "b": 2}, {"id": 2, "b": 2}])


def test_a_clone_and_inlined_rows_fold_too(lake: Lake) -> None:
    table = two_rows(lake, "cloned", inline_rows=99)
    table.upsert([{"id": 1, "b": None}])
    lake.clone_table("cloned", "clone")
    clone = lake.table("clone")
    clone.upsert([{"id": 1, "a": 4}])
    assert found(clone)[1] == {"id": 1, "a": 4, "b": None, "c": "x", "n": 3}
    assert found(table)[1]["a"] == 1


# -- doors that are closed ---------------------------------------------------------------------------------------------


def test_changes_of_a_stream_set_the_same_columns(lake: Lake) -> None:
    table = two_rows(lake, "streamed", inline_rows=99)
    changes = [{"op": "u", "ts": 1, "id": 1, "a": 8}, {"op": "u", "ts": 2, "id": 1, "b": 9}]
    with pytest.raises(InputError, match="COLUMNS_DIFFER"):
        table.apply_changes(changes)
    table.apply_changes([changes[0], {"op": "d", "ts": 3, "id": 2, "b": 7}])  # what is deleted sets no column
    assert found(table) == {1: {"id": 1, "a": 8, "b": 5, "c": "x", "n": 3}}


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"primary_key": ["id"], "partition_by": ["n"], "key_scope": "table"},
    ],
    ids=["no key", "a key across partitions"],
)
def test_tables_whose_images_are_whole(lake: Lake, layout: Any) -> None:
    with pytest.raises(InvalidError, match="MERGE_ENGINE_NOT_ALLOWED"):
        lake.create_table("refused", COLUMNS, properties={"merge.engine": "partial"}, **layout)


def test_the_engine_never_changes(lake: Lake) -> None:
    table = made(lake, "fixed")
    with pytest.raises(BlockedError, match="PROPERTY_FIXED"):
        table.set_properties(**{"merge.engine": "whole"})
