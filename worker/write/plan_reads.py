"""What a DataFrame reads of the table that its rows are written to.

A session with the jar of the Spark catalog has it looked up in the plan. Elsewhere, as over Spark Connect, the plan's
text says it: `table.read()` names its frames there, and tables of the catalog have their names. Then the whole table
counts as read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from protos.laketx.v1 import common_pb2, read_pb2
from worker.base.session import has_jar, plan_text, reads_by_jar
from worker.base.table_view import TableView
from worker.read.frame_names import named_reads

EVERYTHING: Final = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))


@dataclass(frozen=True)
class PlanReads:
    """Reads to declare, and the version from which commits count: the oldest at which one of them was made."""

    reads: tuple[common_pb2.Read, ...] = ()
    version: int | None = None


def plan_reads(table: TableView, *frames: DataFrame) -> PlanReads:
    """The reads of the table in the plans of these DataFrames."""
    found = [one for one in (_of_frame(table, frame) for frame in frames) if one.reads]
    versions = [one.version for one in found if one.version is not None]
    oldest = _without_data(table, min(versions)) if versions else None
    return PlanReads(tuple(read for one in found for read in one.reads), oldest)


def _of_frame(table: TableView, rows: DataFrame) -> PlanReads:
    try:
        if has_jar(table.spark):
            reads, version = reads_by_jar(rows.select("*"), table.table_id)
            return PlanReads(tuple(map(common_pb2.Read.FromString, reads)), version if reads else None)
        text = plan_text(rows)
    except PySparkException:  # the write itself says what is wrong
        return PlanReads((EVERYTHING,))
    versions = named_reads(text, table.table_id)
    if versions:
        return PlanReads((EVERYTHING,), min(versions))
    is_named = _is_named(text, (table.name, table.name.rpartition(".")[2]))
    return PlanReads((EVERYTHING,)) if is_named else PlanReads()


def _is_named(text: str, names: Iterable[str]) -> bool:
    relations = " ".join(line for line in text.splitlines() if "RelationV2" in line).replace("`", "")
    return any(re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", relations, re.IGNORECASE) for name in names)


def _without_data(table: TableView, version: int) -> int:
    """The newest version with the same rows, if only columns changed and files were compacted since."""
    head = table.meta.head_version
    if version >= head:
        return version
    wanted = read_pb2.VersionFilter(from_version=version + 1, to_version=head, logical_only=True)
    is_changed = any(True for _ in table.client.list_versions(table.table_id, wanted=wanted, page_size=1))
    return version if is_changed else head
