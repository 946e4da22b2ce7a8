"""Spark reads rows by their keys with the key index of a table, and no index changes its answers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laketx import Lake, Table
from tests.spark.sql import SqlReads
from worker.files import key_coverage
from worker.files.key_index import FOLDER, KeyIndex, facts_of
from worker.files.key_layer import BLOCK_IMAGES, SHORT_FILES, Images
from worker.services.key_indexes import KeyIndexKeeper

Names = Callable[[], str]
Row = dict[str, Any]
DAYS = ["a", "b", "c", "d", None]


def made(lake: Lake, name: str, columns: str = "id bigint, day string, n int", **other: Any) -> Table:
    keyed: dict[str, Any] = {"primary_key": ["id"], "buckets": 2, "properties": {"write.inline.rows": "0"}} | other
    return lake.create_table(name, columns, partition_by=["day"], key_scope="table", **keyed)


def kept(lake: Lake) -> None:
    """Covers every file of every table."""
    KeyIndexKeeper(lake, now_s=lambda: 0.0, rows_at_least=1, files_at_least=1).run_once()


def layers_of(table: Table) -> list[Path]:
    return sorted(Path(table.view.folder).glob(f"{FOLDER}/*/*.keys"))


def coverage_of(table: Table) -> Path:
    [found] = Path(table.view.folder).glob(f"{FOLDER}/*/*{key_coverage.SUFFIX}")
    return found


def share(sql: SqlReads, rows: str, where: str) -> float:
    """How much of the table is planned to be read, of the same columns."""
    sizes = []
    for statement in (f"{rows} WHERE {where}", rows):
        plan = sql(statement)._jdf.queryExecution().optimizedPlan()
        sizes.append(int(str(plan.collectLeaves().head().stats().sizeInBytes())))
    return sizes[0] / sizes[1]


# -- what Spark reads of it --------------------------------------------------------------------------------------------

KEYS: dict[str, Callable[[int], tuple[Any, str]]] = {
    "bigint": lambda at: (at * 10**16 - 7, str(at * 10**16 - 7)),
    "smallint": lambda at: (at - 5, str(at - 5)),
    "string": lambda at: ("ä" * at + "'", "'" + "ä" * at + "''" + "'"),
    "binary": lambda at: (bytes([at, 0, 255]), f"X'{at:02x}00FF'"),
    "date": lambda at: (date(1969, 12, 25) + timedelta(at), f"DATE'{date(1969, 12, 25) + timedelta(at)}'"),
    "timestamp": lambda at: (
        datetime(2026, 1, 1, 0, at % 60, at // 60, 5, UTC),
        f"TIMESTAMP'2026-01-01 00:{at % 60:02}:{at // 60:02}.000005Z'",
    ),
    "decimal(10,2)": lambda at: (Decimal(at) - Decimal("5.5"), f"{Decimal(at) - Decimal('5.5')}BD"),
    "decimal(30,2)": lambda at: (Decimal(at) - Decimal("5.50"), f"CAST('{at - 5.5}' AS decimal(30,2))"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_looked_up_in_few_files(lake: Lake, lake_sql: SqlReads, new_name: Names, kind: str) -> None:
    name = new_name()
    table = made(lake, name, f"id {kind}, day string, n int")
    for start in range(2):
        table.upsert([{"id": KEYS[kind](at)[0], "day": f"d{at % 3}", "n": at} for at in range(start, 60, 2)])
    kept(lake)
    rows = f"SELECT id, n FROM {{lake}}.{name}"
    for at in (20, 31):
        where = f"id = {KEYS[kind](at)[1]}"
        assert [one[1] for one in lake_sql.rows(f"{rows} WHERE {where}")] == [at]
        assert share(lake_sql, rows, where) < 0.3
    asked = ", ".join(KEYS[kind](at)[1] for at in (3, 4, 60))
    assert sorted(one[1] for one in lake_sql.rows(f"{rows} WHERE id IN ({asked})")) == [3, 4]


def test_a_key_of_two_columns_is_looked_up_if_both_are_named(lake: Lake, lake_sql: SqlReads, new_name: Names) -> None:
    name = new_name()
    table = made(lake, name, "id int, shop string, day string, n int", primary_key=["shop", "id"])
    for day in "abcde":
        table.upsert([{"id": at, "shop": shop, "day": day, "n": at} for at in range(20) for shop in (day, "z" + day)])
    kept(lake)
    rows = f"SELECT id, shop, n FROM {{lake}}.{name}"
    for where, found in {
        "id = 3 AND shop = 'zb' AND n < 9": [(3, "zb", 3)],
        "id IN (3, 4) AND shop IN ('b', 'zb', 'f')": [(at, shop, at) for at in (3, 4) for shop in ("b", "zb")],
        "id <=> 3 AND shop = 'zb' AND n > 9": [],
    }.items():
        assert sorted(lake_sql.rows(f"{rows} WHERE {where}")) == found
        assert share(lake_sql, rows, where) < 0.3, where
    every = sorted((3, shop, 3) for day in "abcde" for shop in (day, "z" + day))
    assert sorted(lake_sql.rows(f"{rows} WHERE id = 3")) == every
    assert sorted(lake_sql.rows(f"{rows} WHERE id = 3 AND (shop = 'a' OR n = 3)")) == every


def test_layers_of_many_images_and_files_are_read(lake: Lake, lake_sql: SqlReads, new_name: Names) -> None:
    name, count = new_name(), 2 * BLOCK_IMAGES + 100
    table = made(lake, name, buckets=1)
    for day in "abcde":
        low = ord(day) - ord("a")
        rows = pa.table(
            {"id": range(low, count, 5), "day": [day] * len(range(low, count, 5)), "n": range(low, count, 5)}
        )
        table.upsert(rows)
    kept(lake)
    index = KeyIndex(table.view.folder, table.meta)
    [layer] = index.layers[0]
    images = index.images(layer)
    assert layer.blocks == 3
    assert images is not None
    rows_of = f"SELECT id, n FROM {{lake}}.{name}"
    asked = [int(at) for at in np.random.default_rng(1).choice(count, 20)]

    def check() -> None:
        where = f"id IN ({', '.join(map(str, asked))})"
        assert sorted(lake_sql.rows(f"{rows_of} WHERE {where}")) == sorted({(at, at) for at in asked})
        for at in asked[:2]:
            assert lake_sql.rows(f"{rows_of} WHERE id = {at}") == [(at, at)]
            assert share(lake_sql, rows_of, f"id = {at}") < 0.3

    check()
    others = dict.fromkeys((f"gone/{at}.parquet" for at in range(SHORT_FILES)), layer.partitions[0])
    files = others | dict(zip(layer.files, layer.partitions, strict=True))
    wide = index.write(0, files, Images(images.hashes, images.numbers + 2 * len(others)))
    coverage = index.coverage()
    assert coverage is not None
    coverage_of(table).unlink()
    index.write_coverage(key_coverage.Coverage(coverage.history, coverage.version, {0: [wide]}, {}))
    index.delete(layer.path)
    check()


# -- what it doesn't believe -------------------------------------------------------------------------------------------


def filled(lake: Lake, name: str) -> Table:
    table = made(lake, name, buckets=1)
    for day in "abcd":
        table.upsert([{"id": ord(day) * 10 + at, "day": day, "n": at} for at in range(10)])
    kept(lake)
    return table


FAULTS: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-1],
    "empty": lambda content: b"",
    "hashes": lambda content: content[:-400] + bytes(300) + content[-100:],
    "head": lambda content: content.replace(b'"bucket":0', b'"bucket":1'),
    "length": lambda content: content[:8] + b"\xff\xff\xff\xff" + content[12:],
}


@pytest.mark.parametrize("fault", [*FAULTS, "gone", "coverage", "forged"])
def test_a_damaged_index_is_not_believed(lake: Lake, lake_sql: SqlReads, new_name: Names, fault: str) -> None:
    name = new_name()
    table = filled(lake, name)
    [layer] = layers_of(table)
    match fault:
        case "gone":
            layer.unlink()
        case "coverage":
            coverage_of(table).write_bytes(coverage_of(table).read_bytes().replace(b'"others":[]', b'"others":{}'))
        case "forged":  # another table's under this one's name
            theirs = filled(lake, new_name())
            layer.write_bytes(layers_of(theirs)[0].read_bytes())
        case _:
            layer.write_bytes(FAULTS[fault](layer.read_bytes()))
    for key in (970, 985, 1009):
        assert lake_sql.rows(f"SELECT n FROM {{lake}}.{name} WHERE id = {key}") == [(key % 10,)]


def test_a_coverage_of_another_history_is_not_believed(lake: Lake, lake_sql: SqlReads, new_name: Names) -> None:
    """A service that was restored from a backup gives its version's number to another commit."""
    name = new_name()
    table = filled(lake, name)
    path = coverage_of(table)
    fields = json.loads(path.read_bytes()[32:])
    layers = {bucket: paths for bucket, *paths in fields["layers"]}
    table.upsert([{"id": 970, "day": "b", "n": 77}])
    head = table.refresh().meta.head_version
    path.unlink()
    stranger = key_coverage.Coverage("another", head, layers, {})
    KeyIndex(table.view.folder, table.meta).write_coverage(stranger)
    assert facts_of(table.meta) == path.parent.name
    assert lake_sql.rows(f"SELECT n FROM {{lake}}.{name} WHERE id = 970") == [(77,)]


def test_what_came_since_is_read(lake: Lake, lake_sql: SqlReads, new_name: Names) -> None:
    name = new_name()
    table = filled(lake, name)
    row = f"SELECT day, n FROM {{lake}}.{name} WHERE id = 970"
    table.upsert([{"id": 970, "day": "e", "n": 5}])
    assert lake_sql.rows(row) == [("e", 5)]
    lake_sql(f"UPDATE {{lake}}.{name} SET day = 'f', n = n + 1 WHERE id = 970")
    assert lake_sql.rows(row) == [("f", 6)]
    assert lake_sql.rows(row.replace("WHERE", "VERSION AS OF 4 WHERE")) == [("a", 0)]
    lake_sql(f"DELETE FROM {{lake}}.{name} WHERE id IN (970, 971)")
    assert lake_sql.rows(row) == []
    table.compact("major")
    table.restore(version=4)
    assert lake_sql.rows(row) == [("a", 0)]


# -- what Spark writes by it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bigint", "string"])
def test_an_insert_reads_no_row_that_the_index_covers(
    lake: Lake, lake_sql: SqlReads, new_name: Names, kind: str
) -> None:
    name = new_name()
    table = made(lake, name, f"id {kind}, day string, n int not null, m int")
    for day in "abcc":
        table.upsert([{"id": KEYS[kind](at)[0], "day": day, "n": 0, "m": at} for at in range(0, 40, 2)])
    table.delete("m > 30")
    kept(lake)
    before = table.refresh().meta.head_version
    files = [path for path in Path(table.view.folder).rglob("*.parquet") if path.parent.name != FOLDER]
    for path in files:
        path.rename(path.with_suffix(".away"))
    values = ", ".join(f"({KEYS[kind](at)[1]}, {at})" for at in range(30, 36))
    lake_sql(f"INSERT INTO {{lake}}.{name} SELECT id, IF(n < 33, 'a', 'd'), n, n FROM VALUES {values} AS s(id, n)")
    for path in files:
        path.with_suffix(".away").rename(path)
    found = sorted((row["m"], row["day"], row["n"]) for row in table.to_arrow().to_pylist())
    new = [(at, "a" if at < 33 else "d", at) for at in range(30, 36)]
    assert found == [*((at, "c", 0) for at in range(0, 30, 2)), *new]
    changes = sorted((row["m"], row["_change_type"]) for row in table.changes(since=before, mode="log").collect())
    assert changes == [(30, "delete"), *((at, "insert") for at in range(30, 36))]


@pytest.mark.parametrize("fault", [*FAULTS, "gone"])
def test_an_insert_reads_what_a_damaged_layer_covers(
    lake: Lake, lake_sql: SqlReads, new_name: Names, fault: str
) -> None:
    name = new_name()
    table = filled(lake, name)
    [layer] = layers_of(table)
    content = layer.read_bytes()
    layer.unlink()
    if fault in FAULTS:
        layer.write_bytes(FAULTS[fault](content))
    lake_sql(f"INSERT INTO {{lake}}.{name} SELECT id, 'e', 1 FROM range(970, 1010, 5)")
    days = {row["id"]: row["day"] for row in table.to_arrow().to_pylist()}
    assert table.count() == len(days) == 40
    assert {key for key, day in days.items() if day == "e"} == set(range(970, 1010, 5))


def test_an_insert_writes_rows_and_tombstones_of_a_bucket_into_one_file(
    lake: Lake, lake_sql: SqlReads, new_name: Names
) -> None:
    name = new_name()
    table = filled(lake, name)
    before = {one.file.path for one in lake.client.list_files(table.table_id)}
    moved = {key: "abcde"["abcd".index(chr(key // 10)) + key % 2] for key in range(970, 1010)}
    values = ", ".join(f"({key}, '{day}')" for key, day in moved.items())
    lake_sql(f"INSERT INTO {{lake}}.{name} SELECT id, day, 1 FROM VALUES {values} AS s(id, day)")
    new = [one.file for one in lake.client.list_files(table.table_id) if one.file.path not in before]
    assert sorted((one.rows, one.tombstones) for one in new) == [(5, 0), (10, 5), (15, 5), (15, 5), (15, 5)]
    assert {row["id"]: row["day"] for row in table.to_arrow().to_pylist()} == moved


def test_an_insert_of_more_than_waits_writes_rows_as_they_come(lake: Lake, lake_sql: SqlReads, new_name: Names) -> None:
    name = new_name()
    table = made(lake, name, "id int, day string, text string", buckets=1)
    days = {key: "ab"[key // 40] for key in range(80)}
    table.upsert([{"id": key, "day": day, "text": ""} for key, day in days.items()])
    before = {one.file.path for one in lake.client.list_files(table.table_id)}
    other = "IF(id < 40, 'b', 'a')"
    lake_sql(f"INSERT INTO {{lake}}.{name} SELECT id, {other}, repeat('x', 1024 * 1024) FROM range(80)")
    new = [one.file for one in lake.client.list_files(table.table_id) if one.file.path not in before]
    assert sorted((one.rows, one.tombstones) for one in new) == [(40, 0), (40, 0), (40, 40), (40, 40)]
    found = table.to_arrow(columns=["id", "day"]).to_pylist()
    assert {row["id"]: row["day"] for row in found} == {key: "ba"[key // 40] for key in days}
    assert len(found) == 80


COLUMNS = {
    "bigint": "id bigint, day string, n int",
    "string": "id string, day string, n int",
    "needed": "id bigint, day string, n int not null",
}


class History:
    """Random writes by both engines against a dict, while an index comes, goes and grows old."""

    def __init__(self, lake: Lake, sql: SqlReads, name: str, kind: str, seed: int) -> None:
        self.lake, self.sql, self.name = lake, sql, f"{{lake}}.{name}"
        self.chance = random.Random(f"{kind} {seed}")
        properties = {"write.inline.rows": self.chance.choice(["0", "2"])}
        self.table = made(lake, name, COLUMNS[kind], properties=properties)
        self.keys: list[Any] = [f"k{at}" if kind == "string" else at for at in range(16)]
        self.rows: dict[Any, Row] = {}
        self.states: dict[int, dict[Any, Row]] = {self.table.meta.head_version: {}}

    def write(self) -> None:
        rows: list[Row] = [
            {"id": key, "day": self.chance.choice(DAYS), "n": self.chance.randint(0, 99)}
            for key in self.chance.sample(self.keys, self.chance.randint(1, 5))
        ]
        keys = [row["id"] for row in rows]
        values = ", ".join(f"({_text(row['id'])}, {_text(row['day'])}, {row['n']})" for row in rows)
        listed, first = ", ".join(map(_text, keys)), rows[0]
        source = f"(SELECT * FROM VALUES {values} AS s(id, day, n)) s"
        match self.chance.choice(["arrow", "insert", "merge", "update", "delete", "compact", "restore"]):
            case "arrow":
                self.table.upsert(rows)
                self.rows |= {row["id"]: row for row in rows}
            case "insert":
                self.sql(f"INSERT INTO {self.name} VALUES {values}")
                self.rows |= {row["id"]: row for row in rows}
            case "merge":
                upsert = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                self.sql(f"MERGE INTO {self.name} t USING {source} ON t.id = s.id {upsert}")
                self.rows |= {row["id"]: row for row in rows}
            case "update":
                day = _text(first["day"])
                self.sql(f"UPDATE {self.name} SET day = {day}, n = {first['n']} WHERE id IN ({listed})")
                changed = {"day": first["day"], "n": first["n"]}
                self.rows |= {key: self.rows[key] | changed for key in keys if key in self.rows}
            case "delete":
                self.sql(f"DELETE FROM {self.name} WHERE id IN ({listed})")
                self.rows = {key: row for key, row in self.rows.items() if key not in keys}
            case "compact":
                self.table.compact(self.chance.choice(["minor", "major"]))
            case _:
                version = self.chance.choice(sorted(self.states))
                self.table.restore(version=version)
                self.rows = dict(self.states[version])
        self.states[self.table.refresh().meta.head_version] = dict(self.rows)

    def index(self) -> None:
        if self.chance.random() < 0.4:
            kept(self.lake)
        for path in layers_of(self.table):
            if self.chance.random() < 0.1:
                path.unlink()

    def check(self) -> None:
        asked = self.chance.sample(self.keys, self.chance.choice([1, 1, 6]))
        where = f"id = {_text(asked[0])}" if len(asked) == 1 else f"id IN ({', '.join(map(_text, asked))})"
        found = self.sql(f"SELECT * FROM {self.name} WHERE {where}").collect()
        expected = [self.rows[key] for key in asked if key in self.rows]
        assert sorted(map(repr, map(_row, found))) == sorted(map(repr, expected))


def _row(found: Any) -> Row:
    return {"id": found["id"], "day": found["day"], "n": found["n"]}


def _text(value: Any) -> str:
    return "NULL" if value is None else repr(value)


@pytest.mark.parametrize("seed", [0, *(pytest.param(at, marks=pytest.mark.long) for at in range(1, 10))])
@pytest.mark.parametrize("kind", COLUMNS)
def test_the_index_changes_no_answer(lake: Lake, lake_sql: SqlReads, new_name: Names, kind: str, seed: int) -> None:
    history = History(lake, lake_sql, new_name(), kind, seed)
    for _ in range(10):
        history.write()
        history.index()
        history.check()
    found = [_row(one) for one in history.table.read().collect()]
    assert sorted(map(repr, found)) == sorted(map(repr, history.rows.values()))
