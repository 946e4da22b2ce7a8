"""What a DataFrame reads of the table that its rows are written to.

A session with the jar of the Spark catalog has it looked up in the plan. Elsewhere, as over Spark Connect, the plan's
text says it: `table.read()` names its frames there, and tables of the catalog have their names. Then the whole table
counts as read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from protos.laketx.v1 import common_pb2
from worker.commit.rows_read import EVERYTHING, RowsRead, declares_all, reader, without_data
from worker.commit.writes import Write
from worker.connection.table_view import TableView
from worker.spark.session import ReadElsewhere, has_jar, plan_text, reads_by_jar, reads_elsewhere_by_jar

_PREFIX: Final = "_laketx_rows"
_NAMED: Final = re.compile(rf"{_PREFIX}_([0-9a-z]+)_(\d+)\b")


def plan_reads(table: TableView, *frames: DataFrame) -> RowsRead:
    """The reads of the table in the plans of these DataFrames."""
    found = [one for one in (_of_frame(table, frame) for frame in frames) if one.reads]
    versions = [one.version for one in found if one.version is not None]
    oldest = without_data(table, min(versions)) if versions else None
    return RowsRead(tuple(read for one in found for read in one.reads), oldest)


def _of_frame(table: TableView, rows: DataFrame) -> RowsRead:
    try:
        if has_jar(table.spark):
            reads, version = reads_by_jar(rows.select("*"), table.table_id)
            return RowsRead(tuple(map(common_pb2.Read.FromString, reads)), version if reads else None)
        text = plan_text(rows)
    except PySparkException:  # the write itself says what is wrong
        return RowsRead((EVERYTHING,))
    versions = named_reads(text, table.table_id)
    if versions:
        return RowsRead((EVERYTHING,), min(versions))
    is_named = _is_named(text, (table.name, table.name.rpartition(".")[2]))
    return RowsRead((EVERYTHING,)) if is_named else RowsRead()


def _is_named(text: str, names: Iterable[str]) -> bool:
    relations = " ".join(line for line in text.splitlines() if "RelationV2" in line).replace("`", "")
    return any(re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", relations, re.IGNORECASE) for name in names)


def plan_reads_elsewhere(table: TableView, *frames: DataFrame) -> list[Write]:
    """The reads of other tables of the lake in these plans, where they are to be declared.

    Without the jar those of `table.read()` alone are known.
    """
    if not declares_all(table, by_spark=True):
        return []
    found: dict[str, RowsRead] = {}
    views: dict[str, TableView] = {}
    for one in (other for frame in frames for other in _elsewhere(table, frame)):
        view = views.get(one.table_id) or replace(table, meta=table.client.get_table(table_id=one.table_id))
        views[one.table_id] = view
        is_same = one.schema_version == view.meta.schema_version
        reads = tuple(map(common_pb2.Read.FromString, one.reads)) if is_same else (EVERYTHING,)
        before = found.get(one.table_id, RowsRead(version=one.version))
        oldest = min(one.version, before.version or 0)
        found[one.table_id] = RowsRead((*before.reads, *reads), oldest)
    readers = []
    for table_id, read in found.items():
        version = without_data(views[table_id], read.version or 0)
        readers += reader(views[table_id], replace(read, version=version))
    return readers


def _elsewhere(table: TableView, rows: DataFrame) -> list[ReadElsewhere]:
    try:
        if has_jar(table.spark):
            return reads_elsewhere_by_jar(rows.select("*"), table.table_id, table.lake.warehouse)
        named = named_elsewhere(plan_text(rows), table.table_id)
    except PySparkException:  # the write itself says what is wrong
        return []
    return [ReadElsewhere(table_id, [], version, -1) for table_id, version in named.items()]


def named_rows(rows: DataFrame, table_id: str, version: int) -> DataFrame:
    """The rows under a name that stays in the analysed plan of whatever is made of them."""
    return rows.alias(f"{_PREFIX}_{_plain(table_id)}_{version}")


def named_reads(plan: str, table_id: str) -> list[int]:
    """The versions of the table that a plan reads."""
    return [int(version) for found, version in _NAMED.findall(plan) if found == _plain(table_id)]


def named_elsewhere(plan: str, table_id: str) -> dict[str, int]:
    """The other tables that a plan reads, and the oldest version of each."""
    found: dict[str, int] = {}
    for other, version in _NAMED.findall(plan):
        if other != _plain(table_id):
            other_id = str(UUID(other))
            found[other_id] = min(int(version), found.get(other_id, int(version)))
    return found


def _plain(table_id: str) -> str:
    return table_id.replace("-", "").lower()
