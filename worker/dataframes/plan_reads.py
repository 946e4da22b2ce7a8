"""The reads, by a DataFrame, of the table that its rows are written to.

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
    """Return the reads of the table in the plans of these DataFrames."""
    frame_reads = [frame_read for frame_read in (_of_frame(table, frame) for frame in frames) if frame_read.reads]
    versions = [frame_read.version for frame_read in frame_reads if frame_read.version is not None]
    oldest = without_data(table, min(versions)) if versions else None
    return RowsRead(tuple(read for frame_read in frame_reads for read in frame_read.reads), oldest)


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
    """Return the reads of other tables of the lake in these plans, if they must be declared.

    Without the jar only the reads of `table.read()` are found.
    """
    if not declares_all(table, by_spark=True):
        return []
    reads_by_table: dict[str, RowsRead] = {}
    views: dict[str, TableView] = {}
    for other_read in (frame_read for frame in frames for frame_read in _elsewhere(table, frame)):
        view = views.get(other_read.table_id) or replace(
            table, meta=table.client.get_table(table_id=other_read.table_id)
        )
        views[other_read.table_id] = view
        is_same = other_read.schema_version == view.meta.schema_version
        reads = tuple(map(common_pb2.Read.FromString, other_read.reads)) if is_same else (EVERYTHING,)
        before = reads_by_table.get(other_read.table_id, RowsRead(version=other_read.version))
        oldest = min(other_read.version, before.version or 0)
        reads_by_table[other_read.table_id] = RowsRead((*before.reads, *reads), oldest)
    readers = []
    for table_id, read in reads_by_table.items():
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
    """Return the rows under a name that stays in the analysed plan of every DataFrame made of them."""
    return rows.alias(f"{_PREFIX}_{_plain(table_id)}_{version}")


def named_reads(plan: str, table_id: str) -> list[int]:
    """Return the versions of the table that a plan reads."""
    return [int(version) for plain_id, version in _NAMED.findall(plan) if plain_id == _plain(table_id)]


def named_elsewhere(plan: str, table_id: str) -> dict[str, int]:
    """Return the other tables that a plan reads, and the oldest version of each."""
    versions: dict[str, int] = {}
    for other, version in _NAMED.findall(plan):
        if other != _plain(table_id):
            other_id = str(UUID(other))
            versions[other_id] = min(int(version), versions.get(other_id, int(version)))
    return versions


def _plain(table_id: str) -> str:
    return table_id.replace("-", "").lower()
