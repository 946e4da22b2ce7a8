"""SQL over rows that MetaService keeps itself: small writes without Spark, which write no file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from laketx import Lake, Table
from protos.laketx.v1 import common_pb2
from tests.spark.changed_rows import difference
from tests.spark.queries import Streams
from tests.spark.sql import SqlReads
from tests.spark.typed_rows import SCHEMA, arrow, row_of, texts

Names = Callable[[], str]
Row = dict[str, Any]
Rows = dict[int, Row]  # by id, which no two rows have

COLUMNS = "id bigint, n int, note string, day date"
DAYS = [date(2026, 11, 1), date(1960, 2, 29), None]
STEPS = 9


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


@pytest.fixture
def streams(lake: Lake, tmp_path: Path, new_name: Names) -> Streams:
    return Streams(lake, tmp_path, new_name)


def files_of(table: Table) -> list[common_pb2.DataFile]:
    return [entry.file for entry in table.lake.client.list_files(table.table_id) if entry.HasField("file")]


def check_inlined(table: Table, files: int) -> None:
    """So many inlined files, and nothing on storage."""
    assert [one.inlined for one in files_of(table)] == [True] * files
    assert not [one for one in Path(table.folder).rglob("*") if one.is_file()]


def text(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Without the order of columns and fields."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return sorted((repr(key), plain(one)) for key, one in value.items())
        return [plain(one) for one in value] if isinstance(value, list) else value

    return sorted(repr(plain(dict(row))) for row in rows)


def read(sql: SqlReads, table: Table, rest: str = "") -> list[Row]:
    return [row.asDict(recursive=True) for row in sql(f"SELECT * FROM {{lake}}.{table.name} {rest}").collect()]


def made(lake: Lake, name: str, *, keyed: bool, **more: Any) -> Table:
    key: dict[str, Any] = {"primary_key": ["id"], "buckets": 2} if keyed else {}
    return lake.create_table(name, COLUMNS, **key, **more)


def row(number: int, n: int = 0, note: str | None = None) -> Row:
    return {"id": number, "n": n, "note": note, "day": DAYS[number % 3]}


def put(table: Table, *rows: Row) -> None:
    """Inlined."""
    (table.upsert if table.meta.primary_key else table.append)(list(rows))


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_type(lake: Lake, sql: SqlReads, new_name: Names, keyed: bool) -> None:
    key: dict[str, Any] = {"primary_key": ["id"], "buckets": 2} if keyed else {}
    table = lake.create_table(new_name(), SCHEMA, **key)
    rows = [row_of(number, number) for number in range(5)]
    write = table.upsert if keyed else table.append
    for row in rows:
        write(arrow([row]))
    check_inlined(table, 5)
    assert texts(sql.table(table.name).toArrow().to_pylist()) == texts(arrow(rows).to_pylist())
    for name in ("whole", "deep", "pairs", "d38", "at"):  # alone, and beside the key
        wanted = sorted(texts(arrow([row]).select(["id", name]).to_pylist())[0] for row in rows)
        assert texts(sql(f"SELECT id, {name} FROM {{lake}}.{table.name}").toArrow().to_pylist()) == wanted
    again = [row_of(number, 4 - number, mark=1) for number in range(5)]
    write(arrow(again))
    shown = again if keyed else rows + again
    assert texts(sql.table(table.name).toArrow().to_pylist()) == texts(arrow(shown).to_pylist())


def test_structs_that_look_like_types_of_spark(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    """Arrow has no word for some types of Spark: it spells them as structs of certain names."""
    schema = "a struct<months:int,days:int,microseconds:bigint>, b struct<value:binary,metadata:binary>"
    table = lake.create_table(new_name(), schema)
    rows: list[Row] = [
        {"a": {"months": 1, "days": 2, "microseconds": 3}, "b": {"value": b"v", "metadata": b"m"}},
        {"a": None, "b": {"value": None, "metadata": None}},
    ]
    table.append(rows)
    assert text(read(sql, table)) == text(rows)


def test_conditions_on_values(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id int, x double, s struct<y:int>")
    rows = [(1, float("nan")), (2, -0.0), (3, 1.0), (4, None)]
    for number, x in rows:
        table.append([{"id": number, "x": x, "s": None if number == 3 else {"y": number}}])
    for where, ids in [
        ("x > 5", [1]),
        ("x = 0", [2]),
        ("x IS NULL", [4]),
        ("s.y >= 2", [2, 4]),
        ("s IS NULL", [3]),
        ("id IN (1, 3, 9)", [1, 3]),
    ]:
        found = sql.rows(f"SELECT id FROM {{lake}}.{table.name} WHERE {where}")
        assert found == [(one,) for one in ids], where
    assert sql.rows(f"SELECT count(*), sum(id) FROM {{lake}}.{table.name}") == [(4, 10)]
    assert len(sql(f"SELECT id FROM {{lake}}.{table.name} LIMIT 3").collect()) == 3


def test_columns_that_changed_since(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    schema = (
        "id int, amount decimal(6,2), ratio float, day date, old string, twice smallint, "
        "s struct<a:int,b:string,c:struct<d:tinyint>>, list array<struct<x:int>>, pairs map<string,struct<m:float>>"
    )
    table = lake.create_table(new_name(), schema)
    first: Row = {
        "id": 1,
        "amount": Decimal("1234.56"),
        "ratio": 0.25,
        "day": date(1500, 2, 28),
        "old": "then",
        "twice": -7,
        "s": {"a": 1, "b": "b", "c": {"d": -1}},
        "list": [{"x": 1}, None, {"x": None}],
        "pairs": {"k": {"m": 0.5}, "none": None},
    }
    empty: Row = {**dict.fromkeys(first), "id": 2, "s": {"a": None, "b": None, "c": None}, "list": [], "pairs": {}}
    table.append([first, empty])
    name = f"{{lake}}.{table.name}"
    for change in (
        "RENAME COLUMN twice TO other",
        "RENAME COLUMN old TO twice",  # an old name for another column
        "DROP COLUMN s.b",
        "ADD COLUMN s.b INT",  # another field
        "RENAME COLUMN s.c.d TO e",
        "ALTER COLUMN s.c.e TYPE BIGINT",
        "ADD COLUMN s.c.d STRING",
        "ADD COLUMN list.element.y DOUBLE FIRST",
        "ALTER COLUMN pairs.value.m TYPE DOUBLE",
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN amount TYPE DECIMAL(20,4)",
        "ALTER COLUMN ratio TYPE DOUBLE",
        "ALTER COLUMN other TYPE DOUBLE",
        "ALTER COLUMN day TYPE TIMESTAMP_NTZ",
        "ADD COLUMN made STRING FIRST",
    ):
        sql(f"ALTER TABLE {name} {change}")
    table.refresh()
    third: Row = {
        "made": "now",
        "id": 1 << 40,
        "amount": Decimal("1.2345"),
        "ratio": 0.1,
        "day": datetime.fromisoformat("2026-11-01T12:00:00"),
        "twice": "text",
        "other": 0.5,
        "s": {"a": 3, "b": 4, "c": {"d": "d", "e": 1 << 40}},
        "list": [{"y": 0.5, "x": 9}],
        "pairs": {"k": {"m": 0.1}},
    }
    table.append([third])
    check_inlined(table, 2)
    first_now: Row = {
        "made": None,
        "id": 1,
        "amount": Decimal("1234.5600"),
        "ratio": 0.25,
        "day": datetime.fromisoformat("1500-02-28"),
        "twice": "then",
        "other": -7.0,
        "s": {"a": 1, "b": None, "c": {"d": None, "e": -1}},
        "list": [{"y": None, "x": 1}, None, {"y": None, "x": None}],
        "pairs": first["pairs"],
    }
    empty_now: Row = {**dict.fromkeys(third), **{name: empty[name] for name in ("id", "s", "list", "pairs")}}
    assert text(read(sql, table)) == text([first_now, empty_now, third])
    assert text(read(sql, table, "VERSION AS OF 1")) == text([first, empty])
    assert sql.rows(f"SELECT id, s.b, s.c.e, made FROM {name}") == [
        (1, None, -1, None),
        (1 << 40, 4, 1 << 40, "now"),
        (2, None, None, None),
    ]
    assert sql.rows(f"SELECT s.c.d FROM {name}") == [("d",), (None,), (None,)]
    assert sql.rows(f"SELECT id FROM {name} WHERE amount > 1.5 AND day < '1600-01-01'") == [(1,)]


# -- where rows come from ----------------------------------------------------------------------------------------------


def test_rows_tell_where_they_come_from(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = made(lake, new_name(), keyed=False, partition_by=["day"])
    put(table, row(0), row(1), row(2), row(3))
    put(table, row(4))
    sql(f"UPDATE {{lake}}.{table.name} SET n = 7 WHERE id = 3")
    files = {one.path: one for one in files_of(table)}
    found = sql.rows(f"SELECT _row_id, _file, _version, id FROM {{lake}}.{table.name}")
    assert {number: version for _, _, version, number in found} == {0: 1, 1: 1, 2: 1, 3: 3, 4: 2}
    assert len({row_id for row_id, *_ in found}) == 5
    inlined = [(row_id, files[path], number) for row_id, path, _, number in found if number != 3]
    assert all(one.inlined for _, one, _ in inlined)
    assert {number: row_id for row_id, _, number in inlined} == {number: one.first_row_id for _, one, number in inlined}
    listed = sql.rows(f"SELECT path, inlined, rows, bytes FROM {{lake}}.{table.name}.files WHERE content = 'data'")
    assert listed == sorted((one.path, one.inlined, one.rows, one.bytes) for one in files.values())
    (one,) = sql.rows(f"SELECT count_if(inlined), count(*) FROM {{lake}}.{table.name}.files")
    assert one == (4, 6)  # beside them a file and a delete set
    folders = sql.rows(f"SELECT partition['day'], files, rows FROM {{lake}}.{table.name}.partitions")
    assert folders == [("1960-02-29", 2, 2), ("2026-11-01", 2, 3), (None, 1, 1)]


def test_partitions(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    """Those that a join finds while it runs are among them."""
    table = made(lake, new_name(), keyed=False, partition_by=["day"])
    for number in range(6):
        put(table, row(number))
    check_inlined(table, 6)
    name = f"{{lake}}.{table.name}"
    assert sql.rows(f"SELECT id FROM {name} WHERE day = '1960-02-29'") == [(1,), (4,)]
    assert sql.rows(f"SELECT id FROM {name} WHERE day IS NULL AND id > 2") == [(5,)]
    chosen = "SELECT /*+ BROADCAST(c) */ t.id FROM {} t JOIN (SELECT day FROM {} WHERE id = 3) c ON t.day = c.day"
    assert sql.rows(chosen.format(name, name)) == [(0,), (3,)]
    sql(f"DELETE FROM {name} WHERE day = '1960-02-29'")
    assert sql.rows(f"SELECT id FROM {name}") == [(0,), (2,), (3,), (5,)]
    sql(f"INSERT OVERWRITE {name} PARTITION (day = '2026-11-01') SELECT 9, 9, 'new'")
    assert sql.rows(f"SELECT id FROM {name}") == [(2,), (5,), (9,)]


def test_many_inlined_files_are_few_tasks(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    """However their rows are wanted: a condition on a file's statistics leaves out others as everywhere."""
    table = made(lake, new_name(), keyed=False)
    for number in range(60):
        put(table, row(number, n=number))
    check_inlined(table, 60)
    assert sql.tasks(f"SELECT * FROM {{lake}}.{table.name}") <= 2
    assert sql.rows(f"SELECT count(*), sum(n) FROM {{lake}}.{table.name}") == [(60, 1770)]
    assert sql.rows(f"SELECT id FROM {{lake}}.{table.name} WHERE n >= 58") == [(58,), (59,)]


def test_rows_of_many_bytes(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    """More than one broadcast holds."""
    table = lake.create_table(new_name(), "id int, note string", primary_key=["id"], buckets=1)
    for number in range(24):
        table.upsert([{"id": at, "note": chr(97 + number) * 240_000} for at in (number,)])
    check_inlined(table, 24)
    wanted = [(number, chr(97 + number), 240_000) for number in range(24)]
    query = f"SELECT id, left(note, 1), length(note) FROM {{lake}}.{table.name} ORDER BY id"
    assert [tuple(one) for one in sql(query).collect()] == wanted


# -- histories ---------------------------------------------------------------------------------------------------------


class History:
    """A table of rows inlined and of rows in files, each of which hides rows of the other, and what it shows when."""

    def __init__(self, sql: SqlReads, table: Table, seed: int) -> None:
        self.sql = sql
        self.table = table
        self.name = f"{{lake}}.{table.name}"
        self.keyed = bool(table.meta.primary_key)
        self.chance = random.Random(seed)
        self.rows: Rows = {}
        self.at: list[Rows] = [{}]
        self.next = 0

    def step(self, kind: str) -> None:
        """One commit, if it changes anything."""
        before = dict(self.rows)
        getattr(self, f"_{kind}")()
        head = self.table.refresh().meta.head_version
        assert head - len(self.at) in (-1, 0)
        if head == len(self.at):
            self.at.append(dict(self.rows))
        else:
            assert self.rows == before

    def _ids(self, count: int) -> list[int]:
        if self.keyed:
            return self.chance.sample(range(12), count)
        self.next += count
        return list(range(self.next - count, self.next))

    def _some(self, count: int = 3) -> list[Row]:
        return [row(one, self.chance.randrange(100), self.chance.choice(["x", None])) for one in self._ids(count)]

    def _held(self, rows: Iterable[Row]) -> None:
        self.rows |= {one["id"]: one for one in rows}

    def _arrow(self) -> None:
        rows = self._some()
        put(self.table, *rows)
        self._held(rows)

    def _spark(self) -> None:
        rows = self._some()
        self.table.insert(self.sql.spark.createDataFrame([tuple(one.values()) for one in rows], COLUMNS))
        self._held(rows)

    def _tombstones(self) -> None:
        """By Arrow, which knows them in primary-key tables alone."""
        gone = self._ids(2) if self.keyed else []
        if gone:
            self.table.delete(keys=gone)
        self.rows = {number: one for number, one in self.rows.items() if number not in gone}

    def _delete(self) -> None:
        rest = self.chance.randrange(4)
        self.sql(f"DELETE FROM {self.name} WHERE id % 4 = {rest}")
        self.rows = {number: one for number, one in self.rows.items() if number % 4 != rest}

    def _update(self) -> None:
        rest = self.chance.randrange(3)
        self.sql(f"UPDATE {self.name} SET n = n + 1000, note = 'changed' WHERE id % 3 = {rest}")
        self._held({**one, "n": one["n"] + 1000, "note": "changed"} for n, one in self.rows.items() if n % 3 == rest)

    def _merge(self) -> None:
        """A row of each kind: changed, gone, new."""
        known = self.chance.sample(sorted(self.rows), min(2, len(self.rows)))
        new = 20 + len(self.at)
        source = " UNION ALL ".join(f"SELECT {one}L id, {at} what" for at, one in enumerate([*known, new]))
        self.sql(
            f"MERGE INTO {self.name} t USING ({source}) s ON t.id = s.id "
            "WHEN MATCHED AND s.what = 0 THEN UPDATE SET note = 'merged' WHEN MATCHED THEN DELETE "
            "WHEN NOT MATCHED THEN INSERT (id, n, day) VALUES (s.id, 5, DATE'2026-11-01')"
        )
        for one in known[:1]:
            self.rows[one] = {**self.rows[one], "note": "merged"}
        for one in known[1:]:
            del self.rows[one]
        new_row = {"id": new, "n": 5, "note": None, "day": DAYS[0]}
        self.rows[new] = new_row

    def check(self) -> None:
        """Every version, by both."""
        for version, rows in enumerate(self.at):
            assert text(read(self.sql, self.table, f"VERSION AS OF {version}")) == text(rows.values()), version
        assert text(self.table.to_arrow().to_pylist()) == text(self.rows.values())

    def check_changes(self) -> None:
        head = len(self.at) - 1
        middle = self.chance.randrange(head)
        for since, until in ((0, head), (middle, head), (0, middle + 1)):
            log = [
                change
                for version in range(since + 1, until + 1)
                for change in difference(self._known(version - 1), self._known(version), version)
            ]
            between = f"CHANGES FROM VERSION {since} EXCLUSIVE TO VERSION {until}"
            assert self._changes(f"{self.name} {between}") == changed(log)
            if since + 1 < until:
                called = f"table_changes('{{lake}}.{self.table.name}', {since + 1}, {until})"
                assert self._changes(called) == changed(log)
            last = {identity: version for identity, _, version, _ in log}
            whole = difference(self._known(since), self._known(until), 0)
            net = [(identity, kind, last[identity], one) for identity, kind, _, one in whole]
            assert self._changes(f"{self.name} {between} WITH (deduplicationMode = 'netChanges')") == changed(net)

    def _known(self, version: int) -> dict[tuple[Any, ...], Row]:
        return {(number,): one for number, one in self.at[version].items()}

    def _changes(self, what: str) -> list[str]:
        columns = "id, n, note, day, _change_type, _commit_version"
        return sorted(map(repr, map(tuple, self.sql(f"SELECT {columns} FROM {what}").collect())))


def changed(changes: Iterable[Any]) -> list[str]:
    return sorted(repr((*one.values(), kind, version)) for _, kind, version, one in changes)


@pytest.mark.parametrize(
    ("seed", "keyed"),
    [(0, True), *(pytest.param(*one, marks=pytest.mark.long) for one in [(0, False), (1, False), (1, True)])],
)
def test_random_histories(lake: Lake, sql: SqlReads, new_name: Names, keyed: bool, seed: int) -> None:
    parts = ["day"] if seed == 1 and not keyed else []
    history = History(sql, made(lake, new_name(), keyed=keyed, partition_by=parts), seed)
    kinds = ["arrow", "arrow", "arrow", "spark", "tombstones", "delete", "update", "merge"]
    for kind in ["arrow", *history.chance.choices(kinds, k=STEPS), "arrow"]:
        history.step(kind)
    history.check()
    history.check_changes()


def test_inlined_deltas_alone(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    """They hide rows of each other; no file is ever written."""
    history = History(sql, made(lake, new_name(), keyed=True), 5)
    for kind in ["arrow", "arrow", "tombstones", "arrow", "tombstones"]:
        history.step(kind)
    check_inlined(history.table, len(files_of(history.table)))
    history.check()
    history.check()  # what hides rows is known now
    history.check_changes()


def test_rows_that_move_between_partitions(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(
        new_name(), COLUMNS, primary_key=["id"], buckets=1, partition_by=["day"], properties={"key.scope": "partition"}
    )
    for number in range(4):
        put(table, row(number))
    name = f"{{lake}}.{table.name}"
    sql(f"UPDATE {name} SET day = DATE'2026-11-01' WHERE id IN (1, 2)")
    wanted = [{**row(number), "day": DAYS[0]} if number in (1, 2) else row(number) for number in range(4)]
    assert text(read(sql, table)) == text(wanted)
    assert text(table.to_arrow().to_pylist()) == text(wanted)
    put(table, row(1))
    with pytest.raises(Exception, match="KEY_EXISTS"):
        sql(f"UPDATE {name} SET day = DATE'2026-11-01' WHERE id = 1 AND day = DATE'1960-02-29'")


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_streams(streams: Streams, keyed: bool) -> None:
    source = streams.table(primary_key=["id"] if keyed else [], buckets=1 if keyed else None)

    def write(*pairs: tuple[int, str]) -> None:
        put(source, *({"id": number, "v": v} for number, v in pairs))

    write((1, "a"), (2, "a"))
    source.insert(streams.rows((3, "file")))
    write((2 if keyed else 4, "b"))
    rows = streams.read(source)
    found = [one for batch in streams.batches(rows) for one in batch]
    assert sorted(found) == (
        [(1, "a"), (2, "b"), (3, "file")] if keyed else [(1, "a"), (2, "a"), (3, "file"), (4, "b")]
    )
    assert streams.batches(rows) == []
    write((5, "c"))
    write((5 if keyed else 6, "d"), (7, "d"))
    assert sorted(one for batch in streams.batches(rows) for one in batch) == (
        [(5, "d"), (7, "d")] if keyed else [(5, "c"), (6, "d"), (7, "d")]
    )
    changes = streams.read(source, readChangeFeed="true", startingVersion=4).select("id", "v", "_change_type")
    found = [one for batch in streams.batches(changes, "changes") for one in batch]
    images = [(5, "c", "update_preimage"), (5, "d", "update_postimage")] if keyed else [(6, "d", "insert")]
    assert sorted(found) == sorted([(5, "c", "insert"), *images, (7, "d", "insert")])
    by_file = streams.read(source, startingVersion=0, maxFilesPerTrigger=1)
    assert len(streams.batches(by_file, "files")) == 5
