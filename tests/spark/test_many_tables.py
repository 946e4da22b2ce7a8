"""Transactions over several tables: what they read counts, in tables that they change and in those that they don't."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from laketx import ConflictError, Lake, Table
from protos.laketx.v1 import common_pb2
from tests.spark.stored import stored_rows

Names = Callable[[], str]
READING = ("delta_serializable", "delta_write_serializable", "row_level")


def two_tables(lake: Lake, spark: SparkSession, new_name: Names, profile: str) -> tuple[Table, Table]:
    tables = [lake.create_table(new_name(), "id bigint", profile=profile) for _ in range(2)]
    for table in tables:
        table.insert(spark.range(2))
    return tables[0], tables[1]


@pytest.mark.parametrize("profile", [READING[0], *(pytest.param(one, marks=pytest.mark.long) for one in READING[1:])])
def test_of_two_transactions_that_read_what_the_other_one_writes_one_loses(
    lake: Lake, spark: SparkSession, new_name: Names, profile: str
) -> None:
    one, two = two_tables(lake, spark, new_name, profile)
    with pytest.raises(ConflictError) as lost, lake.transaction() as mine:  # noqa: PT012
        mine.table(two.name).insert(spark.range(mine.table(one.name).read().count()))
        with lake.transaction() as theirs:
            theirs.table(one.name).insert(spark.range(theirs.table(two.name).read().count()))
        assert [(commit.table, commit.version) for commit in theirs.commits] == [(one.name, 2)]
    assert lost.value.conflict.rule == common_pb2.CONFLICT_RULE_CONCURRENT_APPEND
    assert (len(stored_rows(one)), len(stored_rows(two))) == (4, 2)


def test_under_maxcompute_reads_of_other_tables_do_not_count(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    one, two = two_tables(lake, spark, new_name, "maxcompute")
    with lake.transaction() as mine:
        mine.table(two.name).insert(spark.range(mine.table(one.name).read().count()))
        one.insert(spark.range(1))
    assert len(stored_rows(two)) == 4
    assert one.refresh().meta.head_version == 2


@pytest.mark.parametrize("profile", [READING[0], *(pytest.param(one, marks=pytest.mark.long) for one in READING[1:])])
def test_what_was_read_before_a_merge_counts_beside_what_the_merge_reads(
    lake: Lake, spark: SparkSession, new_name: Names, profile: str
) -> None:
    table = lake.create_table(
        new_name(), "id bigint, p bigint, v bigint", primary_key=["p", "id"], partition_by=["p"], profile=profile
    )
    table.insert(spark.sql("select id, id % 2 as p, 0L as v from range(10)"))
    with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012
        mine = txn.table(table.name)
        total = mine.read(where="p = 1").count()
        source = spark.sql(f"select 2L as id, 0L as p, {total}L as v")
        mine.merge(source, on=["p", "id"]).when_matched_update().execute()
        table.delete("p = 1 and id = 7")


def test_a_change_sees_the_version_of_its_transaction(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, v int", profile="delta_write_serializable")
    table.insert(spark.range(2).selectExpr("id", "0 as v"))
    with lake.transaction() as mine:
        changed = mine.table(table.name)
        table.insert(spark.range(2, 3).selectExpr("id", "0 as v"))
        changed.update({"v": "v + 1"})
    assert sorted((row["id"], row["v"]) for row in stored_rows(table)) == [(0, 1), (1, 1), (2, 0)]
