"""A table's rows at a version as a DataFrame: resolves the version, and has the catalog's reader read it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from protos.laketx.v1 import common_pb2
from worker.arrow.scan.plans import entries_of
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.connection.versions import pinned_version
from worker.dataframes.plan_reads import named_rows
from worker.spark.conditions import to_wire
from worker.spark.session import is_classic, require_jar, rows_by_catalog, rows_by_jar

# -- the front ---------------------------------------------------------------------------------------------------------


def read(
    table: TableView,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    commits_ago: int | None = None,
    tag: str | None = None,
    where: str | Column | None = None,
) -> DataFrame:
    """The rows of one version, default the newest, pinned until the lake closes.

    `where` prunes files as far as Spark pushes it down.
    """
    is_chosen = any(choice is not None for choice in (version, timestamp, commits_ago, tag))
    chosen = pinned_version(table, table.lake.pins, version, timestamp, commits_ago, tag)
    return read_where(table, chosen, where, is_chosen=is_chosen)


def read_where(table: TableView, version: int, where: str | Column | None, *, is_chosen: bool) -> DataFrame:
    """Return the rows of a version. A chosen version is a constant for the write of these rows."""
    then = table.at(version) if is_classic(table.spark) else table  # a server looks itself
    rows = _rows(then, version, is_chosen=is_chosen)
    return rows if where is None else filtered(rows, where)


def _rows(then: TableView, version: int, *, is_chosen: bool) -> DataFrame:
    """Return the rows as the reader of the Spark catalog shows them."""
    spark, lake = then.spark, then.lake
    if is_classic(spark):
        require_jar(spark)
        return rows_by_jar(spark, lake.address, then.meta.SerializeToString(), version, is_chosen=is_chosen)
    rows = rows_by_catalog(spark, lake.name_of(then.table_id), version, is_chosen=is_chosen)
    return rows if is_chosen else named_rows(rows, then.table_id, version)


def filtered(rows: DataFrame, where: str | Column) -> DataFrame:
    """Return the rows for which the condition is true. Refuse a condition that Spark can't resolve."""
    try:
        matched = rows.filter(where)
        if not is_classic(rows.sparkSession):
            _ = matched.schema  # a Connect session says only now what is wrong
    except PySparkException as error:
        raise InputError("CONDITION_INVALID", f"{where!r}: {error.getMessage()}") from error
    return matched


# -- plans -------------------------------------------------------------------------------------------------------------


def plan(
    table: TableView, version: int, where: str | None = None, partitions: Iterable[common_pb2.Partition] = ()
) -> list[common_pb2.LiveEntry]:
    """The entries that a read of the version needs; see `entries_of`. The condition is of Spark's SQL."""
    predicate = None if where is None else to_wire(where, table.meta, table.spark)
    return entries_of(table, version, predicate, partitions)
