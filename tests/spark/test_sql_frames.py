"""DataFrames into and out of a lake's tables: `format("laketx")`, `saveAsTable`, `insertInto` and `writeTo`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import Lake, Table, connect
from tests.spark.held import Held
from tests.spark.sql import SqlReads
from tests.spark.stored import live, staged_folders, stored_rows
from worker.files.warehouse import WarehouseMark, location_of, read_mark
from worker.services.purge import Purge

Names = Callable[[], str]


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


@pytest.fixture
def current(spark: SparkSession, sql: SqlReads) -> Iterator[None]:
    """The lake is the session's current catalog."""
    before = spark.catalog.currentCatalog()
    spark.catalog.setCurrentCatalog(sql.name)
    yield
    spark.catalog.setCurrentCatalog(before)


def rows(spark: SparkSession, *ids: int, v: str = "a") -> DataFrame:
    return spark.createDataFrame([(one, v) for one in ids], "id bigint, v string")


def content(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in stored_rows(table))


def test_the_format_names_a_table(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, v string")
    name = f"{sql.name}.{table.name}"
    rows(spark, 1, 2).write.format("laketx").mode("append").save(name)
    assert content(table) == [(1, "a"), (2, "a")]
    rows(spark, 3).selectExpr("v", "id").write.format("laketx").mode("overwrite").save(name)
    assert content(table) == [(3, "a")]
    read = spark.read.format("laketx").load(name)
    assert read.collect() == [(3, "a")]
    assert spark.read.format("laketx").option("versionAsOf", 1).load(name).count() == 2
    with pytest.raises(PySparkException, match=r"(?i)time"):
        spark.read.format("laketx").option("timestampAsOf", "1999-01-01").load(name)
    with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
        rows(spark, 4).write.format("laketx").save(name)
    rows(spark, 4).write.format("laketx").mode("ignore").save(name)
    assert content(table) == [(3, "a")]
    made = new_name()
    rows(spark, 5).write.format("laketx").save(f"{sql.name}.{made}")
    assert content(lake.table(made)) == [(5, "a")]


def test_the_format_in_the_current_catalog(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, current: None
) -> None:
    table = lake.create_table(new_name(), "id bigint, v string")
    rows(spark, 1).write.format("laketx").mode("append").save(table.name)
    assert spark.read.format("laketx").load(table.name).collect() == [(1, "a")]


def test_a_name_without_a_catalog(spark: SparkSession) -> None:
    for name in ("no_such_catalog.shop.orders", "orders"):
        with pytest.raises(PySparkException, match=r"CATALOG_MISSING: .* names no catalog of this session"):
            spark.read.format("laketx").load(name)
    with pytest.raises(PySparkException, match="NAME_INVALID: name a table"):
        spark.read.format("laketx").load()


def test_save_as_table(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    name = new_name()
    rows(spark, 1, 2).write.partitionBy("v").saveAsTable(f"{sql.name}.{name}")
    table = lake.table(name)
    assert list(table.meta.partition_columns) == ["v"]
    rows(spark, 3, v="b").write.mode("append").format("laketx").saveAsTable(f"{sql.name}.{name}")
    assert content(table) == [(1, "a"), (2, "a"), (3, "b")]
    rows(spark, 4, v="c").withColumn("more", sf.lit(1.5)).write.mode("overwrite").saveAsTable(f"{sql.name}.{name}")
    assert content(table.refresh()) == [(4, "c", 1.5)]
    assert (list(table.meta.partition_columns), table.meta.head_version) == (["v"], 3)
    with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
        rows(spark, 5).write.saveAsTable(f"{sql.name}.{name}")


def test_insert_into(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, v string", primary_key=["id"], buckets=2)
    rows(spark, 1, 2).write.insertInto(f"{sql.name}.{table.name}")
    rows(spark, 2, v="b").write.insertInto(f"{sql.name}.{table.name}")
    assert content(table) == [(1, "a"), (2, "b")]
    rows(spark, 7).write.insertInto(f"{sql.name}.{table.name}", overwrite=True)
    assert content(table) == [(7, "a")]


def test_write_to(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    name = new_name()
    to = f"{sql.name}.{name}"
    rows(spark, 1).writeTo(to).partitionedBy(sf.col("v")).tableProperty("user.team", "sales").create()
    table = lake.table(name)
    assert (list(table.meta.partition_columns), dict(table.meta.properties)) == (["v"], {"user.team": "sales"})
    with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
        rows(spark, 1).writeTo(to).create()
    rows(spark, 2, v="b").writeTo(to).append()
    rows(spark, 3, v="c").writeTo(to).append()
    rows(spark, 4, v="b").writeTo(to).overwrite(sf.col("v").isin("b", "c"))
    assert content(table) == [(1, "a"), (4, "b")]
    rows(spark, 5, v="b").writeTo(to).overwritePartitions()
    assert content(table) == [(1, "a"), (5, "b")]
    rows(spark, 6).writeTo(to).replace()
    assert content(table) == [(6, "a")]
    rows(spark, 7).select("id", "v", sf.lit(1).alias("n")).writeTo(to).createOrReplace()
    assert content(table.refresh()) == [(7, "a", 1)]
    with pytest.raises(PySparkException, match=r"(?i)not_found|cannot be replaced"):
        rows(spark, 8).writeTo(f"{sql.name}.{new_name()}").replace()
    rows(spark, 9).writeTo(f"{sql.name}.{new_name()}").createOrReplace()


def test_a_table_that_could_not_be_made_leaves_nothing(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names
) -> None:
    name = new_name()
    before = {one.table_id for one in lake.client.list_tables(include_dropped=True)}
    fails = spark.range(0, 100, 1, 2).selectExpr("if(id = 90, raise_error('halt'), id) as id")
    with pytest.raises(PySparkException, match="halt"):
        fails.writeTo(f"{sql.name}.{name}").create()
    assert name not in {one.name for one in lake.client.list_tables()}
    left = [one for one in lake.client.list_tables(include_dropped=True) if one.table_id not in before]
    assert all(one.HasField("drop_time_us") for one in left)
    table = lake.create_table(name, "id bigint")
    assert content(table) == []


def test_a_deletion_of_partitions_runs_no_job(lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, v string", partition_by=["v"])
    for number, v in enumerate("abc"):
        rows(spark, number, v=v).write.insertInto(f"{sql.name}.{table.name}")
    folders = staged_folders(table)

    def jobs(condition: str) -> int:
        spark.sparkContext.setJobGroup(condition, "a deletion")
        try:
            sql(f"DELETE FROM {{lake}}.{table.name} WHERE {condition}")
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(condition))

    assert jobs("v = 'a'") == jobs("v < 'b'") == jobs("v LIKE 'x%'") == 0
    assert content(table) == [(1, "b"), (2, "c")]
    assert staged_folders(table) == folders
    assert not any(entry.HasField("delete_set") for entry in live(table))
    assert jobs("v = 'b' AND id = 1") > 0
    assert content(table) == [(2, "c")]


def test_the_first_write_marks_the_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    with connect(tmp_path / "lake", spark) as lake:
        sql = SqlReads(lake)
        sql("CREATE TABLE {lake}.t (id BIGINT)")
        assert not lake.client.get_warehouse().marked
        sql("INSERT INTO {lake}.t VALUES (1)")
        known = lake.client.get_warehouse()
        assert (known.marked, known.location) == (True, location_of(lake.warehouse))
        mark = read_mark(lake.warehouse)
        assert mark == WarehouseMark(known.service_id, known.history_epoch)
        sql("TRUNCATE TABLE {lake}.t")
        assert Purge(lake.client, lake.warehouse).run().failed == 0


@pytest.mark.parametrize("policy", ["option", "setting", pytest.param("property", marks=pytest.mark.long)])
def test_an_insert_is_resubmitted(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path, policy: str
) -> None:
    """Its files are committed again, at the new head."""
    table = lake.create_table(new_name(), "id bigint, v string")
    held = Held(spark, tmp_path, f"resubmitted_{policy}")
    writer = (
        spark.range(1, 2).selectExpr(f"resubmitted_{policy}(id) as id", "'a' as v").writeTo(f"{sql.name}.{table.name}")
    )
    if policy == "option":
        writer = writer.option("on_conflict", "resubmit")
    if policy == "setting":
        spark.conf.set("spark.laketx.on_conflict", "resubmit")
    if policy == "property":
        table.set_properties(**{"write.on_conflict": "rerun"})
    try:
        error = held.run(writer.append, lambda: lake.table(table.name).insert(rows(spark, 2)))
    finally:
        spark.conf.unset("spark.laketx.on_conflict")
    assert error is None
    assert content(table) == [(1, "a"), (2, "a")]
    with pytest.raises(PySparkException, match="POLICY_INVALID: on_conflict is one of fail, resubmit and rerun"):
        rows(spark, 3).writeTo(f"{sql.name}.{table.name}").option("on_conflict", "again").append()


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_condition_that_the_service_refuses(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, keyed: bool
) -> None:
    """It is declared as a read of everything."""
    table = lake.create_table(new_name(), "id bigint, v string", primary_key=["id"] if keyed else [])
    rows(spark, 1, 2).write.insertInto(f"{sql.name}.{table.name}")
    many = [", ".join(str(number) for number in range(first, first + 4_000)) for first in (0, 1, 2)]
    condition = f"id IN ({many[0]}) AND id IN ({many[1]}) AND id + 1 > 0 AND id IN ({many[2]})"
    sql(f"UPDATE {{lake}}.{table.name} SET v = 'b' WHERE {condition}")
    assert content(table) == [(1, "a"), (2, "b")]


def test_a_statement_that_can_not_commit_ends_early(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, tmp_path: Path
) -> None:
    """A keyed table's rows are shuffled first; nothing is written then."""
    table = lake.create_table(new_name(), "id bigint, v string", primary_key=["id"], buckets=2)
    rows(spark, 1, 2).write.insertInto(f"{sql.name}.{table.name}")
    held = Held(spark, tmp_path, "doomed")
    statement = f"UPDATE {{lake}}.{table.name} SET v = 'b' WHERE id = 1 AND doomed(id) = 1"
    folders = staged_folders(table)
    error = held.run(lambda: sql(statement), lambda: lake.table(table.name).update({"v": "'c'"}, where="id = 1"))
    assert "LOST_RACE: UPDATE on" in str(error)
    assert len(staged_folders(table) - folders) == 1  # the winner's
    assert content(table) == [(1, "c"), (2, "a")]
