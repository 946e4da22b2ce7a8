"""Branches in SQL: a table on a branch has a name, and one statement can use several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.spark.sessions import shared_session

STREAM_LOOKS = 50  # a stream asks for new versions a few times a second


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake"), shared_session()) as lake:
        lake.client.create_namespace("shop")
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


@contextmanager
def session_on(sql: SparkSession, branch: str) -> Iterator[None]:
    """Statements of the session name tables of the branch; their schema stays."""
    sql.sql(f"SET spark.laketx.branch = {branch}")
    try:
        yield
    finally:
        sql.sql("RESET spark.laketx.branch")


def test_a_session_on_a_branch(lake: Lake, sql: SparkSession) -> None:
    """Names without a branch are the branch's, in each statement; a name with one is what it says."""
    lake.create_table("shop.there", "id bigint, v bigint", primary_key=["id"])
    lake.create_table("shop.dropped", "id bigint, v bigint")
    for _ in range(2):  # the second is analysed with the look of the first
        sql.sql("INSERT INTO branched.shop.there VALUES (1, 1)")
    lake.branch("first")
    lake.branch("other")
    lake.create_table("shop.late", "id bigint, v bigint")
    with session_on(sql, "first"):
        sql.sql("INSERT INTO branched.shop.there VALUES (2, 2)")
        sql.sql("INSERT INTO branched.shop.there VALUES (3, 3)")
        sql.sql("UPDATE branched.shop.there SET v = 10 WHERE id = 1")
        assert ids(sql, "shop.there") == ids(sql, "shop.there.branch_first") == [(1, 10), (2, 2), (3, 3)]
        assert ids(sql, "shop.there VERSION AS OF 2") == [(1, 1)]
        assert ids(sql, "shop.there.branch_other") == ids(sql, "shop.`there@main`") == [(1, 1)]
        assert ids(sql, "shop.there.branch_main") == [(1, 1)]
        versions = [row.version for row in sql.sql("SELECT version FROM branched.shop.there.history").collect()]
        assert sorted(versions) == [0, 1, 2, 3, 4, 5]
        [called] = sql.sql("CALL branched.system.history(table => 'shop.there', limit => 1)").collect()
        assert called.version == 5
        sql.sql("CREATE TABLE branched.shop.here AS SELECT 7L AS id, 7L AS v")
        sql.sql("ALTER TABLE branched.shop.here SET TBLPROPERTIES ('user.owner' = 'ana')")
        sql.sql("DROP TABLE branched.shop.dropped")
        named = {row.tableName for row in sql.sql("SHOW TABLES IN branched.shop").collect()}
        assert {"there", "here"} <= named
        assert not {"late", "dropped"} & named
        sql.sql("INSERT INTO branched.shop.there.branch_main SELECT id, v FROM branched.shop.there WHERE id = 3")
        with pytest.raises(Exception, match=r"VIEW_ON_BRANCH.*SET spark.laketx.branch = main"):
            sql.sql("CREATE VIEW branched.shop.seen AS SELECT * FROM branched.shop.there")
    assert ids(sql, "shop.there") == [(1, 1), (3, 3)]
    with session_on(sql, "main"):
        assert ids(sql, "shop.there") == [(1, 1), (3, 3)]
    assert {"shop.here", "shop.dropped"} & set(lake.tables()) == {"shop.dropped"}
    assert lake.table("shop.here@first").meta.properties["user.owner"] == "ana"


def test_an_unknown_branch_is_refused_by_the_statement(lake: Lake, sql: SparkSession) -> None:
    lake.create_table("shop.any", "id bigint, v bigint")
    for statement in ("SELECT * FROM branched.shop.any", "INSERT INTO branched.shop.any VALUES (1, 1)"):
        with session_on(sql, "nowhere"), pytest.raises(Exception, match=r"BRANCH_UNKNOWN.*there is no branch"):
            sql.sql(statement)
    with session_on(sql, "no name"), pytest.raises(Exception, match="BRANCH_NAME_INVALID"):
        sql.sql("SELECT * FROM branched.shop.any")
    with session_on(sql, "nowhere"), pytest.raises(Exception, match="BRANCH_UNKNOWN"):
        sql.sql("SHOW TABLES IN branched.shop")


def test_a_catalog_on_a_branch(lake: Lake, sql: SparkSession) -> None:
    lake.create_table("shop.of_catalog", "id bigint, v bigint")
    lake.branch("of_catalog")
    session = sql.newSession()
    for key, value in {**lake._catalog("lined"), "spark.sql.catalog.lined.branch": "of_catalog"}.items():
        session.conf.set(key, value)
    session.sql("INSERT INTO lined.shop.of_catalog VALUES (1, 1)")
    assert session.table("lined.shop.of_catalog").count() == 1
    assert ids(sql, "shop.of_catalog") == []
    session.sql("SET spark.laketx.branch = main")
    assert session.table("lined.shop.of_catalog").count() == 0


def test_a_frame_keeps_its_branch(lake: Lake, sql: SparkSession) -> None:
    """A DataFrame never shows another branch than that with which it was made."""
    lake.create_table("shop.framed", "id bigint, v bigint")
    sql.sql("INSERT INTO branched.shop.framed VALUES (1, 1)")
    lake.branch("framed")
    sql.sql("INSERT INTO branched.shop.framed.branch_framed VALUES (2, 2)")
    frame = sql.table("branched.shop.framed")
    cached = sql.table("branched.shop.framed").cache()
    assert cached.count() == 1
    with session_on(sql, "framed"):
        assert ids(sql, "shop.framed") == [(1, 1), (2, 2)]
        assert cached.count() == 1
        cached.unpersist()
        with pytest.raises(Exception, match="TABLE_ID_MISMATCH"):
            frame.count()
        on_branch = sql.table("branched.shop.framed")
    assert (frame.count(), ids(sql, "shop.framed")) == (1, [(1, 1)])
    with pytest.raises(Exception, match="TABLE_ID_MISMATCH"):
        on_branch.count()


def test_a_stream_keeps_its_branch(lake: Lake, sql: SparkSession, tmp_path: Path) -> None:
    """Source and sink are of the branch on which the query started, whatever the session says later."""
    lake.create_table("shop.source", "id bigint, v bigint")
    lake.create_table("shop.sink", "id bigint, v bigint")
    sql.sql("INSERT INTO branched.shop.source VALUES (1, 1)")
    lake.branch("stream")
    with session_on(sql, "stream"):
        query = (
            sql.readStream.table("branched.shop.source")
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .toTable("branched.shop.sink")
        )
    try:
        query.processAllAvailable()
        sql.sql("INSERT INTO branched.shop.source VALUES (2, 2)")
        sql.sql("INSERT INTO branched.shop.source.branch_stream VALUES (3, 3)")
        for _ in range(STREAM_LOOKS):
            query.processAllAvailable()
            if len(ids(sql, "shop.sink.branch_stream")) > 1:
                break
    finally:
        query.stop()
    assert ids(sql, "shop.sink.branch_stream") == [(1, 1), (3, 3)]
    assert ids(sql, "shop.sink") == []
