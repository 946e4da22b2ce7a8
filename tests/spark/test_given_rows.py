"""What writes take: rows of pandas, polars and Arrow, conditions as Columns, plain values, application versions."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from laketx import InputError, Lake, Table
from tests.spark.stored import staged_folders

Names = Callable[[], str]
COLUMNS = "id bigint, v string, d double, t timestamp_ntz"


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.read().collect())


MIDNIGHT = datetime.fromisoformat("2026-01-01")
GIVEN = {"id": [1, 2], "v": ["a", "b"], "d": [0.5, 1.5], "t": [MIDNIGHT, MIDNIGHT + timedelta(days=1)]}
ROWS = list(zip(*GIVEN.values(), strict=True))


@pytest.mark.parametrize(
    "make",
    [
        pd.DataFrame,
        lambda given: pd.DataFrame(given).iloc[::-1],  # its index is no column
        pl.DataFrame,
        pa.table,
        lambda given: pa.table(given).to_batches()[0],
        lambda given: pa.table(given).set_column(1, "v", pa.array(given["v"]).dictionary_encode()),
    ],
    ids=["pandas", "pandas with an index", "polars", "arrow", "record batch", "dictionary"],
)
def test_rows_of_other_libraries_are_taken(lake: Lake, new_name: Names, make: Callable[[Any], Any]) -> None:
    table = lake.create_table(new_name(), COLUMNS)
    table.insert(make(GIVEN))
    assert content(table) == ROWS
    table.overwrite(make({**GIVEN, "v": ["x", "y"]}))
    assert [row[1] for row in content(table)] == ["x", "y"]


def test_a_merge_takes_them_too(lake: Lake, new_name: Names) -> None:
    table = lake.create_table(new_name(), COLUMNS, primary_key=["id"], buckets=1)
    table.insert(pa.table(GIVEN))
    source = pd.DataFrame({"id": [2, 3], "v": ["bb", "cc"]})
    table.merge(source, on="id").when_matched_update().when_not_matched_insert().execute()
    assert [(row[0], row[1]) for row in content(table)] == [(1, "a"), (2, "bb"), (3, "cc")]


def test_no_rows_are_no_error(lake: Lake, new_name: Names) -> None:
    table = lake.create_table(new_name(), COLUMNS)
    assert table.insert(pa.table(GIVEN).slice(0, 0)).rows_staged == 0


@pytest.mark.parametrize("rows", [[(1, "a")], {"id": [1]}, None, "id"])
def test_what_is_no_table_of_rows_is_refused_in_words(lake: Lake, new_name: Names, rows: Any) -> None:
    table = lake.create_table(new_name(), COLUMNS)
    with pytest.raises(InputError, match="ROWS_INVALID: rows are a DataFrame of Spark, pandas or polars"):
        table.insert(rows)


def test_columns_that_arrow_or_spark_lack_are_refused(lake: Lake, new_name: Names) -> None:
    table = lake.create_table(new_name(), COLUMNS)
    with pytest.raises(InputError, match="ROWS_INVALID"):
        table.insert(pd.DataFrame({"id": [1], "v": [object()]}))
    with pytest.raises(InputError, match="SCHEMA_MISMATCH"):
        table.insert(pa.table({"id": [1], "v": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_conditions_may_be_columns_and_values_plain(lake: Lake, new_name: Names, keyed: bool) -> None:
    schema = "id bigint, n int, b boolean, m decimal(5,2), on_day date, v string"
    table = lake.create_table(new_name(), schema, primary_key=["id"] if keyed else [])
    table.insert(pa.table({"id": list(range(6))}))
    table.update({"n": 5, "b": True, "m": Decimal("1.25"), "on_day": date(2026, 1, 2)}, where=sf.col("id") < 4)
    table.update({"n": None, "v": sf.lit("text")}, where=(sf.col("id") == 1) | (sf.col("id") == 5))
    table.delete(sf.col("id").isin(0, 2))
    some = (5, True, Decimal("1.25"), date(2026, 1, 2))
    assert content(table) == [
        (1, None, *some[1:], "text"),
        (3, *some, None),
        (4, None, None, None, None, None),
        (5, None, None, None, None, "text"),
    ]
    (
        table.merge(pa.table({"id": [3, 9]}), on="id")
        .when_matched_update({"n": 7})
        .when_not_matched_insert({"id": "source.id", "n": 8, "b": False})
        .execute()
    )
    assert [row[:3] for row in content(table)] == [
        (1, None, True),
        (3, 7, True),
        (4, None, None),
        (5, None, None),
        (9, 8, False),
    ]


def test_a_column_condition_that_does_not_fit_and_a_value_that_is_none(lake: Lake, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, n int")
    with pytest.raises(InputError, match="CONDITION_INVALID"):
        table.delete(sf.col("nowhere") == 1)
    for value in (object(), 1 << 70):
        with pytest.raises(InputError, match="VALUE_INVALID"):
            table.update({"n": value})


def test_a_merge_that_has_a_key_twice_says_what_a_merge_can_do(lake: Lake, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, n int", primary_key=["id"], buckets=1)
    table.insert(pa.table({"id": [1]}))
    merge = table.merge(pa.table({"id": [9, 9], "n": [1, 2]}), on="id").when_matched_update().when_not_matched_insert()
    with pytest.raises(InputError, match="KEY_TWICE") as refused:
        merge.execute()
    assert "two source rows have it: keep one of them" in str(refused.value)
    assert "order_by" not in str(refused.value)


def test_overwrite_without_a_partition_replaces_every_partition(lake: Lake, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, p int", partition_by=["p"])
    table.insert(pa.table({"id": [1, 2], "p": [1, 2]}))
    table.overwrite(pa.table({"id": [3], "p": [1]}))
    assert content(table) == [(3, 1)]


# -- exactly once ------------------------------------------------------------------------------------------------------


WRITES: dict[str, Callable[[Table, Any], Any]] = {
    "insert": lambda t, app: t.insert(pa.table({"id": [7], "n": [7]}), **app),
    "overwrite": lambda t, app: t.overwrite(t.read().selectExpr("id", "n + 1 as n"), **app),
    "update": lambda t, app: t.update({"n": "n + 1"}, **app),
    "delete": lambda t, app: t.delete("id = 1", **app),
    "merge": lambda t, app: (
        t.merge(pa.table({"id": [2]}), on="id").when_matched_update({"n": "target.n * 2"}).execute(**app)
    ),
    "truncate": lambda t, app: t.truncate(**app),
    "restore": lambda t, app: t.restore(version=1, **app),
}


@pytest.mark.parametrize(
    "name", [name if name in ("insert", "delete") else pytest.param(name, marks=pytest.mark.long) for name in WRITES]
)
def test_a_write_repeated_under_its_application_version_changes_nothing(lake: Lake, new_name: Names, name: str) -> None:
    table = lake.create_table(new_name(), "id bigint, n int")
    table.insert(pa.table({"id": [1, 2], "n": [10, 20]}))
    app = {"app_id": "stream", "app_version": 3}
    first = WRITES[name](table, app)
    assert not first.already_applied
    after, folders = content(table), staged_folders(table)
    again = WRITES[name](table, app)
    assert again.already_applied
    assert (again.version, again.rows_staged) == (first.version, 0)
    assert content(table) == after
    assert staged_folders(table) == folders  # what was staged in vain is gone
    assert WRITES[name](table, {**app, "app_version": 2}).already_applied  # an older one, too
    assert not WRITES[name](table, {**app, "app_version": 4}).already_applied


def test_a_transaction_of_several_tables_repeated_changes_nothing(lake: Lake, new_name: Names) -> None:
    tables = [lake.create_table(new_name(), "id bigint") for _ in range(2)]
    for version, is_repeat in ((1, False), (1, True), (2, False)):
        with lake.transaction(app_id="stream", app_version=version) as txn:
            for table in tables:
                txn.table(table.name).insert(pa.table({"id": [version]}))
        assert [commit.already_applied for commit in txn.commits] == [is_repeat] * 2
    assert [content(table) for table in tables] == [[(1,), (2,)]] * 2


@pytest.mark.parametrize(
    "app",
    [
        {"app_id": "a"},
        {"app_version": 1},
        {"app_id": "", "app_version": 1},
        {"app_id": "a" * 257, "app_version": 1},
        {"app_id": "a", "app_version": -1},
        {"app_id": "a", "app_version": True},
        {"app_id": "a", "app_version": 1 << 63},
    ],
)
def test_an_application_version_is_given_whole(lake: Lake, new_name: Names, app: dict[str, Any]) -> None:
    table = lake.create_table(new_name(), "id bigint")
    with pytest.raises(InputError, match="APP_VERSION_INVALID"):
        table.delete("id = 1", **app)


def test_inside_a_transaction_the_application_version_is_the_whole_ones(
    lake: Lake, spark: SparkSession, new_name: Names
) -> None:
    table = lake.create_table(new_name(), "id bigint")
    with pytest.raises(InputError, match="POLICY_INVALID"), lake.transaction() as txn:
        txn.table(table.name).insert(spark.range(1), app_id="a", app_version=1)


def test_changes_are_applied_from_a_dataframe(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint, v string, ts bigint", primary_key=["id"])
    table.insert(spark.createDataFrame([(1, "a", 5), (2, "b", 5)], "id bigint, v string, ts bigint"))
    changes = [("u", 1, "late", 4), ("d", 2, None, 6), ("c", 3, "c", 6), ("c", 3, "older", 5)]
    applied = table.apply_changes(spark.createDataFrame(changes, "op string, id bigint, v string, ts bigint"))
    assert (applied.upserted, applied.deleted, applied.late, applied.repeated) == (1, 1, 1, 1)
    assert content(table) == [(1, "a", 5), (3, "c", 6)]
