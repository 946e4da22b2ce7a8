"""What SQL tells the decider: when a statement began, and what it read of the table that it changes.

A statement waits after its analysis, before its first task writes, until another commit is there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import ConflictError, Lake, Table
from protos.laketx.v1 import common_pb2
from tests.spark.held import Held
from tests.spark.sql import SqlReads

_numbers = itertools.count()
Names = Callable[[], str]
Other = Callable[[Table], Any]

ADAPTIVE: Final = "spark.sql.adaptive.enabled"
ON_CONFLICT: Final = "spark.laketx.on_conflict"
PROFILES: Final = ("maxcompute", "delta_serializable", "delta_write_serializable", "row_level")
ROWS: Final = [{"id": 1, "v": 10, "p": 1}, {"id": 2, "v": 20, "p": 2}]
HOLDS: Final = "(SELECT max(held(id)) FROM range(1, 2))"  # Spark asks it before a task writes


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    lake.client.create_namespace("tests", if_not_exists=True)
    return SqlReads(lake)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


class Races:
    def __init__(self, lake: Lake, sql: SqlReads, folder: Path, new_name: Names) -> None:
        self.lake, self.sql, self.folder, self.new_name = lake, sql, folder, new_name

    def table(self, profile: str, *, keyed: bool = False, parted: bool = True) -> Table:
        return self.filled(self.new_name(), profile, keyed=keyed, parted=parted)

    def filled(self, name: str, profile: str, *, keyed: bool = False, parted: bool = True) -> Table:
        made = self.lake.create_table(
            name,
            "id bigint, v bigint, p int",
            primary_key=["id", "p"] if keyed else [],
            buckets=1 if keyed else None,
            partition_by=["p"] if parted else [],
            profile=profile,
        )
        made.upsert(ROWS) if keyed else made.append(ROWS)
        return made

    def run(self, statement: str | Callable[[], Any], table: Table, meanwhile: Other) -> str:
        """`{t}` is the table. The answer is "commits", or the message of the refusal."""
        folder = self.folder / str(next(_numbers))
        folder.mkdir()
        held = Held(self.sql.spark, folder, "held")
        text = statement.replace("{t}", f"{self.sql.name}.{table.name}") if isinstance(statement, str) else ""
        lost = held.run((lambda: self.sql.spark.sql(text)) if text else statement, lambda: meanwhile(table))  # type: ignore[arg-type]
        if lost is None:
            return "commits"
        assert isinstance(lost, PySparkException), lost
        return str(lost)


@pytest.fixture
def races(lake: Lake, sql: SqlReads, tmp_path: Path, new_name: Names) -> Races:
    return Races(lake, sql, tmp_path, new_name)


def rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.refresh().to_arrow().to_pylist())


def values(table: Table) -> list[int]:
    return sorted(row[1] for row in rows(table))


def adds(table: Table) -> None:
    table.append([{"id": 3, "v": 30, "p": 1}])


def replaces(table: Table) -> None:
    table.overwrite([{"id": 7, "v": 70, "p": 1}, {"id": 7, "v": 71, "p": 2}])


def changes(table: Table) -> None:
    table.update({"v": 11}, where="id = 1")


# -- a transaction begins when its statement is analysed


@pytest.mark.parametrize(
    ("adaptive", "statement"),
    [
        ("true", "INSERT INTO {t} SELECT id, sum(held(id)), 1 FROM range(5, 7) GROUP BY id"),
        ("false", f"INSERT INTO {{t}} SELECT 5L, {HOLDS}, 1"),
    ],
)
def test_an_insert_began_when_it_was_analysed(races: Races, adaptive: str, statement: str) -> None:
    """INSERT INTO after INSERT OVERWRITE: the later job fails, also where the first one came while it ran."""
    table = races.table("maxcompute")
    with setting(races.sql.spark, ADAPTIVE, adaptive), setting(races.sql.spark, ON_CONFLICT, "fail"):
        assert "rule:   OUTCOME TABLE" in races.run(statement, table, replaces)
    assert values(table) == [70, 71]


@pytest.mark.parametrize("profile", ["delta_serializable", "delta_write_serializable"])
def test_an_overwrite_began_when_it_was_analysed(races: Races, profile: str) -> None:
    """It removes what it saw, and another one has removed that."""
    table = races.table(profile)
    found = races.run(f"INSERT OVERWRITE {{t}} SELECT 5L, {HOLDS}, 1", table, replaces)
    assert "CONCURRENT" in found
    assert values(table) == [70, 71]


def test_replacing_a_table_begins_with_its_statement(races: Races) -> None:
    table = races.table("delta_serializable", parted=False)
    found = races.run(f"CREATE OR REPLACE TABLE {{t}} AS SELECT 5L AS id, {HOLDS} AS v, 1 AS p", table, replaces)
    assert "CONCURRENT" in found
    assert values(table) == [70, 71]


def test_a_streams_replacement_begins_with_its_batch(races: Races, tmp_path: Path) -> None:
    table = races.table("delta_serializable", parted=False)
    source = races.table("maxcompute", parted=False)
    name = races.sql.name

    def batch() -> None:
        read = races.sql.spark.readStream.table(f"{name}.{source.name}")
        counts = read.selectExpr("held(id) AS id", "v").groupBy("id").agg({"v": "sum"})
        made = counts.selectExpr("id", "`sum(v)` AS v", "1 AS p")
        written = made.writeStream.outputMode("complete").option("checkpointLocation", str(tmp_path / "checkpoint"))
        written.trigger(availableNow=True).toTable(f"{name}.{table.name}").awaitTermination()

    assert "CONCURRENT" in races.run(batch, table, replaces)
    assert values(table) == [70, 71]


# -- what a statement reads of its table is declared


@pytest.mark.parametrize("profile", PROFILES)
def test_of_two_inserts_that_read_what_the_other_writes_one_loses(races: Races, profile: str) -> None:
    table = races.table(profile, parted=False)
    numbered = f"INSERT INTO {{t}} SELECT max(id) + 1, {HOLDS}, 9 FROM {{t}}"
    other = numbered.replace(HOLDS, "5L").replace("{t}", f"{races.sql.name}.{table.name}")
    assert "lost a race" in races.run(numbered, table, lambda _: races.sql.spark.sql(other))
    assert [row[0] for row in rows(table)] == [1, 2, 3]


@pytest.mark.parametrize("profile", PROFILES)
def test_an_insert_by_key_undoes_no_update_of_what_it_read(races: Races, profile: str) -> None:
    table = races.table(profile, keyed=True)
    found = races.run(f"INSERT INTO {{t}} SELECT id, v + {HOLDS}, p FROM {{t}} WHERE p = 1", table, changes)
    assert "lost a race" in found
    assert values(table) == [11, 20]


@pytest.mark.parametrize(
    ("profile", "loses"),
    [
        ("delta_serializable", True),
        ("row_level", True),
        pytest.param("delta_write_serializable", True, marks=pytest.mark.long),
        pytest.param("maxcompute", False, marks=pytest.mark.long),  # it wins, as the table says
    ],
)
@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT OVERWRITE {{t}} SELECT id, v + {HOLDS}, p FROM {{t}}",
        f"INSERT INTO {{t}} REPLACE WHERE p = 1 SELECT id, v + {HOLDS}, p FROM {{t}} WHERE p = 1",
        f"CREATE OR REPLACE TABLE {{t}} PARTITIONED BY (p) AS SELECT id, v + {HOLDS} AS v, p FROM {{t}}",
    ],
)
def test_what_replaces_rows_by_what_it_read_erases_no_other_commit(
    races: Races, profile: str, loses: bool, statement: str
) -> None:
    table = races.table(profile)
    found = races.run(statement, table, adds)
    assert ("lost a race" in found) is loses
    assert (30 in values(table)) is loses


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE {{t}} SET v = 0 WHERE id = 1 AND {HOLDS} < (SELECT count(*) FROM {{t}} WHERE v > 0)",
        f"UPDATE {{t}} SET v = 0 WHERE id = 1 AND EXISTS (SELECT 1 FROM {{t}} o WHERE o.id = 2 AND o.v > {HOLDS})",
        f"DELETE FROM {{t}} WHERE id = 1 AND id + {HOLDS} IN (SELECT id FROM {{t}} WHERE v > 0)",
        f"""MERGE INTO {{t}} t USING (SELECT 1L AS id, count(*) AS n, {HOLDS} AS h FROM {{t}} WHERE v > 0) s
        ON t.id = s.id AND t.p = 1 WHEN MATCHED AND n > h THEN UPDATE SET v = 0""",
    ],
)
@pytest.mark.parametrize(
    "profile", ["row_level", "maxcompute", *(pytest.param(one, marks=pytest.mark.long) for one in PROFILES[1:3])]
)
def test_a_subquery_on_the_changed_table_is_a_read(races: Races, profile: str, statement: str) -> None:
    """Two doctors may not both go off call."""
    table = races.table(profile)
    found = races.run(statement, table, lambda one: one.update({"v": 0}, where="id = 2 AND p = 2"))
    assert "lost a race" in found
    assert rows(table) == [(1, 10, 1), (2, 0, 2)]


def test_reads_are_found_wherever_they_stand(races: Races) -> None:
    """In a view, in a CTE, in what is cached, in a table's metadata: seen by what the commit declares."""
    spark, name = races.sql.spark, races.sql.name
    table = races.table("row_level")
    spark.sql(f"CREATE VIEW {name}.{table.name}_view AS SELECT * FROM {name}.{table.name} WHERE p = 1")
    spark.table(f"{name}.{table.name}").createOrReplaceTempView("temporary")
    cached = spark.table(f"{name}.{table.name}").where("p = 1").cache()
    cached.createOrReplaceTempView("cached")
    sources = [
        f"SELECT id, v, p FROM {name}.{table.name}_view",
        f"WITH some AS (SELECT * FROM {name}.{table.name}) SELECT a.* FROM some a JOIN some b USING (id)",
        "SELECT * FROM temporary",
        "SELECT * FROM cached",
        f"SELECT count(*), 1L, 1 FROM {name}.{table.name}.history",
        f"SELECT count(*), 1L, 1 FROM {name}.{table.name} CHANGES FROM VERSION 0",
    ]
    try:
        assert cached.count() == 1
        for source in sources:
            assert "lost a race" in races.run(_copying(source), table, changes), source
    finally:
        cached.unpersist()
    blind = [
        f"SELECT * FROM {name}.{table.name} VERSION AS OF 1",
        f"SELECT count(*), 1L, 1 FROM {name}.{table.name} CHANGES FROM VERSION 0 TO VERSION 1",
        "SELECT 1L, 1L, 1",
    ]
    for source in blind:
        assert races.run(_copying(source), table, changes) == "commits", source


def _copying(source: str) -> str:
    return f"INSERT INTO {{t}} SELECT id + {HOLDS}, v, p FROM ({source}) AS s (id, v, p)"


def test_conditions_on_partitions_are_declared(races: Races) -> None:
    table = races.table("maxcompute")
    statement = f"INSERT INTO {{t}} SELECT id + 5, v + {HOLDS}, p FROM {{t}} WHERE p = 2"
    assert races.run(statement, table, adds) == "commits"
    assert values(table) == [10, 20, 21, 30]
    statement = f"INSERT INTO {{t}} SELECT id + 5, v + {HOLDS}, 2 FROM {{t}} WHERE p = 1"
    assert "lost a race" in races.run(statement, table, adds)


def test_a_dataframe_that_was_made_earlier_reads_what_it_read_then(races: Races) -> None:
    table = races.table("row_level", parted=False)
    early = table.read()
    changes(table)
    with pytest.raises(PySparkException, match="lost a race"):
        early.writeTo(f"{races.sql.name}.{table.name}").append()
    table.refresh().read().writeTo(f"{races.sql.name}.{table.name}").append()
    assert values(table) == [11, 11, 20, 20]


def test_the_reads_of_a_dataframe_are_told_to_python(races: Races) -> None:
    spark, table = races.sql.spark, races.table("row_level")
    frame = spark.table(f"{races.sql.name}.{table.name}").where("p = 2").selectExpr("max(id)")
    jvm: Any = spark._jvm
    found = jvm.io.laketx.spark.write.PlanReads.of(frame._jdf, table.table_id)
    (read,) = [common_pb2.Read.FromString(bytes(one)) for one in found.reads()]
    assert "p" in str(read.predicate)
    assert not read.changes_all
    assert found.version() == table.lake.client.get_table(table_id=table.table_id).head_version
    none = jvm.io.laketx.spark.write.PlanReads.of(spark.range(3).toDF("id")._jdf, table.table_id)
    assert (len(none.reads()), none.version()) == (0, -1)


# -- after a lost race


def test_a_blind_insert_is_resubmitted_unless_somebody_says_fail(races: Races) -> None:
    table = races.table("maxcompute")
    blind = f"INSERT INTO {{t}} SELECT 5L, {HOLDS}, 1"
    assert races.run(blind, table, replaces) == "commits"
    assert values(table) == [1, 70, 71]
    with setting(races.sql.spark, ON_CONFLICT, "fail"):
        assert "lost a race" in races.run(blind, table, replaces)


def test_what_reads_is_not_resubmitted(races: Races) -> None:
    table = races.table("maxcompute")
    spark, name = races.sql.spark, f"{races.sql.name}.{table.name}"
    reads = f"INSERT INTO {{t}} SELECT max(id) + 1, {HOLDS}, 1 FROM {{t}}"
    with setting(spark, ON_CONFLICT, "resubmit"):
        assert "lost a race" in races.run(reads, table, adds)
    with pytest.raises(PySparkException, match="POLICY_INVALID"):
        spark.table(name).writeTo(name).option("on_conflict", "resubmit").append()
    other = spark.range(1).selectExpr("id", "id AS v", "1 AS p")
    with pytest.raises(PySparkException, match="POLICY_INVALID"):
        other.writeTo(name).option("on_conflict", "resubmit").overwritePartitions()


def test_rerun_computes_an_insert_again_that_read_its_table(races: Races) -> None:
    table = races.table("maxcompute")
    with setting(races.sql.spark, ON_CONFLICT, "rerun"):
        assert races.run(f"INSERT INTO {{t}} SELECT max(id) + 1, {HOLDS}, 1 FROM {{t}}", table, adds) == "commits"
    assert [row[0] for row in rows(table)] == [1, 2, 3, 4]


# -- reads of other tables


@pytest.mark.parametrize("by", ["session", "table"])
def test_reads_of_other_tables_are_declared_where_somebody_says_so(races: Races, by: str) -> None:
    """A row is counted in one table and written to another; meanwhile another one is counted."""
    spark = races.sql.spark
    other, table = races.table("delta_serializable", parted=False), races.table("row_level", parted=False)
    counts = f"INSERT INTO {{t}} SELECT count(*), {HOLDS}, 1 FROM {races.sql.name}.{other.name}"
    assert races.run(counts, table, lambda _: adds(other)) == "commits"
    if by == "table":
        spark.sql(f"ALTER TABLE {races.sql.name}.{table.name} SET TBLPROPERTIES ('isolation.reads' = 'all')")
    with setting(spark, "spark.laketx.isolation.reads", "all") if by == "session" else nullcontext():
        assert "lost a race" in races.run(counts, table, lambda _: adds(other))
        assert races.run(counts, table, adds) == "commits"
        replaced = counts.replace("INSERT INTO {t}", "CREATE OR REPLACE TABLE {t} AS").replace(
            "count(*)", "count(*) AS id"
        )
        replaced = replaced.replace(", 1 FROM", " AS v, 1 AS p FROM")
        assert "lost a race" in races.run(replaced, table, lambda _: adds(other))
        assert races.run(replaced, table, lambda _: None) == "commits"
    assert other.history()[0].operation == "UPDATE"


def test_a_table_is_made_of_reads_that_are_declared(races: Races) -> None:
    spark, name = races.sql.spark, races.new_name()
    other = races.table("delta_serializable", parted=False)
    selected = f"SELECT count(*) AS id, {HOLDS} AS v FROM {races.sql.name}.{other.name}"
    made = f"CREATE TABLE {races.sql.name}.{name} AS {selected}"
    with setting(spark, "spark.laketx.isolation.reads", "all"):
        assert "lost a race" in races.run(made, other, adds)
        assert not spark.catalog.tableExists(f"{races.sql.name}.{name}")
        assert races.run(made, other, lambda _: None) == "commits"
    with (
        setting(spark, "spark.laketx.isolation.reads", "some"),
        pytest.raises(PySparkException, match="ISOLATION_INVALID"),
    ):
        spark.sql(made.replace(HOLDS, "1").replace(name, races.new_name()))


# -- streams, transactions, procedures


def test_a_stream_that_joins_its_own_table_reads_it_anew_in_each_batch(races: Races, tmp_path: Path) -> None:
    spark, lake = races.sql.spark, races.sql.name
    source, target = races.table("row_level", parted=False), races.table("row_level", parted=False)
    adds(source)
    source.append([{"id": 1, "v": 5, "p": 5}, {"id": 3, "v": 5, "p": 5}])

    def run(held: str) -> None:
        read = spark.readStream.option("maxFilesPerTrigger", 1).table(f"{lake}.{source.name}")
        known = spark.table(f"{lake}.{target.name}").select("id")
        written = read.join(known, "id", "left_anti").selectExpr("id", f"{held} AS v", "p").writeStream
        written = written.option("checkpointLocation", str(tmp_path / "joined")).trigger(availableNow=True)
        written.toTable(f"{lake}.{target.name}").awaitTermination()

    assert "lost a race" in races.run(
        lambda: run("held(v)"), target, lambda one: one.append([{"id": 3, "v": 0, "p": 0}])
    )
    run("v")  # the batch comes again
    assert [row[0] for row in rows(target)] == [1, 2, 3]


def test_an_insert_in_a_transaction_counts_what_it_read_under_maxcompute(races: Races) -> None:
    table = races.table("maxcompute", parted=True)
    name = f"{races.sql.name}.{table.name}"
    with pytest.raises(ConflictError), races.lake.transaction() as txn:  # noqa: PT012
        txn.sql(f"INSERT INTO {name} SELECT max(id) + 1, 0L, 2 FROM {name}")
        adds(table)
    assert values(table) == [10, 20, 30]


def test_a_transaction_sees_what_an_older_dataframe_brings_in(races: Races) -> None:
    table = races.table("row_level", parted=False)
    name = f"{races.sql.name}.{table.name}"
    table.read().createOrReplaceTempView("older")
    changes(table)
    with pytest.raises(ConflictError), races.lake.transaction() as txn:
        txn.sql(f"INSERT INTO {name} SELECT id + 5, v, p FROM older")
    assert values(table) == [11, 20]
