"""Rows computed from the table that they are written to: the write has read them, and loses if they changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from laketx import Commit, ConflictError, InputError, Lake, Table
from tests.spark.held_races import setting

Names = Callable[[], str]
ROWS: Final = pa.table({"id": [1, 2, 3], "n": [1, 2, 3]})
PROFILES: Final = ("maxcompute", "delta_serializable", "delta_write_serializable", "row_level")


def made(lake: Lake, new_name: Names, profile: str = "delta_serializable", **settings: Any) -> Table:
    table = lake.create_table(new_name(), "id bigint, n bigint", profile=profile, **settings)
    table.overwrite(ROWS)
    return table


def next_row(table: Table) -> DataFrame:
    return table.read().agg((sf.max("id") + 1).alias("id"), sf.lit(0).cast("bigint").alias("n"))


def doubled(table: Table) -> DataFrame:
    return table.read().withColumn("n", sf.col("n") * 2)


def in_a_view(table: Table) -> DataFrame:
    table.read().createOrReplaceTempView("seen")
    return table.lake.spark.sql("select 9L as id, (select max(n) from seen) as n")


FROM_ITSELF: Final[dict[str, Callable[[Table, DataFrame], Commit]]] = {
    "insert": lambda table, rows: table.insert(rows),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "merge": lambda table, rows: table.merge(rows, on="id").when_matched_update().execute(),
}


@pytest.mark.parametrize(
    "profile", [*PROFILES[:2], *(pytest.param(one, marks=pytest.mark.long) for one in PROFILES[2:])]
)
def test_two_inserts_of_the_next_number_do_not_both_commit(lake: Lake, new_name: Names, profile: str) -> None:
    table = made(lake, new_name, profile)
    mine, theirs = next_row(table), next_row(table)
    lake.table(table.name).insert(theirs)
    for policy in (None, "rerun"):  # the rows stay those of the version that was read
        with pytest.raises(ConflictError):
            table.insert(mine, on_conflict=policy)
    with pytest.raises(InputError, match="POLICY_INVALID"):
        table.insert(mine, on_conflict="resubmit")
    assert sorted(row["id"] for row in table.read().collect()) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("verb", "profile"),
    [
        *zip(FROM_ITSELF, PROFILES[1:], strict=True),
        *(
            pytest.param(verb, profile, marks=pytest.mark.long)
            for verb, profile in product(FROM_ITSELF, PROFILES[1:])
            if (verb, profile) not in zip(FROM_ITSELF, PROFILES[1:], strict=True)
        ),
    ],
)
def test_rows_that_changed_since_they_were_read_are_not_written(
    lake: Lake, new_name: Names, verb: str, profile: str
) -> None:
    table = made(lake, new_name, profile)
    rows = doubled(table)
    lake.table(table.name).update({"n": 7}, where="id = 1")
    with pytest.raises(ConflictError):
        FROM_ITSELF[verb](table, rows)
    assert sorted(row["n"] for row in table.read().collect()) == [2, 3, 7]
    FROM_ITSELF[verb](table, doubled(table))


@pytest.mark.parametrize(
    "verb", ["insert", *(pytest.param(one, marks=pytest.mark.long) for one in FROM_ITSELF if one != "insert")]
)
def test_a_scan_without_spark_is_a_read_too(lake: Lake, new_name: Names, verb: str) -> None:
    table = made(lake, new_name)
    rows: Any = table.scanner()
    lake.table(table.name).append([{"id": 4, "n": 4}])
    with pytest.raises(ConflictError):
        FROM_ITSELF[verb](table, rows)
    assert table.count() == 4


def test_a_subquery_of_a_view_is_a_read_and_a_named_version_is_none(lake: Lake, new_name: Names) -> None:
    table = made(lake, new_name)
    rows, old = in_a_view(table), table.read(version=1)
    lake.table(table.name).append([{"id": 4, "n": 4}])
    with pytest.raises(ConflictError):
        table.insert(rows)
    table.overwrite(old)
    assert table.read().count() == 3


def test_columns_that_were_added_and_compactions_are_no_change_of_rows(lake: Lake, new_name: Names) -> None:
    table = made(lake, new_name)
    rows = table.read().withColumn("twice", sf.col("n") * 2)
    table.add_columns("twice bigint")
    table.compact("major")
    table.overwrite(rows)
    assert sorted(row["twice"] for row in table.read().collect()) == [2, 4, 6]


@pytest.mark.parametrize("verb", ["update", pytest.param("delete", marks=pytest.mark.long)])
def test_two_doctors_do_not_both_go_off_call(lake: Lake, new_name: Names, verb: str) -> None:
    """What a subquery of the change reads of the table counts beside its own rows."""
    table = made(lake, new_name, "row_level")
    others = f"(select count(*) from {by_sql(lake, table)} where n > 0) > 1"

    def leave(number: int) -> None:
        where = f"id = {number} and {others}"
        if verb == "update":
            table.update({"n": 0}, where=where)
        else:
            table.delete(where)

    with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012 - its end raises
        mine = txn.table(table.name)
        where = f"id = 1 and {others}"
        _ = mine.update({"n": 0}, where=where) if verb == "update" else mine.delete(where)
        leave(2)


def by_sql(lake: Lake, table: Table) -> str:
    """The table's name in SQL."""
    lake.as_catalog("seen_lake")
    return f"seen_lake.{table.name}"


ELSEWHERE: Final[dict[str, Callable[[Table, Table], Callable[[], Commit]]]] = {
    "insert": lambda table, other: partial(table.insert, next_row(other)),
    "overwrite": lambda table, other: partial(table.overwrite, doubled(other)),
    "merge": lambda table, other: table.merge(doubled(other), on="id").when_matched_update().execute,
}


@pytest.mark.parametrize(
    "verb", ["insert", pytest.param("overwrite", marks=pytest.mark.long), pytest.param("merge", marks=pytest.mark.long)]
)
def test_reads_of_other_tables_are_declared_where_somebody_says_so(lake: Lake, new_name: Names, verb: str) -> None:
    table, other = made(lake, new_name), made(lake, new_name)
    rival, number = lake.table(other.name), iter(range(10, 20))

    def overtaken() -> None:
        write = ELSEWHERE[verb](table, other)
        rival.append([{"id": next(number), "n": 0}])
        write()

    overtaken()
    with setting(lake.spark, "spark.laketx.isolation.reads", "all"), pytest.raises(ConflictError, match=other.name):
        overtaken()
    table.set_properties(**{"isolation.reads": "all"})
    with pytest.raises(ConflictError, match=other.name):
        overtaken()
    ELSEWHERE[verb](table, other)()
    assert other.history(1)[0].operation == "UPDATE"


@pytest.mark.parametrize("is_changed", [False, True])
def test_reads_of_other_tables_are_declared_inside_a_transaction_too(
    lake: Lake, new_name: Names, is_changed: bool
) -> None:
    table, other = made(lake, new_name), made(lake, new_name)
    rival = lake.table(other.name)

    def overtaken(number: int) -> None:
        rows = next_row(other)
        with lake.transaction() as txn:
            if is_changed:
                txn.table(other.name).append([{"id": number, "n": 0}])
            txn.table(table.name).insert(rows)
            rival.append([{"id": number + 1, "n": 0}])

    overtaken(10)
    table.set_properties(**{"isolation.reads": "all"})
    with pytest.raises(ConflictError, match=other.name):
        overtaken(20)
    with lake.transaction() as txn:
        txn.table(table.name).insert(next_row(other))
    assert other.history(1)[0].operation == "UPDATE"


def test_a_subquery_of_another_table_is_declared_where_the_table_says_so(lake: Lake, new_name: Names) -> None:
    table, other = made(lake, new_name), made(lake, new_name)
    table.set_properties(**{"isolation.reads": "all"})
    table.delete(f"id = 1 and (select count(*) from {by_sql(lake, other)}) = 3")
    table.update({"n": f"(select max(n) from {by_sql(lake, other)})"}, where="id = 2")
    assert [one.operation for one in other.history(2)] == ["UPDATE", "UPDATE"]
    assert sorted((row["id"], row["n"]) for row in table.read().collect()) == [(2, 3), (3, 3)]
