"""INSERT of few rows by SQL: they go with the commit as from Arrow, and no file is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import Lake, Table
from metaservice.client import MetaClient
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.integration.service import service
from tests.spark.counted_calls import counted_service, session_on
from tests.spark.sql import SqlReads
from tests.spark.typed_rows import SCHEMA, arrow, row_of, texts
from worker.spark.jobs import job_tag

Names = Callable[[], str]


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


def files_of(table: Table) -> list[common_pb2.DataFile]:
    """With the rows of those that are inlined."""
    files = [entry.file for entry in table.lake.client.list_files(table.table_id) if entry.HasField("file")]
    paths = [one.path for one in files if one.inlined]
    kept = table.lake.client.read_inlined(table.table_id, paths) if paths else []
    contents = {one.path: one.content for one in kept}
    for one in files:
        one.content = contents.get(one.path, b"")
    return sorted(files, key=lambda one: (one.partition.SerializeToString(), one.bucket))


def facts(file: common_pb2.DataFile) -> list[Any]:
    """What a reader of the file goes by, its columns, and its rows."""
    stream = pa.ipc.open_stream(file.content)
    return [
        file.inlined,
        file.partition,
        file.bucket,
        file.kind,
        file.rows,
        file.tombstones,
        file.schema_version,
        list(file.stats),
        str(stream.schema),
        texts(stream.read_all().to_pylist()),
    ]


def stored(table: Table) -> list[Path]:
    return [one for one in Path(table.folder).rglob("*") if one.is_file()]


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_of_every_type_are_inlined_as_from_arrow(lake: Lake, sql: SqlReads, new_name: Names, keyed: bool) -> None:
    more: dict[str, Any] = {"primary_key": ["mark", "id"], "buckets": 3} if keyed else {}
    ours, theirs = (
        lake.create_table(new_name(), SCHEMA, partition_by=["mark"], **more),
        lake.create_table(new_name(), SCHEMA, partition_by=["mark"], **more),
    )
    rows = arrow([row_of(number, number % 6, mark=number % 2) for number in range(12)])
    sql.spark.createDataFrame(rows).createOrReplaceTempView("typed_rows")
    sql(f"INSERT INTO {{lake}}.{ours.name} TABLE typed_rows")
    (theirs.upsert if keyed else theirs.append)(rows)
    assert stored(ours) == []
    for mine, other in zip(map(facts, files_of(ours)), map(facts, files_of(theirs)), strict=True):
        assert mine == other
    assert texts(ours.to_arrow().to_pylist()) == texts(theirs.to_arrow().to_pylist())
    assert texts(sql.table(ours.name).toArrow().to_pylist()) == texts(rows.to_pylist())


def test_the_rules_of_writes_hold(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, n int not null, note string", primary_key=["id"], buckets=2)
    name = f"{{lake}}.{table.name}"
    sql(f"ALTER TABLE {name} ALTER COLUMN note SET DEFAULT 'none'")
    sql(f"INSERT INTO {name} (id, n) VALUES (1, 1), (2, 2), (3, 3)")
    sql(f"INSERT INTO {name} VALUES (2, 20, 'two'), (4, 4, NULL)")
    for refused, values in [
        ("KEY_TWICE", "(5, 5, ''), (6, 6, ''), (5, 7, '')"),
        ("CAST_LOSSY", "(1.5, 1, '')"),
        ("NULL", "(7, NULL, '')"),
    ]:
        with pytest.raises(PySparkException, match=refused):
            sql(f"INSERT INTO {name} VALUES {values}")
    rows = [(1, 1, "none"), (2, 20, "two"), (3, 3, "none"), (4, 4, None)]
    assert sql.rows(f"SELECT * FROM {name} ORDER BY id") == rows
    assert stored(table) == []
    states = {one.state for one in lake.client.list_transactions(table_id=table.table_id)}
    assert len(states) == 1  # nothing is left open


@pytest.mark.parametrize(
    ("most", "statement", "inlined"),
    [
        ("2", "VALUES (1, 'a'), (2, 'b')", 1),
        ("2", "VALUES (1, 'a'), (2, 'b'), (3, 'c')", 0),
        ("0", "VALUES (1, 'a')", 0),
        ("1000", "SELECT 1, repeat('x', 20)", 1),
        ("1000", "SELECT CAST(rand() * 0 AS INT), 'a'", 1),
        ("1000", "SELECT id, 'a' FROM range(3)", 0),
    ],
)
def test_few_rows_that_a_statement_brings(
    lake: Lake, sql: SqlReads, new_name: Names, most: str, statement: str, inlined: int
) -> None:
    table = lake.create_table(new_name(), "id int, note string", properties={"write.inline.rows": most})
    sql(f"INSERT INTO {{lake}}.{table.name} {statement}")
    files = files_of(table)
    assert [one.inlined for one in files] == [True] * inlined or not any(one.inlined for one in files)
    assert bool(stored(table)) is not bool(inlined)


def test_rows_for_which_there_is_no_room_go_into_files(sql: SqlReads, tmp_path: Path) -> None:
    """The service refuses inlined rows while too many wait for a compaction."""
    with service(tmp_path / "store", "--inlined-bytes-max", "4000") as (running, _):
        warehouse = tmp_path / "files"
        session = session_on(sql.spark, "full", running.address, warehouse)
        session.sql("CREATE TABLE full.kept (id BIGINT, note STRING, PRIMARY KEY (id)) TBLPROPERTIES ('buckets' = '2')")
        for number in range(8):
            session.sql(f"INSERT INTO full.kept VALUES ({number}, 'first'), (100, 'number {number}')")
        assert session.table("full.kept").count() == 9
        assert session.sql("SELECT note FROM full.kept WHERE id = 100").collect() == [("number 7",)]
        assert any(path.suffix == ".parquet" for path in warehouse.rglob("*"))
        with MetaClient(running.address) as client:
            (table,) = client.list_tables()
            assert any(entry.file.inlined for entry in client.list_files(table.table_id))
            assert not list(client.list_transactions(state=transaction_pb2.TRANSACTION_STATE_OPEN))


@pytest.mark.parametrize(
    ("refused", "calls"),
    [
        ([], ["Session"]),
        (["Session"], ["Session", "BeginTransaction", "RegisterFiles", "CommitTransaction"]),
    ],
)
def test_a_small_insert_is_one_call(sql: SqlReads, tmp_path: Path, refused: list[str], calls: list[str]) -> None:
    """Of a table that the session knows. A service, or a way to it, that takes no sessions is called one by one."""
    with counted_service(tmp_path / "store", *refused) as (counted, address, _):
        catalog = "single" if refused else "whole"
        session = session_on(sql.spark, catalog, address, tmp_path / "files")
        session.sql(f"CREATE TABLE {catalog}.kept (id BIGINT, note STRING)")
        session.sql(f"INSERT INTO {catalog}.kept VALUES (1, 'one')")
        counted.taken()
        session.sql(f"INSERT INTO {catalog}.kept VALUES (2, 'two')")
        assert counted.taken() == calls
        assert session.table(f"{catalog}.kept").count() == 2


@pytest.mark.parametrize(("rows", "jobs"), [("VALUES (1, 'a'), (2, 'b')", 0), ("SELECT id, 'a' FROM range(3)", 1)])
def test_values_are_inserted_without_a_job(lake: Lake, sql: SqlReads, new_name: Names, rows: str, jobs: int) -> None:
    table = lake.create_table(new_name(), "id int, note string")
    tracker: Any = sql.spark.sparkContext._jsc.sc().statusTracker()
    with job_tag(sql.spark, f"jobs-of-{table.name}") as tag:
        sql(f"INSERT INTO {{lake}}.{table.name} {rows}")
        assert len(tracker.getJobIdsForTag(tag)) == jobs
    assert table.count() == 2 + jobs


# -- of tables that the session has looked at, and others have changed since

CHANGES: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    "a column more": (
        "ALTER TABLE {it} ADD COLUMN more INT",
        "INSERT INTO {it} VALUES (2, 2, 'b', 20)",
        [(1, 1, "a", None), (2, 2, "b", 20)],
    ),
    "a column less": ("ALTER TABLE {it} DROP COLUMN n", "INSERT INTO {it} VALUES (2, 'b')", [(1, "a"), (2, "b")]),
    "another name": (
        "ALTER TABLE {it} RENAME COLUMN note TO words",
        "INSERT INTO {it} (id, n, words) VALUES (2, 2, 'b')",
        [(1, 1, "a"), (2, 2, "b")],
    ),
    "a default": (
        "ALTER TABLE {it} ALTER COLUMN note SET DEFAULT 'none'",
        "INSERT INTO {it} (id, n) VALUES (2, 2)",
        [(1, 1, "a"), (2, 2, "none")],
    ),
    "a wider type": (
        "ALTER TABLE {it} ALTER COLUMN n TYPE BIGINT",
        "INSERT INTO {it} VALUES (2, 3000000000, 'b')",
        [(1, 1, "a"), (2, 3_000_000_000, "b")],
    ),
    "no value asked for": (
        "ALTER TABLE {it} ALTER COLUMN note DROP NOT NULL",
        "INSERT INTO {it} VALUES (2, 2, NULL)",
        [(1, 1, "a"), (2, 2, None)],
    ),
    "columns in another order": (
        "ALTER TABLE {it} ALTER COLUMN id AFTER n",
        "INSERT INTO {it} VALUES (3, 2, 'b')",
        [(1, 1, "a"), (3, 2, "b")],
    ),
    "a new definition": (
        "CREATE OR REPLACE TABLE {it} (id BIGINT, n INT, flag BOOLEAN)",
        "INSERT INTO {it} VALUES (2, 2, true)",
        [(2, 2, True)],
    ),
    "another table": (
        "ALTER TABLE {it} RENAME TO {old}; CREATE TABLE {it} (id BIGINT, n INT, note STRING)",
        "INSERT INTO {it} VALUES (2, 2, 'b')",
        [(2, 2, "b")],
    ),
    "one of the same name": (
        "DROP TABLE {it}; CREATE TABLE {it} (id BIGINT, n INT, note STRING)",
        "INSERT INTO {it} VALUES (2, 2, 'b')",
        [(2, 2, "b")],
    ),
    "rows alone": ("INSERT INTO {it} VALUES (5, 5, 'e')", "INSERT INTO {it} VALUES (2, 2, 'b')", []),
}


@pytest.fixture(scope="module")
def apart(sql: SqlReads, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSession, SparkSession]]:
    """Two sessions of one lake: one remembers a table, the other one changes it."""
    folder = tmp_path_factory.mktemp("apart")
    with service(folder / "store") as (running, _):
        ours, theirs = (session_on(sql.spark, "apart", running.address, folder / "files") for _ in range(2))
        yield ours, theirs


@pytest.mark.parametrize("changed", CHANGES)
def test_an_insert_knows_what_its_table_is_by_now(apart: tuple[SparkSession, SparkSession], changed: str) -> None:
    change, insert, rows = CHANGES[changed]
    ours, theirs = apart
    name = f"apart.{changed.replace(' ', '_')}"
    note = "STRING NOT NULL" if "NOT NULL" in change else "STRING"
    ours.sql(f"CREATE TABLE {name} (id BIGINT, n INT, note {note})")
    ours.sql(f"INSERT INTO {name} VALUES (1, 1, 'a')")
    for statement in change.split("; "):
        theirs.sql(statement.format(it=name, old=f"{changed.replace(' ', '_')}_old"))
    ours.sql(insert.format(it=name))
    found = [tuple(row) for row in ours.table(name).collect()]
    assert sorted(found, key=str) == sorted(rows or [(1, 1, "a"), (2, 2, "b"), (5, 5, "e")], key=str)
    if "RENAME TO" in change:
        assert [tuple(row) for row in ours.table(f"{name}_old").collect()] == [(1, 1, "a")]


@pytest.mark.parametrize("policy", ["fail", "resubmit", "rerun"])
def test_an_insert_loses_no_race_that_was_over(apart: tuple[SparkSession, SparkSession], policy: str) -> None:
    """Rows of the same key, committed before the statement began."""
    ours, theirs = apart
    name = f"apart.keyed_{policy}"
    properties = f"'buckets' = '1', 'write.on_conflict' = '{policy}'"
    ours.sql(f"CREATE TABLE {name} (id BIGINT, n INT, PRIMARY KEY (id)) TBLPROPERTIES ({properties})")
    for number, session in enumerate([ours, theirs, ours, theirs]):
        session.sql(f"INSERT INTO {name} VALUES (1, {number})")
        assert ours.table(name).collect() == [(1, number)]


def test_a_table_made_anew_under_a_strict_policy(apart: tuple[SparkSession, SparkSession]) -> None:
    """The statement asks for the version of its table, which is gone."""
    ours, theirs = apart
    made = "CREATE TABLE apart.strict (id BIGINT) TBLPROPERTIES ('write.on_conflict' = 'fail')"
    ours.sql(made)
    ours.sql("INSERT INTO apart.strict VALUES (1)")
    theirs.sql("DROP TABLE apart.strict")
    theirs.sql(made)
    ours.sql("INSERT INTO apart.strict VALUES (2)")
    assert ours.table("apart.strict").collect() == [(2,)]
