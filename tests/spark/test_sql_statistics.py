"""What Spark's optimiser learns of columns: bounds that no row is outside of."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import Lake
from tests.spark.sql import SqlReads
from worker.spark.session import with_settings

Known = dict[str, tuple[Any, ...]]


@pytest.fixture
def sql(lake: Lake) -> Iterator[SqlReads]:
    lake.client.create_namespace("tests", if_not_exists=True)
    with with_settings(lake.spark, {"spark.sql.cbo.enabled": "true"}):
        yield SqlReads(lake)


def known(sql: SqlReads, statement: str) -> Known:
    """By column: smallest, largest, NULLs, distinct values; None where Spark knows nothing."""
    leaf = sql(statement)._jdf.queryExecution().optimizedPlan().collectLeaves().head()
    found = {}
    stats = leaf.stats().attributeStats().iterator()
    while stats.hasNext():
        one = stats.next()
        facts = one._2()
        parts = (facts.min(), facts.max(), facts.nullCount(), facts.distinctCount())
        found[one._1().name()] = tuple(str(part.get()) if part.isDefined() else None for part in parts)
    return found


def test_bounds_and_nulls_of_every_type_that_spark_reckons_with(sql: SqlReads, new_name: Callable[[], str]) -> None:
    name = f"{sql.name}.{new_name()}"
    sql(
        f"CREATE TABLE {name} (l BIGINT, t TINYINT, b BOOLEAN, d DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, m DECIMAL(9,2), "
        "s STRING, f DOUBLE, x BINARY, a ARRAY<INT>)"
    )
    sql(
        f"INSERT INTO {name} VALUES (5, 1, true, DATE '2026-01-02', TIMESTAMP '2026-01-01 00:00:01', "
        "TIMESTAMP_NTZ '2026-01-01 00:00:01', 1.50, 'b', double('NaN'), X'00', array(1)), "
        "(-7, NULL, false, DATE '1969-12-31', NULL, NULL, -2.25, NULL, 1.0, NULL, NULL)"
    )
    sql(f"INSERT INTO {name} (l, s, f) VALUES (9, 'a', 3.0)")
    assert known(sql, f"SELECT * FROM {name}") == {
        "l": ("-7", "9", "0", None),
        "t": ("1", "1", "2", None),
        "b": ("False", "True", "1", None),
        "d": ("-1", "20455", "1", None),
        "ts": ("1767225601000000", "1767225601000000", "2", None),
        "m": ("-2.25", "1.50", "1", None),
        "s": ("a", "b", "1", None),
        "x": (None, None, "2", None),
    }
    assert set(known(sql, f"SELECT l FROM {name} WHERE l > 0")) == {"l"}


def test_deleted_rows_leave_bounds_wide_and_never_narrow(sql: SqlReads, new_name: Callable[[], str]) -> None:
    appended, keyed = f"{sql.name}.{new_name()}", f"{sql.name}.{new_name()}"
    sql(f"CREATE TABLE {appended} (id BIGINT, note STRING)")
    sql(f"CREATE TABLE {keyed} (id BIGINT, note STRING, PRIMARY KEY (id)) TBLPROPERTIES ('buckets' = '1')")
    for name in (appended, keyed):
        sql(f"INSERT INTO {name} SELECT id, if(id < 50, NULL, 'x') FROM range(100)")
        sql(f"DELETE FROM {name} WHERE id IN (0, 99)")
        sql(f"UPDATE {name} SET note = NULL WHERE id = 60")
    assert known(sql, f"SELECT * FROM {appended}")["id"] == ("0", "99", "0", None)
    assert known(sql, f"SELECT * FROM {keyed}")["id"][:3] == ("0", "99", "0")
    for name in (appended, keyed):
        rows = [row.id for row in sql(f"SELECT id FROM {name}").collect()]
        low, high, nulls, _ = known(sql, f"SELECT * FROM {name}")["id"]
        assert int(low) <= min(rows), name
        assert int(high) >= max(rows), name
        assert int(known(sql, f"SELECT * FROM {name}")["note"][2]) >= 50, name
        assert int(nulls) == 0, name


def test_a_key_of_one_column_is_distinct(sql: SqlReads, new_name: Callable[[], str]) -> None:
    name = f"{sql.name}.{new_name()}"
    sql(f"CREATE TABLE {name} (id BIGINT, v INT, PRIMARY KEY (id))")
    sql(f"INSERT INTO {name} SELECT id, 1 FROM range(40)")
    assert known(sql, f"SELECT * FROM {name}") == {"id": ("0", "39", "0", "40"), "v": ("1", "1", "0", None)}
    half = sql(f"SELECT * FROM {name} WHERE id >= 20")._jdf.queryExecution().optimizedPlan().stats()
    assert 15 <= int(str(half.rowCount().get())) <= 25  # by the bounds: the file holds all 40
    assert "rowCount=" in sql(f"EXPLAIN COST SELECT * FROM {name} WHERE id >= 20").collect()[0][0]


def test_cut_strings_and_columns_that_files_lack(sql: SqlReads, new_name: Callable[[], str]) -> None:
    name = f"{sql.name}.{new_name()}"
    sql(f"CREATE TABLE {name} (id INT, s STRING)")
    sql(f"INSERT INTO {name} VALUES (1, repeat('é', 100)), (2, NULL)")
    sql(f"ALTER TABLE {name} ADD COLUMN later INT")
    sql(f"ALTER TABLE {name} ALTER COLUMN id TYPE BIGINT")
    assert known(sql, f"SELECT * FROM {name}") == {
        "id": ("1", "2", "0", None),
        "s": (None, None, "1", None),
        "later": (None, None, "2", None),  # NULL everywhere
    }
    sql(f"INSERT INTO {name} VALUES (5000000000, 's', 7)")
    assert known(sql, f"SELECT * FROM {name}") == {
        "id": ("1", "5000000000", "0", None),
        "s": (None, None, "1", None),
        "later": ("7", "7", "2", None),
    }


def test_partition_columns_are_known_by_their_partitions(sql: SqlReads, new_name: Callable[[], str]) -> None:
    name = f"{sql.name}.{new_name()}"
    sql(f"CREATE TABLE {name} (id INT, day DATE) PARTITIONED BY (day)")
    sql(f"INSERT INTO {name} VALUES (1, DATE '2026-01-01'), (2, DATE '2026-01-03'), (3, NULL), (4, DATE '2026-01-02')")
    assert known(sql, f"SELECT * FROM {name}")["day"] == ("20454", "20456", "1", None)
    assert known(sql, f"SELECT * FROM {name} WHERE day > DATE '2026-01-01'")["day"] == ("20455", "20456", "0", None)


def test_without_cbo_plans_bring_no_statistics(lake: Lake, spark: SparkSession, new_name: Callable[[], str]) -> None:
    lake.client.create_namespace("tests", if_not_exists=True)
    sql = SqlReads(lake)
    name = f"{sql.name}.{new_name()}"
    sql(f"CREATE TABLE {name} AS SELECT 1 AS one")
    assert spark.conf.get("spark.sql.cbo.enabled") == "false"
    assert known(sql, f"SELECT * FROM {name}") == {}
