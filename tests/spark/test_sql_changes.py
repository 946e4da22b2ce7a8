"""Increments by SQL: against the rows of every version, and against Python's reader."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from laketx import Lake
from metaservice.client import drop_column, rename_column, widen_column
from tests.spark.changed_rows import wanted
from tests.spark.histories import grow
from tests.spark.lab_tables import COLUMNS, row
from tests.spark.reading import LabLake, LabTable, open_lab, shown, union
from tests.spark.sql import SqlReads
from tests.spark.typed_rows import SCHEMA, frame, row_of, texts
from worker.arrow.changes.commits import MODES

TIMES = ("_commit_time", "_commit_timestamp")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("increments by sql")) as made:
        yield made


@pytest.fixture(scope="module")
def sql(lab: LabLake) -> SqlReads:
    return SqlReads(lab)


@pytest.fixture(scope="module")
def lake_sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


def increment(sql: SqlReads, name: str, since: int, until: int, mode: str) -> DataFrame:
    """What follows `since`, each mode as people write it."""
    between = f"FROM VERSION {since} EXCLUSIVE TO VERSION {until}"
    if mode == "log":
        return sql(f"SELECT * FROM {{lake}}.{name} CHANGES {between}")
    if mode == "changes":
        return sql(f"SELECT * FROM {{lake}}.{name} CHANGES {between} WITH (deduplicationMode = 'netChanges')")
    reader = sql.spark.read.option("mode", "latest").option("endingVersion", until)
    return reader.option("startingVersion", since + 1).table(f"{sql.name}.{name}.changes")


def check(sql: SqlReads, table: LabTable, ranges: list[tuple[int, int]]) -> None:
    """Every range in every mode, in one job."""
    cases = [(since, until, mode) for since, until in ranges for mode in MODES]
    frames = [
        increment(sql, table.meta.name, *case).drop(*TIMES).selectExpr(f"{at} as case", "*")
        for at, case in enumerate(cases)
    ]
    found: dict[int, list[str]] = {at: [] for at in range(len(cases))}
    for one in union(frames).collect():
        values: list[Any] = list(one)
        found[values[0]].append(repr(tuple(values[1:])))
    for at, case in enumerate(cases):
        assert sorted(found[at]) == wanted(table, *case), case


@pytest.mark.parametrize(
    ("seed", "keyed"),
    [(0, False), (1, True), *(pytest.param(*one, marks=pytest.mark.long) for one in [(0, True), (1, False)])],
)
def test_random_histories(lab: LabLake, sql: SqlReads, seed: int, keyed: bool) -> None:
    table = grow(lab, f"history_{seed}_{keyed}", seed, keyed=keyed)
    chance = random.Random(seed)
    since, until = sorted(chance.choices(range(table.head), k=2))
    check(sql, table, [(since, until + 1), (0, table.head)])


def test_every_way_to_say_a_range(lab: LabLake, sql: SqlReads) -> None:
    table = lab.create("said", {"id": "bigint"})
    for number in range(6):
        table.insert([{"id": number}])
    lab.client.create_tag(table.table_id, "two", version=2)
    times = {one.version: one.commit_time_us for one in lab.client.list_versions(table.table_id)}

    def at(version: int, more_us: int = 0) -> str:
        at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=times[version] + more_us)
        return f"'{at:%Y-%m-%d %H:%M:%S.%f}'"

    def ids(said: str) -> list[int]:
        return sorted(one["id"] for one in sql(f"SELECT id FROM {{lake}}.said{said}").collect())

    for said, wanted_ids in {
        " CHANGES FROM VERSION 3": [2, 3, 4, 5],
        " CHANGES FROM VERSION 3 TO VERSION 4": [2, 3],
        " CHANGES FROM VERSION 3 EXCLUSIVE TO VERSION 5 EXCLUSIVE": [3],
        " CHANGES FROM VERSION 'two' EXCLUSIVE TO VERSION 4": [2, 3],
        " CHANGES FROM VERSION 0 TO VERSION 1": [0],
        f" CHANGES FROM TIMESTAMP {at(3)} TO TIMESTAMP {at(4)}": [2, 3],
        f" CHANGES FROM TIMESTAMP {at(3)} EXCLUSIVE TO TIMESTAMP {at(4, -1)}": [],
        f" CHANGES FROM TIMESTAMP {at(3)} EXCLUSIVE TO TIMESTAMP {at(5)} EXCLUSIVE": [3],
        ".changes": [0, 1, 2, 3, 4, 5],
        ".changes VERSION AS OF 2": [0, 1],
        ".changes WHERE _commit_version > 3 AND _commit_version <= 5": [3, 4],
        ".changes WHERE _commit_version = 3": [2],
        ".changes WHERE _commit_version BETWEEN 2 AND 3 AND id <> 1": [2],
        ".changes WHERE _commit_version > 9": [],
        ".changes WHERE _commit_version < 1": [],
        ".changes WITH (startingVersion = 5)": [4, 5],
        ".changes WITH (startingVersion = 2, endingVersion = 'two')": [1],
        " WITH (readChangeFeed = true, startingVersion = 6)": [5],
    }.items():
        assert ids(said) == wanted_ids, said
    plan = sql.text("SELECT id FROM {lake}.said.changes WHERE _commit_version > 3 AND _commit_version <= 5")
    assert "changes of versions 4 to 5" in plan
    for said, reason in {
        " CHANGES FROM VERSION 5 TO VERSION 3": "RANGE_INVALID",
        " CHANGES FROM VERSION 1 TO VERSION 99": "VERSION_",
        " CHANGES FROM VERSION 'three'": "TAG_UNKNOWN",
        ".changes WITH (mode = 'all')": "MODE_INVALID: the mode of changes is log, changes or latest, not 'all'",
        ".changes WITH (startingVersion = 1, startingTimestamp = '2026-11-01')": "RANGE_INVALID",
        ".changes WITH (endingTimestamp = 'soon')": "POINT_INVALID: endingTimestamp is 'soon'",
    }.items():
        with pytest.raises(PySparkException, match=reason):
            sql(f"SELECT * FROM {{lake}}.said{said}").collect()


def test_rows_are_compared_under_the_schema_of_the_end(lab: LabLake, sql: SqlReads) -> None:
    columns = {"id": "bigint", "pay": "int", "note": "string"}
    table = lab.create("evolving", columns, key=["id"], buckets=1)
    table.insert([{"id": 1, "pay": 10, "note": "a"}, {"id": 2, "pay": 20, "note": "a"}])
    table.insert([{"id": 1, "pay": 10, "note": "b"}])  # nothing else than a column that goes
    table.alter(
        rename_column("pay", "salary"),
        widen_column("salary", "bigint"),
        drop_column("note"),
        rows=lambda row: {"id": row["id"], "salary": row["pay"]},
    )
    table.insert([{"id": 2, "salary": 1 << 40}])
    name = table.meta.name
    assert shown(increment(sql, name, 1, 4, "log").drop(*TIMES)) == [
        (2, 1 << 40, "update_postimage", 4),
        (2, 20, "update_preimage", 4),
    ]
    assert shown(increment(sql, name, 1, 2, "log").drop(*TIMES)) == [
        (1, 10, "a", "update_preimage", 2),
        (1, 10, "b", "update_postimage", 2),
    ]
    assert shown(increment(sql, name, 0, 4, "latest").drop(*TIMES)) == [(1, 10, "insert", 1), (2, 1 << 40, "insert", 4)]


def test_columns_conditions_and_counts(lab: LabLake, sql: SqlReads) -> None:
    """A change of a column that nobody asks for is a change; what is read of new rows is what is asked for."""
    for keyed in (False, True):
        table = lab.create(f"asked_{keyed}", COLUMNS, key=["id"] if keyed else [])
        table.insert([row(number) for number in range(10)])
        table.update({one: row(5, 7.0) for one in table.find(5)})
        table.delete(table.find(3))
        name = f"{{lake}}.asked_{keyed}.changes"
        assert sql.rows(f"SELECT count(*) FROM {name} WHERE _commit_version > 1") == [(3,)]
        assert sql.rows(f"SELECT id FROM {name} WHERE _change_type = 'update_preimage'") == [(5,)]
        assert sql.rows(f"SELECT _change_type, id FROM {name} WHERE id IN (3, 5) AND _commit_version > 1") == [
            ("delete", 3),
            ("update_postimage", 5),
            ("update_preimage", 5),
        ]
        assert sql.rows(f"SELECT max(amount), min(_commit_version) FROM {name} WHERE amount > 5") == [(7.0, 2)]


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[] if mode == "log" else pytest.mark.long) for mode in MODES]
)
@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_every_type_as_from_python(
    lake: Lake, lake_sql: SqlReads, new_name: Callable[[], str], keyed: bool, mode: str
) -> None:
    name = new_name()
    table = lake.create_table(name, SCHEMA, primary_key=["id"] if keyed else [])
    kinds = (0, 2, 3, 4) if keyed else range(5)
    table.insert(frame(lake.spark, [row_of(at, at) for at in kinds]))
    table.insert(frame(lake.spark, [row_of(at + 5, at, mark=1) for at in kinds]))
    table.update({"mark": "2"}, where="id in (1, 4, 7)")
    table.update({"mark": "mark"}, where="id in (1, 2)")  # which changes nothing
    table.delete("id in (0, 9)")
    if mode == "log":
        table.overwrite(frame(lake.spark, [row_of(at, at) for at in (3, 4)]))
    until = lake.client.resolve_version(table.table_id).version
    python = table.changes(since=1, until=until, mode=mode).drop(*TIMES).toArrow().to_pylist()
    found = increment(lake_sql, name, 1, until, mode).drop(*TIMES).toArrow().to_pylist()
    assert texts(found) == texts(python) != []


def test_a_time_is_the_commits(lake: Lake, lake_sql: SqlReads, new_name: Callable[[], str]) -> None:
    name = new_name()
    table = lake.create_table(name, "id bigint", primary_key=["id"])
    table.insert(lake.spark.range(3))
    python = shown(table.changes(since=0, mode="log"))
    assert shown(increment(lake_sql, name, 0, 1, "log")) == python
    assert lake_sql.rows(f"SELECT * FROM {{lake}}.{name}.changes") == python
    assert lake_sql(f"SELECT * FROM {{lake}}.{name}.changes").columns[-1] == "_commit_time"


def test_names_that_mean_no_changes(lake: Lake, lake_sql: SqlReads, new_name: Callable[[], str]) -> None:
    name = new_name()
    lake.create_table(name, "id bigint").insert(lake.spark.range(3))
    with pytest.raises(PySparkException, match="_change_type"):
        lake_sql(f"ALTER TABLE {{lake}}.{name} ADD COLUMN _change_type STRING")
    for missing in (f"{name}_none.changes", f"{name}.changes.history"):
        with pytest.raises(PySparkException, match="NOT_FOUND"):
            lake_sql(f"SELECT * FROM {{lake}}.{missing}")
