"""Several tables in one commit from SQL: `txn.sql` in `lake.transaction()`."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import ConflictError, InputError, Lake
from tests.spark.sql import SqlReads
from tests.spark.stored import stored_rows

Names = Callable[[], str]


@pytest.fixture
def sql(lake: Lake) -> SqlReads:
    lake.client.create_namespace("tests", if_not_exists=True)
    return SqlReads(lake)


@pytest.fixture
def pair(sql: SqlReads, new_name: Names) -> tuple[str, str]:
    """A table with a key and one without, with two rows each."""
    keyed, appended = new_name(), new_name()
    sql(f"CREATE TABLE {sql.name}.{keyed} (id BIGINT, v INT, PRIMARY KEY (id)) TBLPROPERTIES ('buckets' = '1')")
    sql(f"CREATE TABLE {sql.name}.{appended} (id BIGINT, v INT)")
    for name in (keyed, appended):
        sql(f"INSERT INTO {sql.name}.{name} VALUES (1, 1), (2, 2)")
    return keyed, appended


def rows(lake: Lake, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in lake.table(name).read().collect())


def test_two_tables_change_together(lake: Lake, sql: SqlReads, pair: tuple[str, str]) -> None:
    keyed, appended = pair
    with lake.transaction("both") as txn:
        txn.sql(f"UPDATE {sql.name}.{keyed} SET v = v + 10 WHERE id = 1")
        txn.sql(f"DELETE FROM {sql.name}.{appended} WHERE id = :gone", {"gone": 2})
        assert rows(lake, keyed) == rows(lake, appended) == [(1, 1), (2, 2)]
        assert txn.commits == []
    assert rows(lake, keyed) == [(1, 11), (2, 2)]
    assert rows(lake, appended) == [(1, 1)]
    assert {commit.table for commit in txn.commits} == {keyed, appended}
    assert len({(commit.txn_id, commit.time) for commit in txn.commits}) == 1
    assert {lake.table(name).history()[0].message for name in pair} == {"both"}


def test_every_kind_of_change_joins(lake: Lake, sql: SqlReads, pair: tuple[str, str], new_name: Names) -> None:
    keyed, appended = pair
    parted, whole = new_name(), new_name()
    sql(f"CREATE TABLE {sql.name}.{parted} (id BIGINT, p INT) PARTITIONED BY (p)")
    sql(f"CREATE TABLE {sql.name}.{whole} (id BIGINT)")
    sql(f"INSERT INTO {sql.name}.{parted} VALUES (1, 1), (2, 2)")
    sql(f"INSERT INTO {sql.name}.{whole} VALUES (1)")
    with lake.transaction() as txn:
        txn.sql(
            f"MERGE INTO {sql.name}.{keyed} t USING {sql.name}.{appended} s ON t.id = s.id "
            "WHEN MATCHED AND s.id = 2 THEN UPDATE SET v = 1 WHEN NOT MATCHED THEN INSERT *"
        )
        txn.sql(f"INSERT INTO {sql.name}.{appended} SELECT id, v FROM {sql.name}.{keyed}")
        txn.sql(f"INSERT OVERWRITE {sql.name}.{parted} PARTITION (p = 2) SELECT 7")
        txn.sql(f"TRUNCATE TABLE {sql.name}.{whole}")
    assert rows(lake, keyed) == [(1, 1), (2, 1)]
    assert rows(lake, appended) == [(1, 1), (1, 1), (2, 2), (2, 2)]
    assert rows(lake, parted) == [(1, 1), (7, 2)]
    assert rows(lake, whole) == []
    assert len({commit.txn_id for commit in txn.commits}) == 1


def test_statements_see_one_version_of_each_table(
    lake: Lake, spark: SparkSession, sql: SqlReads, pair: tuple[str, str]
) -> None:
    keyed, appended = pair
    with suppress(ConflictError), lake.transaction() as txn:
        lazy = txn.sql(f"SELECT count(*) FROM {sql.name}.{keyed}")
        lake.table(keyed).insert(spark.sql("SELECT 3L AS id, 3 AS v"))
        assert txn.sql(f"SELECT max(id) FROM {sql.name}.{keyed}").collect()[0][0] == 2
        assert txn.table(keyed).read().count() == 2
        assert lazy.collect()[0][0] == 2
        early = txn.table(appended)
        lake.table(appended).insert(spark.sql("SELECT 3L AS id, 3 AS v"))
        assert txn.sql(f"SELECT * FROM {sql.name}.{appended}").count() == early.read().count() == 2
    assert sql(f"SELECT count(*) FROM {sql.name}.{keyed}").collect()[0][0] == 3


def test_a_conflict_on_one_undoes_both(
    lake: Lake, spark: SparkSession, sql: SqlReads, pair: tuple[str, str], lake_folder: Path
) -> None:
    keyed, appended = pair
    before = folders(lake, lake_folder, pair)
    with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012
        txn.sql(f"UPDATE {sql.name}.{keyed} SET v = 5 WHERE id = 1")
        txn.sql(f"INSERT INTO {sql.name}.{appended} VALUES (9, 9)")
        assert len(folders(lake, lake_folder, pair) - before) == 2
        lake.table(keyed).update({"v": 6}, where="id = 1")
    assert rows(lake, keyed) == [(1, 6), (2, 2)]
    assert rows(lake, appended) == [(1, 1), (2, 2)]
    assert len(folders(lake, lake_folder, pair) - before) == 1  # the winner's


def test_an_exception_rolls_back(lake: Lake, sql: SqlReads, pair: tuple[str, str], lake_folder: Path) -> None:
    keyed, appended = pair
    before = folders(lake, lake_folder, pair)
    with pytest.raises(ZeroDivisionError), lake.transaction() as txn:  # noqa: PT012
        txn.sql(f"UPDATE {sql.name}.{keyed} SET v = 5 WHERE id = 1")
        txn.sql(f"INSERT INTO {sql.name}.{appended} VALUES (9, 9)")
        raise ZeroDivisionError
    assert rows(lake, keyed) == rows(lake, appended) == [(1, 1), (2, 2)]
    assert folders(lake, lake_folder, pair) == before
    with pytest.raises(InputError, match="TRANSACTION_OVER"):
        txn.sql("SELECT 1")


def folders(lake: Lake, folder: Path, names: tuple[str, str]) -> set[Path]:
    """Of transactions that have files."""
    return {one for name in names for one in (folder / lake.table(name).table_id).glob("*")}


def test_what_a_statement_read_of_other_tables_counts(
    lake: Lake, spark: SparkSession, sql: SqlReads, new_name: Names
) -> None:
    source, target = new_name(), new_name()
    for name in (source, target):
        lake.create_table(name, "id bigint", profile="delta_serializable").insert(spark.range(2))
    with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012
        txn.sql(f"INSERT INTO {sql.name}.{target} SELECT count(*) FROM {sql.name}.{source}")
        lake.table(source).insert(spark.range(1))
    assert len(stored_rows(lake.table(target))) == 2


def test_statements_and_methods_share_a_transaction(
    lake: Lake, spark: SparkSession, sql: SqlReads, pair: tuple[str, str]
) -> None:
    keyed, appended = pair
    with lake.transaction(app_id="both", app_version=1) as txn:
        txn.table(keyed).insert(spark.sql("SELECT 3L AS id, 3 AS v"))
        txn.sql(f"INSERT INTO {sql.name}.{appended} SELECT * FROM {sql.name}.{keyed}")
        with pytest.raises(InputError, match="CHANGE_TWICE"):
            txn.table(appended).truncate()
    assert rows(lake, keyed) == [(1, 1), (2, 2), (3, 3)]
    assert rows(lake, appended) == [(1, 1), (1, 1), (2, 2), (2, 2)]
    assert len({commit.txn_id for commit in txn.commits}) == 1
    with lake.transaction(app_id="both", app_version=1) as again:
        again.sql(f"INSERT INTO {sql.name}.{appended} VALUES (5, 5)")
    assert again.commits[0].already_applied
    assert len(rows(lake, appended)) == 4


@pytest.mark.parametrize(
    ("reason", "statement"),
    [
        ("CHANGE_TWICE", "INSERT INTO {table} VALUES (4, 4)"),
        ("NOT_IN_TRANSACTION", "CREATE TABLE {table}_new (id INT)"),
        ("NOT_IN_TRANSACTION", "CREATE TABLE {table}_new AS SELECT 1 AS id"),
        ("NOT_IN_TRANSACTION", "DROP TABLE {table}"),
        ("NOT_IN_TRANSACTION", "ALTER TABLE {table} ADD COLUMN x INT"),
        ("NOT_IN_TRANSACTION", "CALL {lake}.system.history('{name}')"),
    ],
)
def test_what_a_transaction_cannot_hold_is_refused(
    lake: Lake, sql: SqlReads, pair: tuple[str, str], reason: str, statement: str
) -> None:
    keyed, _ = pair
    with lake.transaction() as txn:
        txn.sql(f"DELETE FROM {sql.name}.{keyed} WHERE id = 1")
        with pytest.raises(PySparkException, match=reason):
            txn.sql(statement.format(table=f"{sql.name}.{keyed}", lake=sql.name, name=keyed))
    assert rows(lake, keyed) == [(2, 2)]


def test_a_statement_that_fails_leaves_the_others(lake: Lake, sql: SqlReads, pair: tuple[str, str]) -> None:
    keyed, appended = pair
    with lake.transaction() as txn:
        txn.sql(f"UPDATE {sql.name}.{keyed} SET v = 5")
        with pytest.raises(PySparkException):
            txn.sql(f"INSERT INTO {sql.name}.{appended} SELECT id, raise_error('no') FROM range(3)")
        txn.sql(f"INSERT INTO {sql.name}.{appended} VALUES (4, 4)")
    assert rows(lake, keyed) == [(1, 5), (2, 5)]
    assert rows(lake, appended) == [(1, 1), (2, 2), (4, 4)]
