"""What a DataFrame reads of the table that its rows are written to.

A session with the jar of the Spark catalog has it looked up in the plan. Elsewhere, as over Spark Connect, the plan's
text says it: `table.read()` names its frames there, and tables of the catalog have their names. Then the whole table
counts as read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from protos.laketx.v1 import common_pb2
from worker.base.session import has_jar, plan_text, reads_by_jar
from worker.base.table_view import TableView
from worker.read.frame_names import named_reads
from worker.write.rows_read import EVERYTHING, RowsRead, without_data


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
