"""What SQL tells the decider: when a statement began, and what it read of the table that it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException

from laketx import Table
from protos.laketx.v1 import common_pb2
from protos.laketx.v1.transaction_pb2 import TRANSACTION_STATE_ABORTED as ABORTED
from tests.spark.held import Held
from tests.spark.held_races import (
    COMMITS,
    HOLDS,
    ON_CONFLICT,
    PROFILES,
    Races,
    adds,
    changes,
    ids,
    replaces,
    rows,
    setting,
    values,
)
from tests.spark.processes import wait_until

ADAPTIVE: Final = "spark.sql.adaptive.enabled"


def quick(*profiles: str) -> list[Any]:
    """All profiles; only these are tried each time."""
    return [one if one in profiles else pytest.param(one, marks=pytest.mark.long) for one in PROFILES]


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


@pytest.mark.parametrize(
    "profile", ["delta_serializable", pytest.param("delta_write_serializable", marks=pytest.mark.long)]
)
def test_an_overwrite_began_when_it_was_analysed(races: Races, profile: str) -> None:
    """It removes what it saw, and another one has removed that."""
    table = races.table(profile)
    found = races.run(f"INSERT OVERWRITE {{t}} SELECT 5L, {HOLDS}, 1", table, replaces)
    assert "CONCURRENT" in found
    assert values(table) == [70, 71]


@pytest.mark.long
def test_replacing_a_table_begins_with_its_statement(races: Races) -> None:
    table = races.table("delta_serializable", parted=False)
    found = races.run(f"CREATE OR REPLACE TABLE {{t}} AS SELECT 5L AS id, {HOLDS} AS v, 1 AS p", table, replaces)
    assert "CONCURRENT" in found
    assert values(table) == [70, 71]


@pytest.mark.long
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


@pytest.mark.long
def test_a_long_statement_that_has_lost_is_cancelled(races: Races) -> None:
    """It begins by itself while its job waits for rows that don't come."""
    table = races.table("row_level")

    def loses(one: Table) -> None:
        changes(one)
        wait_until(lambda: any(races.lake.client.list_transactions(state=ABORTED, table_id=one.table_id)))

    held = Held(races.sql.spark, races.folder, "held")
    update = f"UPDATE {races.shown(table)} SET v = held(v) WHERE id = 1"
    assert "lost a race" in str(held.run(lambda: races.sql.spark.sql(update), lambda: loses(table)))
    assert values(table) == [11, 20]


# -- what a statement reads of its table is declared


@pytest.mark.parametrize("profile", quick("maxcompute", "row_level"))
def test_of_two_inserts_that_read_what_the_other_writes_one_loses(races: Races, profile: str) -> None:
    table = races.table(profile, parted=False)
    numbered = f"INSERT INTO {{t}} SELECT max(id) + 1, {HOLDS}, 9 FROM {{t}}"
    other = numbered.replace(HOLDS, "5L").replace("{t}", races.shown(table))
    assert "lost a race" in races.run(numbered, table, lambda _: races.sql.spark.sql(other))
    assert ids(table) == [1, 2, 3]


@pytest.mark.parametrize("profile", quick("maxcompute"))
def test_an_insert_by_key_undoes_no_update_of_what_it_read(races: Races, profile: str) -> None:
    table = races.table(profile, keyed=True)
    found = races.run(f"INSERT INTO {{t}} SELECT id, v + {HOLDS}, p FROM {{t}} WHERE p = 1", table, changes)
    assert "lost a race" in found
    assert values(table) == [11, 20]


@pytest.mark.parametrize("profile", quick("delta_serializable"))
@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT OVERWRITE {{t}} SELECT id, v + {HOLDS}, p FROM {{t}}",
        f"INSERT INTO {{t}} REPLACE WHERE p = 1 SELECT id, v + {HOLDS}, p FROM {{t}} WHERE p = 1",
        f"CREATE OR REPLACE TABLE {{t}} PARTITIONED BY (p) AS SELECT id, v + {HOLDS} AS v, p FROM {{t}}",
    ],
)
def test_what_replaces_rows_by_what_it_read_erases_no_other_commit(races: Races, profile: str, statement: str) -> None:
    table = races.table(profile)
    found = races.run(statement, table, adds)
    wins = profile == "maxcompute"  # as the outcome table says
    if profile != "delta_write_serializable":  # there a blind append may be ordered later: it stays
        assert ("lost a race" in found) is not wins
    assert (30 in values(table)) is not wins


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE {{t}} SET v = 0 WHERE id = 1 AND {HOLDS} < (SELECT count(*) FROM {{t}} WHERE v > 0)",
        pytest.param(
            f"UPDATE {{t}} SET v = 0 WHERE id = 1 AND EXISTS (SELECT 1 FROM {{t}} o WHERE o.id = 2 AND o.v > {HOLDS})",
            marks=pytest.mark.long,
        ),
        pytest.param(
            f"DELETE FROM {{t}} WHERE id = 1 AND id + {HOLDS} IN (SELECT id FROM {{t}} WHERE v > 0)",
            marks=pytest.mark.long,
        ),
        f"""MERGE INTO {{t}} t USING (SELECT 1L AS id, count(*) AS n, {HOLDS} AS h FROM {{t}} WHERE v > 0) s
        ON t.id = s.id AND t.p = 1 WHEN MATCHED AND n > h THEN UPDATE SET v = 0""",
    ],
)
@pytest.mark.parametrize("profile", quick("row_level"))
def test_a_subquery_on_the_changed_table_is_a_read(races: Races, profile: str, statement: str) -> None:
    """Two doctors may not both go off call."""
    table = races.table(profile)
    found = races.run(statement, table, lambda one: one.update({"v": 0}, where="id = 2 AND p = 2"))
    assert "lost a race" in found
    assert rows(table) == [(1, 10, 1), (2, 0, 2)]


@pytest.mark.parametrize(
    "source",
    [
        "SELECT * FROM cached",
        *(
            pytest.param(source, marks=pytest.mark.long)
            for source in (
                "SELECT * FROM {t}_view",
                "SELECT * FROM temporary",
                "WITH some AS (SELECT * FROM {t}) SELECT a.* FROM some a JOIN some b USING (id)",
                "SELECT count(*), 1L, 1 FROM {t}.history",
                "SELECT count(*), 1L, 1 FROM {t} CHANGES FROM VERSION 0",
            )
        ),
    ],
)
def test_reads_are_found_wherever_they_stand(races: Races, source: str) -> None:
    """In a view, in a CTE, in what is cached, in a table's metadata."""
    spark, table = races.sql.spark, races.table("row_level")
    spark.sql(f"CREATE VIEW {races.shown(table)}_view AS SELECT * FROM {races.shown(table)} WHERE p = 1")
    spark.table(races.shown(table)).createOrReplaceTempView("temporary")
    cached = spark.table(races.shown(table)).where("p = 1").cache()
    cached.createOrReplaceTempView("cached")
    try:
        assert cached.count() == 1
        assert "lost a race" in races.run(_copying(source), table, changes)
    finally:
        cached.unpersist()


@pytest.mark.parametrize(
    "source",
    [
        "SELECT * FROM {t} VERSION AS OF 1",
        pytest.param("SELECT count(*), 1L, 1 FROM {t} CHANGES FROM VERSION 0 TO VERSION 1", marks=pytest.mark.long),
    ],
)
def test_a_read_of_a_named_version_is_none(races: Races, source: str) -> None:
    table = races.table("maxcompute")
    with setting(races.sql.spark, ON_CONFLICT, "resubmit"):
        assert races.run(_copying(source), table, changes) == COMMITS


def _copying(source: str) -> str:
    return f"INSERT INTO {{t}} SELECT id + {HOLDS}, v, p FROM ({source}) AS s (id, v, p)"


def test_conditions_on_partitions_are_declared(races: Races) -> None:
    table = races.table("maxcompute")
    statement = f"INSERT INTO {{t}} SELECT id + 5, v + {HOLDS}, p FROM {{t}} WHERE p = 2"
    assert races.run(statement, table, adds) == COMMITS
    assert values(table) == [10, 20, 21, 30]
    statement = f"INSERT INTO {{t}} SELECT id + 5, v + {HOLDS}, 2 FROM {{t}} WHERE p = 1"
    assert "lost a race" in races.run(statement, table, adds)


def test_a_dataframe_that_was_made_earlier_reads_what_it_read_then(races: Races) -> None:
    table = races.table("row_level", parted=False)
    early = table.read()
    changes(table)
    for policy in ("fail", "rerun"):  # its rows stay those of the version that it has read
        with setting(races.sql.spark, ON_CONFLICT, policy), pytest.raises(PySparkException, match="lost a race"):
            early.writeTo(races.shown(table)).append()
    table.refresh().read().writeTo(races.shown(table)).append()
    assert values(table) == [11, 11, 20, 20]


def test_the_reads_of_a_dataframe_are_told_to_python(races: Races) -> None:
    spark, table = races.sql.spark, races.table("row_level")
    frame = spark.table(races.shown(table)).where("p = 2").selectExpr("max(id)")
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
    assert races.run(blind, table, replaces) == COMMITS
    assert values(table) == [1, 70, 71]
    with setting(races.sql.spark, ON_CONFLICT, "fail"):
        assert "lost a race" in races.run(blind, table, replaces)


def test_what_reads_is_not_resubmitted(races: Races) -> None:
    table = races.table("maxcompute")
    spark, name = races.sql.spark, races.shown(table)
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
        assert races.run(f"INSERT INTO {{t}} SELECT max(id) + 1, {HOLDS}, 1 FROM {{t}}", table, adds) == COMMITS
    assert ids(table) == [1, 2, 3, 4]


def test_rerun_computes_an_insert_again_whose_table_got_a_column(races: Races) -> None:
    table = races.table("row_level", parted=False)
    with setting(races.sql.spark, ON_CONFLICT, "rerun"):
        again = f"INSERT INTO {{t}} (id, v, p) SELECT max(id) + 1, {HOLDS}, 1 FROM {{t}}"
        assert races.run(again, table, lambda one: one.add_columns("note string")) == COMMITS
    assert ids(table) == [1, 2, 3]


@pytest.mark.long
def test_a_dataframe_runs_again_under_the_same_columns_alone(races: Races) -> None:
    table = races.table("row_level", parted=False)
    name = races.shown(table)

    def copies() -> None:
        races.sql.spark.table(name).selectExpr("id + 5 AS id", "held(v) AS v", "p").writeTo(name).append()

    def widens(one: Table) -> None:
        one.add_columns("note string")
        adds(one)

    with setting(races.sql.spark, ON_CONFLICT, "rerun"):
        assert races.run(copies, table, adds) == COMMITS
        found = races.run(copies, table, widens)
    assert "lost a race" in found or "SCHEMA_VERSION_MISMATCH" in found
    assert ids(table) == [1, 2, 3, 3, 6, 7]
