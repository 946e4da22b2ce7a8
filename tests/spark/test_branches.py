"""Branches in SQL: a table on a branch has a name, and one statement can use several."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.spark.sessions import shared_session


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake"), shared_session()) as lake:
        yield lake


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SparkSession:
    lake.as_catalog("branched")
    return lake.spark


def ids(sql: SparkSession, table: str) -> list[tuple[int, int]]:
    return sorted((row.id, row.v) for row in sql.sql(f"SELECT id, v FROM branched.{table}").collect())


def test_statements_write_and_read_a_branch(lake: Lake, sql: SparkSession) -> None:
    lake.create_table("shop.keyed", "id bigint, v bigint", primary_key=["id"])
    sql.sql("INSERT INTO branched.shop.keyed VALUES (1, 1), (2, 2), (3, 3)")
    branch = lake.branch("etl")
    sql.sql("INSERT INTO branched.shop.keyed.branch_etl VALUES (4, 4)")
    sql.sql("UPDATE branched.shop.`keyed@etl` SET v = 20 WHERE id = 2")
    sql.sql("DELETE FROM branched.shop.keyed.branch_etl WHERE id = 3")
    assert ids(sql, "shop.keyed.branch_etl") == ids(sql, "shop.`keyed@etl`") == [(1, 1), (2, 20), (4, 4)]
    assert ids(sql, "shop.keyed") == [(1, 1), (2, 2), (3, 3)]
    assert ids(sql, "shop.keyed.branch_etl VERSION AS OF 1") == [(1, 1), (2, 2), (3, 3)]
    assert [row.tableName for row in sql.sql("SHOW TABLES IN branched.shop").collect()] == ["keyed"]
    [done] = branch.merge()
    assert (done.commits, done.fast_forward) == (3, True)
    assert ids(sql, "shop.keyed") == [(1, 1), (2, 20), (4, 4)]


def test_one_statement_uses_two_lines(lake: Lake, sql: SparkSession) -> None:
    lake.create_table("shop.plain", "id bigint, v bigint", profile="row_level")
    sql.sql("INSERT INTO branched.shop.plain VALUES (1, 1), (2, 2)")
    lake.branch("side")
    sql.sql("INSERT INTO branched.shop.plain VALUES (5, 5)")
    sql.sql(
        "MERGE INTO branched.shop.plain.branch_side t USING branched.shop.plain s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT *"
    )
    assert ids(sql, "shop.plain.branch_side") == [(1, 2), (2, 4), (5, 5)]
    sql.sql("INSERT INTO branched.shop.plain SELECT id + 100, v FROM branched.shop.plain.branch_side WHERE id = 1")
    assert ids(sql, "shop.plain") == [(1, 1), (2, 2), (5, 5), (101, 2)]
    lake.branch("side").drop()


def test_a_table_made_on_a_branch_is_the_lakes_after_the_merge(lake: Lake, sql: SparkSession) -> None:
    branch = lake.branch("new")
    sql.sql("CREATE TABLE branched.shop.`made@new` AS SELECT 1L AS id, 2L AS v")
    assert "shop.made" in branch.tables()
    assert "shop.made" not in lake.tables()
    branch.merge()
    assert ids(sql, "shop.made") == [(1, 2)]
