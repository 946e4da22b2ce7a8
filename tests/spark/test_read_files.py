"""Files that are hard to tell apart, lie elsewhere, or needn't be read."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from laketx import Lake
from tests.spark.lab_tables import Alike, SetsInFiles, WrongSizes, fill, live_files, rows
from tests.spark.reading import LabLake, LabTable, expected, open_lab, shown
from tests.spark.stored import live
from worker.dataframes import scan

COLUMNS = {"id": "bigint", "amount": "double"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("files")) as made:
        yield made


@pytest.mark.parametrize("kind", [Alike, WrongSizes])
@pytest.mark.parametrize("keyed", [False, True])
def test_files_of_one_size(lab: LabLake, keyed: bool, kind: type[LabTable]) -> None:
    made = lab.create(f"alike_{keyed}_{kind.__name__}", COLUMNS, key=["id"] if keyed else [], buckets=1)
    table = kind(lab, made.meta)
    fill(table, 6)
    assert shown(scan.read(table.view)) == expected(table, table.head)


@pytest.mark.parametrize("keyed", [False, True])
def test_some_files_of_one_size_among_others(lab: LabLake, keyed: bool) -> None:
    """Smaller and larger files go by their sizes, in the same scan; so does one between two that are not alone."""
    table = Alike(lab, lab.create(f"some_{keyed}", COLUMNS, key=["id"] if keyed else [], buckets=1).meta)
    counts = (3, 8, 8, 12, 16, 16, 40)
    begins = [0, *itertools.accumulate(counts)]
    for first, count in zip(begins, counts, strict=False):
        table.insert([{"id": first + at, "amount": 1.0} for at in range(count)])
    gone = [first + count // 2 for first, count in zip(begins, counts, strict=False)]
    if keyed:
        table.insert([{"id": row, "amount": 2.0} for row in gone])
    else:
        table.delete(table.find(*gone))
    sizes = Counter(one.file.bytes for one in live_files(table))
    assert sorted(sizes.values()) == ([1, 1, 1, 1, 2, 2] if keyed else [1, 1, 1, 2, 2])
    assert shown(scan.read(table.view)) == expected(table, table.head)


def test_files_of_one_size_and_odd_names(lab: LabLake) -> None:
    table = Alike(lab, lab.create("odd", COLUMNS).meta)
    fill(table, 6, "odd ü%20=.parquet")
    assert shown(scan.read(table.view)) == expected(table, table.head)
    assert shown(scan.read(table.view, version=6)) == expected(table, 6)


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_are_placed_by_either_reader_of_spark(lab: LabLake, keyed: bool) -> None:
    """The one that reads columns in batches, and the one that reads row by row."""
    table = Alike(lab, lab.create(f"placed_{keyed}", COLUMNS, key=["id"] if keyed else [], buckets=1).meta)
    fill(table, 2)
    for setting in ("spark.sql.parquet.enableVectorizedReader", "spark.sql.optimizer.nestedSchemaPruning.enabled"):
        lab.spark.conf.set(setting, "false")
        try:
            assert shown(scan.read(table.view)) == expected(table, table.head)
        finally:
            lab.spark.conf.unset(setting)


def test_whatever_is_asked_of_the_rows_they_are_all_read(lab: LabLake) -> None:
    table = Alike(lab, lab.create("pruned", COLUMNS).meta)
    fill(table, 3)
    found, wanted = scan.read(table.view), expected(table, table.head)
    assert found.count() == found.withColumn("r", sf.rand()).where(sf.rand() >= 0).count() == len(wanted)
    assert found.select(sf.lit(1)).count() == found.select("*", sf.explode(sf.array(sf.lit(1)))).count() == len(wanted)
    again = found.join(scan.read(table.view).withColumnRenamed("amount", "other"), "id")
    assert again.where("amount = other").count() == len(wanted)
    assert found.sample(False, 1.0, 1).orderBy("id").limit(2).count() == 2
    found.createOrReplaceTempView("pruned_rows")
    over = "select id, row_number() over (order by id) n, rand() r, uuid() u from pruned_rows where rand() < 2"
    assert lab.spark.sql(over).count() == len(wanted)
    assert found.groupBy().agg(sf.max("amount")).count() == 1
    assert len(found.persist().collect()) == len(wanted)
    found.unpersist()


def test_delete_sets_in_files(lab: LabLake) -> None:
    table = SetsInFiles(lab, lab.create("sets", COLUMNS).meta)
    table.insert(rows(0))
    table.delete(table.find(3, 7))
    table.update({table.find(4)[0]: {"id": 4, "amount": 9.0}})
    assert all(not one.delete_set.bitmap for one in lab.client.list_files(table.table_id) if one.HasField("delete_set"))
    for version in table.at:
        assert shown(scan.read(table.view, version=version)) == expected(table, version)


def test_rows_of_external_files_are_hidden(
    lake: Lake, spark: SparkSession, new_name: Callable[[], str], tmp_path: Path
) -> None:
    frame = spark.range(0, 40, 1, 4).selectExpr("id", "id * 1.5d as amount", "cast(id % 2 as int) as half")
    frame.write.partitionBy("half").parquet(f"{tmp_path}/old files")
    before = {path: path.read_bytes() for path in (tmp_path / "old files").rglob("*.parquet")}
    table = lake.import_parquet(tmp_path / "old files", new_name())
    table.delete("id in (3, 8, 39)")
    table.update({"amount": "-1.0d"}, where="id = 20")
    wanted = {(at, -1.0 if at == 20 else at * 1.5, at % 2) for at in range(40) if at not in (3, 8, 39)}
    assert {tuple(row) for row in table.read().select("id", "amount", "half").collect()} == wanted
    assert all(one.file.external for one in live(table) if one.HasField("file") and one.file.rows > 1)
    assert {path: path.read_bytes() for path in before} == before


def test_buckets_of_which_few_hide_anything(lake: Lake, spark: SparkSession, new_name: Callable[[], str]) -> None:
    table = lake.create_table(new_name(), "id bigint, v int", primary_key=["id"], buckets=8)
    table.insert(spark.range(100).selectExpr("id", "1 v").coalesce(1))
    table.insert(spark.range(200).selectExpr("id", "2 v").where("id in (3, 70) or id >= 100").coalesce(1))
    assert sorted((row["id"], row["v"]) for row in table.read().collect()) == [
        (number, 2 if number in (3, 70) or number >= 100 else 1) for number in range(200)
    ]


def test_new_keys_hide_nothing(lake: Lake, spark: SparkSession, new_name: Callable[[], str]) -> None:
    table = lake.create_table(new_name(), "id bigint, v int", primary_key=["id"], buckets=2)
    for start in (0, 10):
        table.insert(spark.range(start, start + 10).selectExpr("id", "1 v").coalesce(1))
    found = table.read()
    assert sorted(row["id"] for row in found.collect()) == list(range(20))
    plan = str(found._jdf.queryExecution().optimizedPlan().toString())
    assert plan.count("Relation") == 1
    assert "Join" not in plan


def test_files_without_a_match_are_not_opened(lake: Lake, spark: SparkSession, new_name: Callable[[], str]) -> None:
    table = lake.create_table(new_name(), "id bigint, word string")
    table.insert(spark.range(0, 800, 1, 8).selectExpr("id", "concat('w', id) as word"))
    table.delete("id in (555, 560)")  # both in one file
    for where, files, count in [
        ("id = 550", 1, 1),
        ("id = 555", 1, 0),
        ("id between 90 and 210", 3, 121),
        ("id > 700 and word = 'w750'", 1, 1),
        ("id = 900", 0, 0),
    ]:
        planned = scan.plan(table.refresh().view, table.meta.head_version, where)
        assert len([one for one in planned if one.HasField("file")]) == files, where
        assert table.read(where=where).count() == count, where
