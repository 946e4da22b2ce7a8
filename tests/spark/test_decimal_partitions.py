"""1.5 and 1.50 are one partition: a writer names it one way, the plan of a compaction the other."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, Table
from tests.spark.sql import SqlReads
from tests.spark.stored import live


def shown(table: Table, sql: SqlReads) -> dict[int, int]:
    """Every reader shows the same."""
    by_sql = sql(f"SELECT id, v FROM {{lake}}.{table.name}")
    found = [sorted((row["id"], row["v"]) for row in rows.collect()) for rows in (table.read(), by_sql)]
    found.append(sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist()))
    assert found == [found[0]] * 3
    assert len(dict(found[0])) == len(found[0])
    return dict(found[0])


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_compactions_of_a_partition_by_a_decimal_change_no_answer(
    lake: Lake, spark: SparkSession, new_name: Callable[[], str], keyed: bool
) -> None:
    sql = SqlReads(lake)
    table = lake.create_table(
        new_name(), "id bigint, v int, price decimal(6,2)", partition_by=["price"],
        properties={"write.inline.rows": "0"}, primary_key=["id"] if keyed else [], buckets=1 if keyed else None,
        key_scope="partition" if keyed else None,
    )  # fmt: skip

    def insert(*ids: int) -> None:
        table.insert(
            spark.createDataFrame([(one, 0) for one in ids], "id bigint, v int").selectExpr("*", "1.5BD price")
        )

    insert(0, 1, 2, 3)
    insert(4, 5, 6, 7)
    table.delete("id = 1")
    rows = dict.fromkeys((0, 2, 3, 4, 5, 6, 7), 0)
    for operation in ("minor", "major"):
        assert table.compact(operation)
        assert shown(table, sql) == rows
    insert(8, 9)
    assert {one.file.partition.values[0].value.decimal for one in live(table)} == {"1.5", "1.50"}
    table.update({"v": "1"}, where="id in (2, 8)")
    sql(f"UPDATE {{lake}}.{table.name} SET v = 2 WHERE id IN (3, 9)")
    rows |= {2: 1, 8: 1, 3: 2, 9: 2}
    assert shown(table, sql) == rows
    table.delete("id in (4, 8)")
    sql(f"DELETE FROM {{lake}}.{table.name} WHERE id IN (5, 9)")
    rows = {one: v for one, v in rows.items() if one not in (4, 5, 8, 9)}
    assert shown(table, sql) == rows
    assert table.compact("major")
    if not keyed:
        assert table.compact("cluster", sort_by=["id"])
    assert shown(table, sql) == rows
    log = table.changes(since=0, mode="log").select("id", "_change_type").collect()
    kinds = [row["_change_type"] for row in log]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "insert": 10, "delete": 5, "update_preimage": 4, "update_postimage": 4,
    }  # fmt: skip
    table.overwrite(spark.createDataFrame([(6, 6)], "id bigint, v int"), partition={"price": "1.5"})
    assert shown(table, sql) == {6: 6}
