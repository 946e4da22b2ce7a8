"""A table's rows at a version as a DataFrame: resolves the version and its entries; `frames` makes the DataFrames."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from protos.laketx.v1 import common_pb2
from worker.base.conditions import to_wire
from worker.base.errors import InputError
from worker.base.session import has_jar, is_classic, rows_by_jar
from worker.base.table_view import TableView
from worker.read.frame_names import named_rows
from worker.read.frames import frame_of
from worker.read.plans import entries_of
from worker.read.versions import pinned_version

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

    `where` as text prunes files; a Column does so where the catalog's reader reads, and only filters rows elsewhere.
    """
    is_chosen = any(asked is not None for asked in (version, timestamp, commits_ago, tag))
    found = pinned_version(table, table.lake.pins, version, timestamp, commits_ago, tag)
    return read_where(table, found, where, is_chosen=is_chosen)


def read_where(table: TableView, version: int, where: str | Column | None, *, is_chosen: bool) -> DataFrame:
    """By the reader of the Spark catalog where the session has it, else by Spark's own of Parquet."""
    then = table.at(version)
    if is_read_by_jar(then):
        rows = rows_by_jar(then.spark, then.lake.address, then.meta.SerializeToString(), version, is_chosen=is_chosen)
    else:
        rows = frame_of(then, plan(then, version, where if isinstance(where, str) else None))
        rows = rows if is_chosen else named_rows(rows, table.table_id, version)
    return rows if where is None else filtered(rows, where)


def is_read_by_jar(table: TableView) -> bool:
    """Whether the session has the jar, and the lake an address that it can ask."""
    return bool(table.lake.address) and has_jar(table.spark)


def filtered(rows: DataFrame, where: str | Column) -> DataFrame:
    """The rows for which the condition is true; refused if Spark can't resolve it."""
    try:
        found = rows.filter(where)
        if not is_classic(rows.sparkSession):
            _ = found.schema  # a Connect session says only now what is wrong
    except PySparkException as error:
        raise InputError("CONDITION_INVALID", f"{where!r}: {error.getMessage()}") from error
    return found


# -- plans -------------------------------------------------------------------------------------------------------------


def plan(
    table: TableView, version: int, where: str | None = None, partitions: Iterable[common_pb2.Partition] = ()
) -> list[common_pb2.LiveEntry]:
    """The entries that a read of the version needs; see `entries_of`. The condition is of Spark's SQL."""
    predicate = None if where is None else to_wire(where, table.meta, table.spark)
    return entries_of(table, version, predicate, partitions)
