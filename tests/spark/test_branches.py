"""Branches in SQL: a table on a branch has a name, and one statement can use several."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, MergeRefusedError, connect
from tests.house.tree import ROOT
from tests.spark.sessions import shared_session

SQL = re.compile(r"^```sql\n(CALL lake.system.create_branch.*?)^```", re.MULTILINE | re.DOTALL)
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
    wide = lake.branch("wide")
    sql.sql("ALTER TABLE branched.shop.`made@wide` ADD COLUMNS (note STRING)")
    sql.sql("INSERT INTO branched.shop.made.branch_wide VALUES (3, 4, 'branch')")
    sql.sql("ALTER TABLE branched.shop.made ADD COLUMNS (mark STRING)")
    sql.sql("INSERT INTO branched.shop.made VALUES (5, 6, 'parent')")
    wide.merge()
    rows = sql.sql("SELECT id, mark, note FROM branched.shop.made ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, None, None), (3, None, "branch"), (5, "parent", None)]
    anew = lake.branch("anew")
    sql.sql("ALTER TABLE branched.shop.made ADD COLUMNS (late STRING)")
    sql.sql("CREATE OR REPLACE TABLE branched.shop.`made@anew` AS SELECT 7L AS id, 'new' AS fresh")
    anew.merge()
    rows = sql.sql("SELECT * FROM branched.shop.made").collect()
    assert [row.asDict() for row in rows] == [{"id": 7, "fresh": "new", "late": None}]


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
    brings = lake.branch("brings")
    brings.create_table("shop.brought", "id bigint")
    lake.branch("first")
    lake.branch("other")
    brings.merge()
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
        assert not {"late", "dropped", "brought"} & named
        sql.sql("INSERT INTO branched.shop.there.branch_main SELECT id, v FROM branched.shop.there WHERE id = 3")
    assert ids(sql, "shop.there") == [(1, 1), (3, 3)]
    with session_on(sql, "main"):
        assert ids(sql, "shop.there") == [(1, 1), (3, 3)]
    assert {"shop.here", "shop.dropped"} & set(lake.tables()) == {"shop.dropped"}
    assert lake.table("shop.here@first").meta.properties["user.owner"] == "ana"


def test_views_and_namespaces_of_a_session_on_a_branch(lake: Lake, sql: SparkSession) -> None:
    """They are the branch's, and read its tables; the merge gives them to the lake."""
    lake.create_table("shop.seen_of", "id bigint, v bigint")
    sql.sql("INSERT INTO branched.shop.seen_of VALUES (1, 1)")
    sql.sql("CREATE VIEW branched.shop.old AS SELECT id FROM branched.shop.seen_of")
    lake.branch("views")
    sql.sql("CREATE OR REPLACE VIEW branched.shop.old AS SELECT v FROM branched.shop.seen_of")
    with session_on(sql, "views"):
        sql.sql("INSERT INTO branched.shop.seen_of VALUES (2, 20)")
        sql.sql("CREATE NAMESPACE branched.fresh")
        sql.sql("CREATE VIEW branched.fresh.seen AS SELECT id, v FROM branched.shop.seen_of")
        sql.sql("CREATE VIEW branched.fresh.gone AS SELECT 1 AS one")
        sql.sql("ALTER VIEW branched.fresh.gone RENAME TO fresh.going")
        sql.sql("DROP VIEW branched.fresh.going")
        assert ids(sql, "fresh.seen") == [(1, 1), (2, 20)]
        assert sql.table("branched.shop.old").columns == ["id"]
        assert "fresh" in {row.namespace for row in sql.sql("SHOW NAMESPACES IN branched").collect()}
        assert [row.viewName for row in sql.sql("SHOW VIEWS IN branched.fresh").collect()] == ["seen"]
        with pytest.raises(Exception, match=r"VIEW_OF_OTHER_BRANCH.*SET spark.laketx.branch = main"):
            sql.sql("SELECT * FROM branched.shop.`old@main`")
    assert sql.table("branched.shop.old").columns == ["v"]
    with pytest.raises(Exception, match=r"NOT_FOUND"):
        sql.sql("SELECT * FROM branched.fresh.seen")
    rows = sql.sql("CALL branched.system.merge_branch('views')").collect()
    assert {row.table for row in rows} == {"shop.seen_of", "namespace fresh", "view fresh.seen"}
    assert ids(sql, "fresh.seen") == [(1, 1), (2, 20)]


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


def called(sql: SparkSession, call: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in sql.sql(f"CALL branched.system.{call}").collect()]


def test_procedures_from_create_to_merge(lake: Lake, sql: SparkSession) -> None:
    checks = "SELECT min(v) >= 0 FROM shop.called"
    lake.create_table("shop.called", "id bigint, v bigint", properties={"merge.checks": checks})
    [made] = called(sql, "create_branch(name => 'called', keep_hours => 24, comment => 'nightly')")
    assert (made[0], made[1], made[4]) == ("called", None, "nightly")
    assert ("called", "nightly") in [(row[0], row[4]) for row in called(sql, "branches()")]
    sql.sql("INSERT INTO branched.shop.called.branch_called VALUES (1, -1)")
    assert called(
        sql, "check_branch('called', array('SELECT true', 'SELECT count(*) = 0 FROM branched.shop.called'))"
    ) == [
        ("SELECT true", "true", True),
        ("SELECT count(*) = 0 FROM branched.shop.called", "false", False),
    ]
    with pytest.raises(Exception, match=r"CHECK_FAILED: a check of the table shop.called .*answered false"):
        called(sql, "merge_branch('called')")
    with pytest.raises(Exception, match=r"CHECK_FAILED: a check does not hold.*answered more than one value"):
        called(sql, "merge_branch('called', checks => array('SELECT id, v FROM shop.called'))")
    sql.sql("UPDATE branched.shop.called.branch_called SET v = 1")
    assert called(sql, "merge_branch('called', dry_run => true)") == [("shop.called", 2, 2, True, None)]
    assert called(sql, "merge_branch('called', checks => array('SELECT count(*) = 1 FROM shop.called'))") == [
        ("shop.called", 2, 2, True, None)
    ]
    assert ids(sql, "shop.called") == [(1, 1)]
    assert called(sql, "drop_branch('called')") == [(False, 0)]


def test_a_refused_merge_names_the_conflict(lake: Lake, sql: SparkSession) -> None:
    lake.create_table("shop.lost", "id bigint, v bigint")
    sql.sql("INSERT INTO branched.shop.lost VALUES (1, 1)")
    called(sql, "create_branch('lost')")
    sql.sql("UPDATE branched.shop.lost.branch_lost SET v = 2")
    sql.sql("DELETE FROM branched.shop.lost")
    with pytest.raises(Exception, match=r"MERGE_REFUSED: the branch lost can't be merged: shop.lost: "):
        called(sql, "merge_branch('lost')")
    [(table, _, _, _, refusal)] = called(sql, "merge_branch('lost', dry_run => true)")
    assert (table, refusal.startswith("shop.lost: ")) == ("shop.lost", True)
    assert called(sql, "drop_branch('lost')") == [(True, 0)]


def test_checks_of_python_run_by_spark(lake: Lake, sql: SparkSession) -> None:
    """In Spark's words, on the branch, whatever branch and catalog the session is on."""
    lake.create_table("shop.by_spark", "id bigint, v bigint")
    branch = lake.branch("by_spark")
    branch.table("shop.by_spark").append([{"id": 1, "v": 1}])
    with session_on(sql, "nowhere"):
        with pytest.raises(MergeRefusedError, match="answered false"):
            branch.merge(checks=["SELECT count(*) = 1 FROM shop.by_spark WHERE v <=> 2"])
        branch.merge(checks=["SELECT count_if(v <=> 1) = 1 FROM shop.by_spark"])
    assert ids(sql, "shop.by_spark") == [(1, 1)]


def test_clones_in_sql(lake: Lake, sql: SparkSession) -> None:
    lake.create_table("shop.cloned", "id bigint, v bigint")
    sql.sql("INSERT INTO branched.shop.cloned VALUES (1, 1)")
    between = lake.table("shop.cloned").history(1)[0].time
    sql.sql("INSERT INTO branched.shop.cloned VALUES (2, 2)")
    lake.branch("clones")
    sql.sql("INSERT INTO branched.shop.cloned.branch_clones VALUES (3, 3)")
    at = f"TIMESTAMP AS OF '{between.isoformat()}'"
    sources = {
        "cloned": 2,
        "cloned VERSION AS OF 1": 1,
        f"cloned {at}": 1,
        "cloned.branch_clones": 3,
        "`cloned@clones`": 3,
    }
    for number, (source, rows) in enumerate(sources.items()):
        shallow = "SHALLOW " if number % 2 else ""
        sql.sql(f"CREATE TABLE branched.shop.copy{number} {shallow}CLONE branched.shop.{source}")
        assert len(ids(sql, f"shop.copy{number}")) == rows, source
    with pytest.raises(Exception, match="TABLE_EXISTS"):
        sql.sql("CREATE TABLE branched.shop.copy0 CLONE branched.shop.cloned")
    [again] = sql.sql("CREATE TABLE IF NOT EXISTS branched.shop.copy1 CLONE branched.shop.cloned").collect()
    assert (again.table, len(ids(sql, "shop.copy1"))) == ("shop.copy1", 1)
    sql.sql("INSERT INTO branched.shop.copy1 VALUES (9, 9)")
    assert ids(sql, "shop.cloned") == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("statement", "here"),
    [
        ("CREATE TABLE branched.shop.b DEEP CLONE branched.shop.a", "CREATE TABLE branched.shop.b AS SELECT"),
        ("CREATE OR REPLACE TABLE branched.shop.b CLONE branched.shop.a", "DROP TABLE branched.shop.b"),
        ("CREATE TABLE branched.shop.b CLONE spark_catalog.shop.a", "between two catalogs"),
        ("ALTER TABLE branched.shop.b CREATE BRANCH x", r"CALL branched.system.create_branch\('x'\)"),
        ("MERGE BRANCH x INTO main", r"system.merge_branch\('x'\)"),
    ],
)
def test_statements_of_others_say_how_it_is_done_here(sql: SparkSession, statement: str, here: str) -> None:
    with pytest.raises(Exception, match=f"STATEMENT_FOREIGN.*{here}"):
        sql.sql(statement)


def test_the_sql_of_the_page(lake: Lake, sql: SparkSession) -> None:
    """docs/branches.md: write, audit, publish."""
    (block,) = SQL.findall((ROOT / "docs/branches.md").read_text(encoding="utf-8"))
    lake.create_table("shop.orders", "id bigint, amount double", primary_key=["id"])
    block = block.replace("lake.", "branched.")
    answers = [sql.sql(each).collect() for each in map(str.strip, re.sub(" +-- .*", "", block).split(";")) if each]
    assert sorted(map(tuple, answers[3])) == sorted(map(tuple, answers[6])) == [(3, 30.0), (4, 40.0)]
