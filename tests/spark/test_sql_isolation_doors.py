"""The same beyond one table and plain SQL: reads of other tables, DataFrames, streams, transactions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from laketx import ConflictError
from tests.spark.held_races import COMMITS, HOLDS, Races, adds, changes, ids, setting, values

DOORS: Final[dict[str, Callable[[DataFrame, str], Any]]] = {
    "append": lambda df, name: df.writeTo(name).append(),
    "overwrite": lambda df, name: df.writeTo(name).overwrite(sf.col("p") == 1),
    "overwritePartitions": lambda df, name: df.writeTo(name).overwritePartitions(),
    "createOrReplace": lambda df, name: df.writeTo(name).createOrReplace(),
    "insertInto": lambda df, name: df.write.insertInto(name),
    "insertInto overwrite": lambda df, name: df.write.insertInto(name, overwrite=True),
    "saveAsTable": lambda df, name: df.write.mode("append").saveAsTable(name),
    "saveAsTable overwrite": lambda df, name: df.write.mode("overwrite").partitionBy("p").saveAsTable(name),
    "save": lambda df, name: df.write.format("laketx").mode("append").save(name),
    "save overwrite": lambda df, name: df.write.format("laketx").mode("overwrite").save(name),
    "mergeInto": lambda df, name: (
        df.mergeInto(name, sf.expr(f"{name}.id = s.id AND {name}.p = s.p")).whenMatched().updateAll().merge()
    ),
}


# -- DataFrames


@pytest.mark.parametrize(
    "door", [one if one == "insertInto overwrite" else pytest.param(one, marks=pytest.mark.long) for one in DOORS]
)
def test_every_door_for_dataframes_tells_what_they_read(races: Races, door: str) -> None:
    spark, table = races.sql.spark, races.table("delta_serializable")

    def run() -> None:
        mine = spark.table(races.shown(table)).where("p = 1").alias("s")
        DOORS[door](mine.selectExpr("id", f"v + {HOLDS} AS v", "p").alias("s"), races.shown(table))

    assert "lost a race" in races.run(run, table, lambda one: one.append([{"id": 1, "v": 30, "p": 1}]))
    assert values(table) == [10, 20, 30]


# -- reads of other tables


@pytest.mark.parametrize("by", ["table", pytest.param("session", marks=pytest.mark.long)])
def test_reads_of_other_tables_are_declared_where_somebody_says_so(races: Races, by: str) -> None:
    """A row is counted in one table and written to another; meanwhile another one is counted."""
    spark = races.sql.spark
    other, table = races.table("delta_serializable", parted=False), races.table("row_level", parted=False)
    counts = f"INSERT INTO {{t}} SELECT count(*), {HOLDS}, 1 FROM {races.shown(other)}"
    assert races.run(counts, table, lambda _: adds(other)) == COMMITS
    if by == "table":
        spark.sql(f"ALTER TABLE {races.shown(table)} SET TBLPROPERTIES ('isolation.reads' = 'all')")
    with setting(spark, "spark.laketx.isolation.reads", "all") if by == "session" else nullcontext():
        assert "lost a race" in races.run(counts, table, lambda _: adds(other))
        assert races.run(counts, table, adds) == COMMITS
        replaced = counts.replace("INSERT INTO {t}", "CREATE OR REPLACE TABLE {t} AS").replace(
            "count(*)", "count(*) AS id"
        )
        replaced = replaced.replace(", 1 FROM", " AS v, 1 AS p FROM")
        assert "lost a race" in races.run(replaced, table, lambda _: adds(other))
        assert races.run(replaced, table, lambda _: None) == COMMITS
    assert other.history()[0].operation == "UPDATE"


@pytest.mark.long
def test_a_table_is_made_of_reads_that_are_declared(races: Races) -> None:
    spark, name = races.sql.spark, races.new_name()
    other = races.table("delta_serializable", parted=False)
    selected = f"SELECT count(*) AS id, {HOLDS} AS v FROM {races.shown(other)}"
    made = f"CREATE TABLE {races.sql.name}.{name} AS {selected}"
    with setting(spark, "spark.laketx.isolation.reads", "all"):
        assert "lost a race" in races.run(made, other, adds)
        assert not spark.catalog.tableExists(f"{races.sql.name}.{name}")
        assert races.run(made, other, lambda _: None) == COMMITS
    with (
        setting(spark, "spark.laketx.isolation.reads", "some"),
        pytest.raises(PySparkException, match="ISOLATION_INVALID"),
    ):
        spark.sql(made.replace(HOLDS, "1").replace(name, races.new_name()))


# -- streams, transactions, procedures


@pytest.mark.long
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
    assert ids(target) == [1, 2, 3]


def test_an_insert_in_a_transaction_counts_what_it_read_under_maxcompute(races: Races) -> None:
    table = races.table("maxcompute", parted=True)
    name = races.shown(table)
    with pytest.raises(ConflictError), races.lake.transaction() as txn:  # noqa: PT012
        txn.sql(f"INSERT INTO {name} SELECT max(id) + 1, 0L, 2 FROM {name}")
        adds(table)
    assert values(table) == [10, 20, 30]


@pytest.mark.long
def test_a_transaction_sees_what_an_older_dataframe_brings_in(races: Races) -> None:
    table = races.table("row_level", parted=False)
    name = races.shown(table)
    table.read().createOrReplaceTempView("older")
    changes(table)
    with pytest.raises(ConflictError), races.lake.transaction() as txn:
        txn.sql(f"INSERT INTO {name} SELECT id + 5, v, p FROM older")
    assert values(table) == [11, 20]
