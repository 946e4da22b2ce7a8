"""Options of writes by the catalog: message, application version, order, strict casts, and how the write ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from laketx import Lake, Table
from protos.laketx.v1 import transaction_pb2
from tests.spark.sql import SqlReads
from tests.spark.stored import file_rows, live, staged_folders, stored_rows
from worker.spark.session import write_outcome

Names = Callable[[], str]


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


@contextmanager
def with_settings(spark: SparkSession, said: dict[str, str]) -> Iterator[None]:
    for key, value in said.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in said:
            spark.conf.unset(key)


def rows(spark: SparkSession, *ids: int, v: str = "a") -> DataFrame:
    return spark.createDataFrame([(one, v) for one in ids], "id bigint, v string")


def keyed(lake: Lake, new_name: Names) -> Table:
    return lake.create_table(new_name(), "id bigint, v string, n int", primary_key=["id"], buckets=2)


def latest(table: Table) -> tuple[str, str]:
    found = table.history(limit=1)[0]
    return found.operation.lower(), found.message


def content(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in stored_rows(table))


def test_every_statement_takes_a_message(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = keyed(lake, new_name)
    name = f"{{lake}}.{table.name}"
    sql(f"INSERT INTO {name} WITH ('message' = 'put in') VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    assert latest(table) == ("insert", "put in")
    sql(f"UPDATE {name} WITH ('message' = 'changed') SET v = 'z' WHERE id = 1")
    assert latest(table) == ("update", "changed")
    sql(f"DELETE FROM {name} WITH ('message' = 'took out') WHERE id = 2")
    assert latest(table) == ("delete", "took out")
    source = "(SELECT 1L AS id, 'm' AS v, 1 AS n)"
    clauses = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
    sql(f"MERGE INTO {name} t WITH ('message' = 'merged') USING {source} s {clauses}")
    assert latest(table) == ("merge", "merged")
    sql(f"DELETE FROM {name} WITH ('message' = 'emptied')")  # a truncation: Spark passes no options on
    assert latest(table) == ("truncate", "emptied")
    frame = rows(sql.spark, 7)
    frame.writeTo(f"{sql.name}.{table.name}").option("message", "written").overwritePartitions()
    assert latest(table) == ("overwrite", "written")
    made = new_name()
    frame.writeTo(f"{sql.name}.{made}").option("message", "made").create()
    assert latest(lake.table(made))[1] == "made"


def test_a_setting_is_for_all_statements_of_a_session(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, v string")
    said = {"spark.laketx.message": "nightly", "spark.laketx.app_id": "load", "spark.laketx.app_version": "3"}
    for _ in range(2):
        with with_settings(sql.spark, said):
            sql(f"INSERT INTO {{lake}}.{table.name} VALUES (1, 'a')")
    assert content(table) == [(1, "a")]
    assert latest(table) == ("insert", "nightly")
    assert table.app_version("load") == 3
    with with_settings(sql.spark, {"spark.laketx.message": "nightly"}):
        sql(f"INSERT INTO {{lake}}.{table.name} WITH ('message' = 'by hand') VALUES (2, 'b')")
    assert latest(table) == ("insert", "by hand")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT",
        "FILES",
        "MERGE",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("UPDATE", "DELETE", "TRUNCATE")),
    ],
)
def test_an_application_version_is_applied_once(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names, statement: str
) -> None:
    table = keyed(lake, new_name)
    name, once = f"{{lake}}.{table.name}", "WITH ('app_id' = 'job', 'app_version' = '7')"
    sql(f"INSERT INTO {name} VALUES (1, 'a', 1), (2, 'b', 1)")
    source = "(SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + 1"
    statements = {
        "INSERT": f"INSERT INTO {name} {once} VALUES (3, 'c', 1)",
        "FILES": f"INSERT INTO {name} {once} SELECT id, 'c', 1 FROM range(3, 6)",
        "UPDATE": f"UPDATE {name} {once} SET n = n + 1",
        "DELETE": f"DELETE FROM {name} {once} WHERE id = 1",
        "TRUNCATE": f"DELETE FROM {name} {once}",
        "MERGE": f"MERGE INTO {name} t {once} USING {source}",
    }
    sql(statements[statement])
    after, folders = content(table), staged_folders(table)
    assert table.app_version("job") == 7
    sql(f"INSERT INTO {name} VALUES (1, 'again', 1)")
    changed = content(table)
    sql(statements[statement])  # what it would do now is another thing
    assert content(table) == changed != after
    assert len(staged_folders(table)) <= len(folders) + 1
    with pytest.raises(PySparkException, match="APP_VERSION_INVALID"):
        sql(f"INSERT INTO {name} WITH ('app_version' = '8') VALUES (9, 'i', 1)")


@pytest.mark.parametrize("many", [False, True])
def test_the_newest_row_of_a_key_wins(lake: Lake, sql: SqlReads, new_name: Names, many: bool) -> None:
    """Few rows are sorted by the driver, many by Spark."""
    table = keyed(lake, new_name)
    source = (
        "(VALUES (1L, 'old', 1), (1L, 'none', CAST(NULL AS INT)), (1L, 'new', 2), (2L, 'only', NULL)) AS s(id, v, n)"
    )
    query = f"SELECT s.* FROM {source}" + (" JOIN range(1) ON true" if many else "")
    with pytest.raises(PySparkException, match=r"KEY_TWICE.*order_by"):
        sql(f"INSERT INTO {{lake}}.{table.name} {query}")
    sql(f"INSERT INTO {{lake}}.{table.name} WITH ('order_by' = '`N`') {query}")
    assert content(table) == [(1, "new", 2), (2, "only", None)]
    with pytest.raises(PySparkException, match="COLUMN_UNKNOWN"):
        sql(f"INSERT INTO {{lake}}.{table.name} WITH ('order_by' = 'unknown') {query}")


def test_an_append_table_is_sorted(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, p int", partition_by=["p"])
    query = "SELECT (id * 7) % 100, CAST(id % 2 AS INT) FROM range(0, 100, 1, 3)"
    sql(f"INSERT INTO {{lake}}.{table.name} WITH ('order_by' = 'id, p') {query}")
    for entry in live(table):
        ids = [row["id"] for row in file_rows(table, entry.file)]
        assert ids == sorted(ids)
    assert len(content(table)) == 100


def test_casts_are_strict_where_a_write_says_so(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, n int")
    sql(f"INSERT INTO {{lake}}.{table.name} SELECT 1L, 1.5D")
    assert content(table) == [(1, 1)]
    with pytest.raises(PySparkException, match="CAST_LOSSY"):
        sql(f"INSERT INTO {{lake}}.{table.name} WITH ('strict_casts' = 'true') SELECT 1L, 1.5D")
    with (
        with_settings(sql.spark, {"spark.laketx.strict_casts": "true"}),
        pytest.raises(PySparkException, match="CAST_LOSSY"),
    ):
        sql(f"INSERT INTO {{lake}}.{table.name} SELECT 1L, 1.5D")
    with pytest.raises(PySparkException, match="OPTION_INVALID"):
        sql(f"INSERT INTO {{lake}}.{table.name} WITH ('strict_casts' = 'yes') SELECT 1L, 1")


def test_how_a_write_ended_is_kept_until_it_is_asked(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names
) -> None:
    table = keyed(lake, new_name)
    name = f"{{lake}}.{table.name}"
    sql(f"INSERT INTO {name} WITH ('result' = 'first') SELECT id, 'a', 1 FROM range(5)")
    found = write_outcome(spark, sql.name, "first")
    assert found is not None
    done = transaction_pb2.SessionReply.FromString(found.answer).commit.committed.tables[0]
    assert (found.rows, found.attempts, done.version) == (5, 1, table.refresh().meta.head_version)
    assert table.history(limit=1)[0].txn_id == found.txn_id
    assert write_outcome(spark, sql.name, "first") is None
    with pytest.raises(PySparkException, match="KEY_TWICE"):
        sql(f"INSERT INTO {name} WITH ('result' = 'second') SELECT 1L, 'a', 1 FROM range(2)")
    [answer] = sql("CALL {lake}.system.write_result(id => 'second')").collect()
    refused = transaction_pb2.SessionReply.FromString(bytes(answer["answer"])).error
    assert "KEY_TWICE" in str(refused)
    assert sql("CALL {lake}.system.write_result('second')").collect() == []


def test_a_table_is_named_by_its_id(lake: Lake, sql: SqlReads, new_name: Names) -> None:
    table = keyed(lake, new_name)
    target = f"{{lake}}.`$id`.`{table.table_id}`"
    lake.rename_table(table.name, new_name())
    sql(f"INSERT INTO {target} VALUES (1, 'a', 1)")
    assert sql(f"SELECT id FROM {target}").collect() == [(1,)]
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM {lake}.`$id`.`0190a5b2-0000-7000-8000-000000000000`")


def test_a_write_is_staged_for_another_transaction(
    lake: Lake, sql: SqlReads, spark: SparkSession, new_name: Names
) -> None:
    table = keyed(lake, new_name)
    sql(f"INSERT INTO {{lake}}.{table.name} WITH ('stage' = 'txn-of-another', 'result' = 'staged') VALUES (1, 'a', 1)")
    found = write_outcome(spark, sql.name, "staged")
    assert found is not None
    files = transaction_pb2.RegisterFilesRequest.FromString(found.files).files
    assert [file.rows for file in files] == [1]
    assert [file.path.partition("/")[0] for file in files] == ["txn-of-another"]
    assert content(table) == []
