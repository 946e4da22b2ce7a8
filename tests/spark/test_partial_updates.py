"""Spark folds images that set single columns as Arrow and a dict do; its UPDATE makes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import ConflictError, Lake, Table
from tests.spark.sql import SqlReads

Names = Callable[[], str]
Row = dict[str, Any]
Rows = dict[Any, Row]

COLUMNS = (
    "id bigint, day string, a int, b int default 7, s struct<x: int, t: string>, l array<int>, n int not null default 3"
)
NEW: Row = {"a": None, "b": 7, "s": None, "l": None, "n": 3}
VALUES: dict[str, list[Any]] = {
    "a": [1, 2, None],
    "b": [5, 6, None],
    "s": [{"x": 1, "t": "u"}, {"x": None, "t": "longer than it was"}, None],
    "l": [[1, None], [], None],
    "n": [3, 4],
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "one bucket, rows without files": {"primary_key": ["id"], "buckets": 1, "inline": 99},
    "a key of two columns, partitions": {
        "primary_key": ["day", "id"],
        "partition_by": ["day"],
        "buckets": 2,
        "inline": 0,
    },
}


class History:
    """Random changes, and what the table is at each version by a dict."""

    def __init__(self, table: Table, sql: SqlReads, seed: int) -> None:
        self.table = table
        self.sql = sql
        self.chance = random.Random(seed)
        self.rows: Rows = {}
        self.states: dict[int, Rows] = {}

    def play(self, steps: int) -> None:
        for _ in range(steps):
            if self.chance.random() < 0.15:
                self.merge()
            else:
                self.step()
            self.states[self.table.refresh().meta.head_version] = {key: dict(row) for key, row in self.rows.items()}

    def step(self) -> None:
        kinds = ["upsert"] * 4 + ["set", "set", "delete", "whole", "minor", "major", "overwrite", "UPDATE", "UPDATE"]
        match self.chance.choice([*kinds, "INSERT", "INSERT", "DELETE"]):
            case "INSERT":
                names = self.chance.sample(["a", "b", "n"], self.chance.randint(0, 2))
                row = {
                    "id": self.chance.randrange(6),
                    "day": "x",
                    **{one: self.chance.choice(VALUES[one]) for one in names},
                }
                values = ", ".join("NULL" if one is None else repr(one) for one in row.values())
                self.sql(f"INSERT INTO {{lake}}.{self.table.name} ({', '.join(row)}) VALUES ({values})")
                self.rows[key_of(row)] = {**NEW, **self.rows.get(key_of(row), {}), **row}
            case "UPDATE":
                name, other = self.chance.sample(["a", "b", "n"], 2)
                self.sql(f"UPDATE {{lake}}.{self.table.name} SET {name} = coalesce({other}, 1) WHERE b > 4 AND id < 4")
                for row in self.rows.values():
                    if row["b"] is not None and row["b"] > 4 and row["id"] < 4:
                        row[name] = 1 if row[other] is None else row[other]
            case "DELETE":
                self.sql(f"DELETE FROM {{lake}}.{self.table.name} WHERE a + 1 = 2 AND id > 2")
                self.rows = {key: row for key, row in self.rows.items() if row["a"] != 1 or row["id"] <= 2}
            case "set":
                name = self.chance.choice(["a", "b"])
                value, id_ = self.chance.choice(VALUES[name]), self.chance.randrange(6)
                self.table.update({name: value}, where=f"id = {id_} OR n = 4")
                for row in self.rows.values():
                    row.update({name: value} if row["id"] == id_ or row["n"] == 4 else {})
            case "delete":
                id_ = self.chance.randrange(6)
                self.table.delete(f"id = {id_} OR a = 2 AND b = 6")
                goes = {key for key, row in self.rows.items() if row["id"] == id_ or (row["a"], row["b"]) == (2, 6)}
                self.rows = {key: row for key, row in self.rows.items() if key not in goes}
            case "minor" | "major" as how:
                self.table.compact(how)
            case "overwrite" if self.chance.random() < 0.3:
                rows = self.some_rows(whole=True)
                self.table.overwrite(rows)
                self.rows = {key_of(row): row for row in rows}
            case kind:
                rows = self.some_rows(whole=kind == "whole")
                self.table.upsert(rows)
                for row in rows:
                    self.rows[key_of(row)] = {**NEW, **self.rows.get(key_of(row), {}), **row}

    def merge(self) -> None:
        """By a key of a partition; rows that it finds go or get one column, others come whole or with that column."""
        name, other = self.chance.sample(["a", "b"], 2)
        keys = {("x", id_): self.chance.choice([1, 5, 6]) for id_ in self.chance.sample(range(6), 3)}
        given = ", ".join(f"({id_}L, '{day}', {value})" for (day, id_), value in keys.items())
        merge = f"MERGE INTO {{lake}}.{self.table.name} t USING (SELECT * FROM VALUES {given} AS r(id, day, v)) s"
        is_upsert, deletes = self.chance.random() < 0.4, self.chance.random() < 0.5
        gone = f"WHEN MATCHED AND t.{other} = 2 THEN DELETE " if deletes and not is_upsert else ""
        new = {"id": "s.id", "day": "s.day", name: "s.v"} | ({} if is_upsert else {other: "NULL"})
        matched = f"WHEN MATCHED THEN UPDATE SET {name} = s.v"
        unmatched = f"WHEN NOT MATCHED THEN INSERT ({', '.join(new)}) VALUES ({', '.join(new.values())})"
        on = " AND ".join(f"s.{one} = t.{one}" for one in self.table.meta.primary_key)
        self.sql(f"{merge} ON {on} {gone}{matched} {unmatched}")
        for (day, id_), value in keys.items():
            row = self.rows.get((day, id_))
            if row is None:
                self.rows[day, id_] = {
                    "id": id_,
                    "day": day,
                    **NEW,
                    **({} if is_upsert else {other: None}),
                    name: value,
                }
            elif gone and row[other] == 2:
                del self.rows[day, id_]
            else:
                row[name] = value

    def some_rows(self, *, whole: bool) -> list[Row]:
        rows = []
        for id_ in self.chance.sample(range(6), self.chance.randint(1, 4)):
            names = list(VALUES) if whole else self.chance.sample(list(VALUES), self.chance.randint(0, 3))
            day = self.chance.choice("xy") if self.table.meta.partition_columns else "x"
            rows.append({"id": id_, "day": day, **{name: self.chance.choice(VALUES[name]) for name in names}})
        return rows


def key_of(row: Row) -> tuple[str, int]:
    return row["day"], row["id"]


def by_key(rows: list[Row]) -> Rows:
    result = {key_of(row): row for row in rows}
    assert len(result) == len(rows), rows
    return result


def collected(frame: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def bare(row: Row) -> Row:
    return {name: row[name] for name in ("id", "day", *VALUES)}


def made(lake: Lake, name: str, layout: str) -> Table:
    options = dict(LAYOUTS[layout])
    properties = {"merge.engine": "partial", "write.inline.rows": str(options.pop("inline"))}
    return lake.create_table(name, COLUMNS, key_scope="partition", properties=properties, **options)


def check_reads(history: History, versions: int) -> None:
    """Both engines read what the dict says: versions, conditions that no image meets alone, increments."""
    table, chance = history.table, history.chance
    for version in chance.sample(sorted(history.states), versions):
        wanted = history.states[version]
        assert by_key(table.to_arrow(version=version).to_pylist()) == wanted
        assert by_key(collected(table.read(version=version))) == wanted
        both = {key: row for key, row in wanted.items() if row["b"] == 5 and row["n"] == 3}
        where = table.read(version=version, where="b = 5 AND n = 3")
        assert sorted(row["id"] for row in collected(where.select("id"))) == sorted(row["id"] for row in both.values())
    since, until = sorted(chance.sample(sorted(history.states), 2))
    assert replayed(table, history.states[since], since, until) == history.states[until]
    net = collected(table.changes(since=since, until=until, mode="changes"))
    for mode, rows in (("log", collected(table.changes(since=since, until=until, mode="log"))), ("changes", net)):
        assert sets_in(rows) == sets_in(table.to_arrow(since=since, until=until, mode=mode).to_pylist())
    after = {key_of(row): bare(row) for row in net if row["_change_type"] in ("insert", "update_postimage")}
    before = {key_of(row): bare(row) for row in net if row["_change_type"] in ("delete", "update_preimage")}
    assert {key: history.states[since][key] for key in before} == before
    assert {k: row for k, row in history.states[since].items() if k not in before} | after == history.states[until]


def sets_in(changes: list[Row]) -> list[str]:
    names = ("_commit_version", "day", "id", "_change_type", "_set_columns")
    return sorted(repr([change[name] for name in names]) for change in changes)


def replayed(table: Table, rows: Rows, since: int, until: int) -> Rows:
    """Rows after every commit in turn, whose changes fit what was there."""
    by_version: dict[int, list[Row]] = {}
    for one in collected(table.changes(since=since, until=until, mode="log")):
        by_version.setdefault(one["_commit_version"], []).append(one)
    for _, changes in sorted(by_version.items()):
        before = {key_of(one): bare(one) for one in changes if one["_change_type"] in ("delete", "update_preimage")}
        after = {key_of(one): bare(one) for one in changes if one["_change_type"] in ("insert", "update_postimage")}
        assert {key: rows[key] for key in before} == before
        rows = {key: row for key, row in rows.items() if key not in before} | after
    return rows


@pytest.mark.parametrize("layout", LAYOUTS)
def test_spark_folds_images_as_arrow_and_a_dict_do(lake: Lake, new_name: Names, layout: str) -> None:
    history = History(made(lake, new_name(), layout), SqlReads(lake), seed=1)
    history.play(20)
    check_reads(history, versions=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 112))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_spark_folds_images_in_many_histories(lake: Lake, new_name: Names, layout: str, seed: int) -> None:
    history = History(made(lake, new_name(), layout), SqlReads(lake), seed)
    history.play(80)
    check_reads(history, versions=8)


def test_spark_writes_what_it_sets(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    name, sql = new_name(), SqlReads(lake)
    table = lake.create_table(
        name,
        "id bigint, a int, b int, c int",
        primary_key=["id"],
        buckets=1,
        profile="row_level",
        properties={"merge.engine": "partial"},
    )
    table.upsert([{"id": 1, "a": 1, "b": 1}])
    table.upsert([{"id": 1, "b": None}])
    rows = spark.createDataFrame([(1, 9)], "id bigint, a int")
    stream = spark.readStream.option("startingVersion", 2).table(f"{sql.name}.{name}")
    started = stream.writeStream.format("memory").queryName("partial_rows").trigger(availableNow=True).start()
    with pytest.raises(Exception, match="PARTIAL_IMAGES"):
        started.processAllAvailable()
    assert sql.rows(f"SELECT a, b FROM {{lake}}.{name} WHERE b IS NULL") == [(1, None)]
    assert sql.rows(f"SELECT count(*) FROM {{lake}}.{name}") == [(1,)]

    with lake.transaction() as txn:  # both run by Spark, of different cells; the first is the later to commit
        txn.table(name).update({"a": "length(repeat('x', a + 7))"}, where="id = 1 AND length(repeat('x', a)) = 1")
        sql(f"UPDATE {{lake}}.{name} SET b = 9")
    assert table.to_arrow().to_pylist() == [{"id": 1, "a": 8, "b": 9, "c": None}]
    txn = lake.transaction()
    txn.__enter__()
    txn.table(name).update({"a": "length(repeat('x', b))"}, where="id = 1")  # it reads b
    sql(f"UPDATE {{lake}}.{name} SET b = 3")
    with pytest.raises(ConflictError) as lost:
        txn.__exit__(None, None, None)
    assert [table.meta.columns[number - 1].name for number in lost.value.conflict.columns] == ["b"]

    table.merge(rows, on="id").when_matched_update().when_not_matched_insert().execute()
    assert sql.rows(f"SELECT id, a, b, c FROM {{lake}}.{name}") == [(1, 9, 3, None)]

    by_a = spark.sql("SELECT * FROM VALUES (1L, 4), (2L, 5) AS r(id, a)")
    merge = f"MERGE INTO {{lake}}.{name} t USING (SELECT * FROM VALUES (1L, 4), (2L, 5) AS r(id, c)) s ON t.id = s.id"
    with lake.transaction() as txn:  # of a row that is there, and of a new one
        txn.table(name).merge(by_a, on="id").when_matched_update().when_not_matched_insert().execute()
        sql(f"{merge} WHEN MATCHED THEN UPDATE SET c = s.c WHEN NOT MATCHED THEN INSERT (id, c) VALUES (s.id, s.c)")
        sql(f"UPDATE {{lake}}.{name} SET b = 6 WHERE id = 1")
    assert sql.rows(f"SELECT * FROM {{lake}}.{name} ORDER BY id") == [(1, 4, 6, 4), (2, 5, None, 5)]
    found = "WHEN MATCHED THEN UPDATE SET b = s.c WHEN NOT MATCHED THEN INSERT (id, b) VALUES (s.id, 0)"
    with lake.transaction() as txn:  # no upserts: both find their rows
        adding = txn.table(name).merge(by_a, on="id")
        adding = adding.when_matched_update({"a": "target.a + source.a"}, condition="target.c > 4")
        adding.when_not_matched_by_source_delete().execute()
        sql(f"{merge} {found}")
    assert sql.rows(f"SELECT * FROM {{lake}}.{name} ORDER BY id") == [(1, 4, 4, 4), (2, 10, 5, 5)]
    txn = lake.transaction()
    txn.__enter__()
    txn.table(name).merge(by_a, on="id").when_matched_update({"a": "target.b"}).execute()
    sql(f"{merge} {found}")
    with pytest.raises(ConflictError) as lost:
        txn.__exit__(None, None, None)
    assert [table.meta.columns[number - 1].name for number in lost.value.conflict.columns] == ["b"]
    new = merge.replace("(2L, 5)", "(3L, 5)")
    sql(f"{new} WHEN MATCHED AND t.a = 4 THEN DELETE {found}")  # with a new row, which is whole
    assert sql.rows(f"SELECT * FROM {{lake}}.{name} ORDER BY id") == [(2, 10, 5, 5), (3, None, 0, None)]
    table.overwrite(spark.createDataFrame([(2, 1, 1, 1)], "id bigint, a int, b int, c int"))
    assert table.to_arrow().to_pylist() == [{"id": 2, "a": 1, "b": 1, "c": 1}]


def test_an_insert_by_spark_sets_the_columns_that_it_gives(
    lake: Lake, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    name, sql = new_name(), SqlReads(lake)
    table = lake.create_table(
        name,
        "id bigint, a int, b int, c int default 5",
        primary_key=["id"],
        buckets=1,
        profile="row_level",
        properties={"merge.engine": "partial"},
    )
    into = f"INSERT INTO {{lake}}.{name}"
    no_a = spark.createDataFrame([(4,)], "id bigint").withColumn("a", sf.lit(None).cast("int"))
    whole = no_a.withColumn("b", sf.lit(None).cast("int")).withColumn("c", sf.lit(6))
    doors: list[tuple[Callable[[], Any], tuple[int, int | None, int | None, int | None]]] = [
        (lambda: sql(f"{into} VALUES (4, 1, 2, 3)"), (4, 1, 2, 3)),
        (lambda: sql(f"{into} (id, a) VALUES (4, 9)"), (4, 9, 2, 3)),
        (lambda: sql(f"{into} (b, id) SELECT id, id FROM {{lake}}.{name} WHERE id = 4"), (4, 9, 4, 3)),
        (lambda: sql(f"{into} (id, a, c) VALUES (4, NULL, DEFAULT)"), (4, None, 4, 5)),
        (lambda: sql(f"{into} BY NAME SELECT 7 AS A, 4L AS id"), (4, 7, 4, 5)),
        (lambda: table.insert(no_a), (4, None, 4, 5)),
        (lambda: sql(f"{into} (id) VALUES (4)"), (4, None, 4, 5)),
        (lambda: whole.writeTo(f"{sql.name}.{name}").append(), (4, None, None, 6)),
        (lambda: sql(f"{into} (id, b) VALUES (4, 8), (5, 9)"), (4, None, 8, 6)),
    ]
    for number, (write, row) in enumerate(doors):
        write()
        assert next(tuple(one.values()) for one in table.to_arrow().to_pylist() if one["id"] == 4) == row, number
    with lake.transaction() as txn:  # both by Spark, of different cells of two rows, one of them new
        txn.table(name).insert(spark.createDataFrame([(4, 1), (6, 1)], "id bigint, a int"))
        sql(f"{into} (id, c) VALUES (4, 2), (6, 2)")
    assert sql.rows(f"SELECT * FROM {{lake}}.{name} ORDER BY id") == [(4, 1, 8, 2), (5, None, 9, 5), (6, 1, None, 2)]
    source = lake.create_table(new_name(), "b int, id bigint")
    source.append([{"id": 4, "b": 1}])
    writer = spark.readStream.table(f"{sql.name}.{source.name}").writeStream.trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).toTable(f"{sql.name}.{name}").awaitTermination()
    assert sql.rows(f"SELECT * FROM {{lake}}.{name} WHERE id = 4") == [(4, 1, 1, 2)]
