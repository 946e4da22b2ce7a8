"""UPDATE and MERGE without Spark leave the rows that SQL leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from laketx import Lake, Table
from tests.races.doors import WithoutSpark
from tests.spark.sql import SqlReads

Names = Callable[[], str]
SCHEMA = (
    "id bigint, day string, n int, small smallint, amount double, rate float, price decimal(12,3), note string, "
    "at timestamp, flag boolean"
)
ROWS = """SELECT * FROM VALUES
    (1L, 'a', 3, 7S, 0.1D, 0.1F, 1.125BD, 'x', TIMESTAMP_LTZ '2026-11-01 10:00:00Z', true),
    (2L, 'a', NULL, -7S, double('NaN'), float('NaN'), NULL, NULL, NULL, NULL),
    (3L, 'b', -4, NULL, -0.0D, NULL, -99999.999BD, '', TIMESTAMP_LTZ '1969-12-31 23:59:59.5Z', false),
    (4L, NULL, 0, 0S, NULL, -1.5F, 0BD, 'ünï''s', NULL, true)"""
CHANGES = [
    ("n", "n * 2 - 1", "n IS NOT NULL"),
    ("n", "small + 1", "small < 100"),
    ("n", "coalesce(n, small, 9)", "id <> 3"),
    ("small", "-small", "true"),
    ("amount", "amount * 3 + 0.1 - n", "amount >= 0.1"),
    ("amount", "-amount", "amount = 0 OR amount IS NULL"),
    ("rate", "rate + rate", "rate > -2"),
    ("amount", "rate * amount", "true"),
    ("price", "price + 1.5 - n", "price BETWEEN -99999.999 AND 2"),
    ("price", "price * 2", "id IN (1, 3, NULL)"),
    ("note", "note || '-' || coalesce(day, 'none')", "note LIKE 'ü%' OR note = 'x'"),
    ("flag", "amount > 0.05 OR NOT flag", "true"),
    ("flag", "amount = amount AND rate <= 1e0", "true"),
    ("flag", "n IN (3, NULL) OR small <=> NULL", "true"),
    ("flag", "n NOT IN (3, 4)", "true"),
    ("flag", "price = 1.125 OR price > 99999999999999999999.5", "true"),
    ("at", "TIMESTAMP '2026-11-02 00:00:00+02:00'", "at < TIMESTAMP_LTZ '2000-01-01 00:00:00Z'"),
    ("day", "'c'", "id = 4"),
]


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    lake.client.create_namespace("tests", if_not_exists=True)
    return SqlReads(lake)


def pair(lake: Lake, sql: SqlReads, new_name: Names, keyed: bool) -> tuple[str, Table, Table]:
    """A table's name in SQL, the same table, and one with the same rows that no Spark changes."""
    key: dict[str, Any] = {"primary_key": ["id"], "buckets": 2, "key_scope": "partition"} if keyed else {}
    tables = [lake.create_table(new_name(), SCHEMA, partition_by=["day"], **key) for _ in range(2)]
    names = [f"{sql.name}.{table.name}" for table in tables]
    for name in names:
        sql.spark.sql(f"INSERT INTO {name} {ROWS}")
    without = WithoutSpark(lake.client, lake.warehouse, None, uri=lake.warehouse)
    return names[0], tables[0], without.table(tables[1].name)


def texts(table: Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in table.to_arrow().to_pylist())


@pytest.mark.parametrize(
    ("keyed", "changes"),
    [
        pytest.param(False, CHANGES[::2], id="append, every other"),
        pytest.param(True, CHANGES[1::2], id="key, the others"),
        pytest.param(False, CHANGES, id="append, all", marks=pytest.mark.long),
        pytest.param(True, CHANGES, id="key, all", marks=pytest.mark.long),
    ],
)
def test_updates_of_both_doors_agree(
    lake: Lake, sql: SqlReads, new_name: Names, keyed: bool, changes: list[tuple[str, str, str]]
) -> None:
    name, by_sql, by_arrow = pair(lake, sql, new_name, keyed)
    for column, value, where in changes:
        sql.spark.sql(f"UPDATE {name} SET {column} = {value} WHERE {where}")
        by_arrow.update({column: value}, where=where.replace("TIMESTAMP_LTZ", "TIMESTAMP"))
        assert texts(by_arrow) == texts(by_sql), value


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_merges_of_both_doors_agree(lake: Lake, sql: SqlReads, new_name: Names, keyed: bool) -> None:
    name, by_sql, by_arrow = pair(lake, sql, new_name, keyed)
    rows = (
        "SELECT * FROM VALUES (1L, 'a', 5), (2L, 'a', 6), (3L, 'a', 7), (4L, NULL, 8), (9L, 'z', NULL) AS s(id, day, n)"
    )
    source = pa.Table.from_pydict({"id": [1, 2, 3, 4, 9], "day": ["a", "a", "a", None, "z"], "n": [5, 6, 7, 8, None]})
    for on in (
        "target.id = source.id AND target.day <=> source.day",
        "target.id = source.id AND target.n > source.n - 9",
    ):
        sql.spark.sql(
            f"MERGE INTO {name} AS target USING ({rows}) AS source ON {on} "
            "WHEN MATCHED AND source.n = 6 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET n = target.n + source.n, note = target.note || '!' "
            "WHEN NOT MATCHED AND source.id <> 3 THEN INSERT (id, day, n) VALUES (source.id, source.day, source.n * 2) "
            "WHEN NOT MATCHED BY SOURCE AND target.flag THEN UPDATE SET amount = 0.5"
        )
        merge = by_arrow.merge(source, on=on).when_matched_delete(condition="source.n = 6")
        merge = merge.when_matched_update({"n": "target.n + source.n", "note": "target.note || '!'"})
        new = {"id": "source.id", "day": "source.day", "n": "source.n * 2"}
        merge = merge.when_not_matched_insert(new, condition="source.id <> 3")
        merge.when_not_matched_by_source_update({"amount": "0.5"}, condition="target.flag").execute()
        assert texts(by_arrow) == texts(by_sql), on
