"""MERGE against a plain dict: clauses of all kinds at random, and those that are an insert by key."""

import random
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from laketx import InputError, Lake, Table
from tests.spark.sql import SqlReads
from tests.spark.stored import stored_rows

Names = Callable[[], str]
SCHEMA = "`order` bigint, `group` bigint, day string"
DAYS = ("mon", "tue")
Rows = dict[int, tuple[int | None, str | None]]
KEY = "`order`"


def content(table: Table) -> Rows:
    rows = stored_rows(table)
    found = {row["order"]: (row["group"], row["day"]) for row in rows}
    assert len(found) == len(rows)
    return found


def make(lake: Lake, name: str, *, keyed: bool, parted: bool = False) -> Table:
    return lake.create_table(
        name,
        SCHEMA,
        primary_key=["order"] if keyed else [],
        buckets=2 if keyed else None,
        partition_by=["day"] if parted else [],
        key_scope="partition" if keyed else None,
    )


@pytest.mark.parametrize("parted", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_random_merges(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool, parted: bool) -> None:
    chance = random.Random(31 + 2 * keyed + parted)
    table = make(lake, new_name(), keyed=keyed, parted=parted)
    rows: Rows = {key: (key, DAYS[key % 2]) for key in range(12)}
    table.insert(spark.createDataFrame([(key, *values) for key, values in rows.items()], SCHEMA))
    for _ in range(5):
        given: Rows = {
            key: (chance.choice((None, key, -key)), chance.choice(DAYS)) for key in chance.sample(range(20), 6)
        }
        source = spark.createDataFrame([(key, *values) for key, values in given.items()], SCHEMA)
        merge = table.merge(source, on="order" if chance.random() < 0.5 else f"target.{KEY} = source.{KEY}")
        bound = chance.randrange(20)
        deletes, moves, inserts, gone = (chance.random() < share for share in (0.5, 0.5, 0.8, 0.3))
        if deletes:
            merge = merge.when_matched_delete(condition="source.`group` is null")
        values = {"group": "coalesce(target.`group`, 0) + source.`group`"} | ({"day": "source.day"} if moves else {})
        merge = merge.when_matched_update(values, condition=f"target.{KEY} < {bound}")
        if inserts:
            merge = merge.when_not_matched_insert(condition=f"source.{KEY} <> {bound}")
        if gone:
            merge = merge.when_not_matched_by_source_delete(condition=f"target.{KEY} > {bound}")
        merge.execute()

        after: Rows = {}
        for key, (amount, day) in rows.items():
            if key not in given:
                if not (gone and key > bound):
                    after[key] = (amount, day)
                continue
            new_amount, new_day = given[key]
            if deletes and new_amount is None:
                continue
            if key < bound:
                total = None if new_amount is None else (amount or 0) + new_amount
                after[key] = (total, new_day if moves else day)
            else:
                after[key] = (amount, day)
        if inserts:
            after |= {key: values for key, values in given.items() if key not in rows and key != bound}
        rows = after
        assert content(table) == rows


@pytest.mark.parametrize("parted", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_merge_that_is_an_insert_by_key(lake: Lake, spark: SparkSession, new_name: Names, parted: bool) -> None:
    table = make(lake, new_name(), keyed=True, parted=parted)
    on = ["Order", "day"] if parted else ["order"]
    table.insert(spark.createDataFrame([(1, 1, "mon"), (2, 2, "tue")], SCHEMA))
    source = spark.createDataFrame([("mon", 1, 10), ("mon", 3, 30)], "DAY string, `order` bigint, `group` int")
    source = source.selectExpr("*", "'more' as other")
    merge = table.merge(source, on).when_not_matched_insert().when_matched_update()
    commit = merge.execute()
    assert (commit.rows_staged, table.history(1)[0].operation) == (2, "MERGE")
    assert content(table) == {1: (10, "mon"), 2: (2, "tue"), 3: (30, "mon")}

    for key, reason in ((1, "MERGE_AMBIGUOUS"), (9, "KEY_TWICE")):
        twice = spark.createDataFrame([(key, 1, "mon"), (key, 2, "mon")], SCHEMA)
        with pytest.raises(InputError, match=reason):
            table.merge(twice, on).when_matched_update().when_not_matched_insert().execute()
    assert table.refresh().meta.head_version == commit.version


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_two_source_rows_for_one_row(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    table = make(lake, new_name(), keyed=keyed)
    table.insert(spark.createDataFrame([(1, 1, "mon"), (2, 2, "tue")], SCHEMA))
    twice = spark.createDataFrame([(1, 5, "mon"), (1, 6, "mon")], SCHEMA)
    updating = {"group": "source.`group`"}
    for merge in (
        table.merge(twice, "order").when_matched_update(updating),
        table.merge(twice, "order").when_matched_update(updating).when_not_matched_insert(),
        table.merge(twice, "order").when_matched_delete(condition="source.`group` = 5").when_matched_update(updating),
        table.merge(twice, "order").when_matched_delete(condition="source.`group` > 0"),
    ):
        with pytest.raises(InputError, match="MERGE_AMBIGUOUS: several source rows match one row"):
            merge.execute()
    with pytest.raises(InputError, match="MERGE_AMBIGUOUS"):  # as in SQL: it counts which rows match
        table.merge(twice, "order").when_matched_update(updating, condition="source.`group` = 6").execute()
    assert content(table) == {1: (1, "mon"), 2: (2, "tue")}


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_matched_row_that_only_goes_may_have_several_source_rows(
    lake: Lake, spark: SparkSession, new_name: Names, keyed: bool
) -> None:
    table = make(lake, new_name(), keyed=keyed, parted=True)
    table.insert(spark.createDataFrame([(1, 1, "mon"), (2, 2, "tue"), (3, 3, "tue")], SCHEMA))
    twice = spark.createDataFrame([(1, 5, "mon"), (1, 6, "mon"), (4, 4, "mon")], SCHEMA)
    merge = table.merge(twice, "order").when_matched_delete().when_not_matched_insert()
    merge.when_not_matched_by_source_update({"day": "'mon'"}, condition=f"target.{KEY} = 2").execute()
    assert content(table) == {2: (2, "mon"), 3: (3, "tue"), 4: (4, "mon")}
    table.merge(twice.union(twice), "order").when_matched_delete().execute()
    assert content(table) == {2: (2, "mon"), 3: (3, "tue")}


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_merge_that_only_inserts(lake: Lake, spark: SparkSession, new_name: Names, keyed: bool) -> None:
    """To Spark it is an append; it tells how it ended, and takes its options, as any other one."""
    table = make(lake, new_name(), keyed=keyed)
    table.insert(spark.createDataFrame([(1, 1, "mon")], SCHEMA))
    merge = table.merge(
        spark.createDataFrame([(1, 5, "tue"), (2, 6, "tue")], SCHEMA), "order"
    ).when_not_matched_insert()
    commit = merge.execute(message="new ones", app_id="load", app_version=1)
    assert content(table) == {1: (1, "mon"), 2: (6, "tue")}
    assert (commit.version, commit.already_applied) == (2, False)
    assert table.history()[0].message == "new ones"
    assert merge.execute(app_id="load", app_version=1).already_applied


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_sql_deletes_a_row_that_several_source_rows_match(lake: Lake, new_name: Names, keyed: bool) -> None:
    table, sql = make(lake, new_name(), keyed=keyed, parted=True), SqlReads(lake)
    sql(f"INSERT INTO {{lake}}.{table.name} VALUES (1, 1, 'mon'), (2, 2, 'tue')")
    source = "(SELECT * FROM VALUES (1, 'a'), (1, 'b'), (4, 'c') AS s(k, v)) s"
    deletes = f"MERGE INTO {{lake}}.{table.name} t USING {source} ON t.`order` = s.k WHEN MATCHED THEN DELETE "
    sql(deletes + "WHEN NOT MATCHED THEN INSERT (`order`, day) VALUES (s.k, 'mon')")
    assert content(table.refresh()) == {2: (2, "tue"), 4: (None, "mon")}
