"""Few rows ride in the commit itself: their entry has the rows, and no file is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.inlined_rows import content_of
from worker.base.schema import OP, TOMBSTONE
from worker.base.values import raw_value, wire_value
from worker.commit.staged_files import bucket_in
from worker.commit.stages import Stage
from worker.files.footers import STATS_COLUMNS

ROWS: Final = "write.inline.rows"
BYTES: Final = "write.inline.bytes"
DEFAULTS: Final = {ROWS: common_pb2.LIMIT_INLINE_ROWS, BYTES: common_pb2.LIMIT_INLINE_BYTES}
KINDS: Final[Mapping[common_pb2.FileKind.ValueType, common_pb2.FileKind.ValueType]] = {
    common_pb2.FILE_KIND_UNSPECIFIED: common_pb2.FILE_KIND_INLINED,
    common_pb2.FILE_KIND_DELTA: common_pb2.FILE_KIND_INLINED_DELTA,
}
CONTENT_BYTES_MAX: Final = common_pb2.LIMIT_INLINE_COMMIT_BYTES  # of a commit: each part of it names all columns


def are_few(meta: catalog_pb2.Table, rows: pa.Table) -> bool:
    """Whether the rows of a write are few enough, by the table's properties."""
    return len(rows) <= _most(meta, ROWS) and rows.nbytes <= _most(meta, BYTES)


def _most(meta: catalog_pb2.Table, name: str) -> int:
    return int(meta.properties[name]) if name in meta.properties else DEFAULTS[name]


def inlined_file(stage: Stage, path: str, rows: pa.Table, kind: common_pb2.FileKind.ValueType) -> common_pb2.DataFile:
    """The entry of the rows, which are in the shape of the table's files. Its facts are those that a footer has."""
    meta = stage.meta
    content = content_of(rows)
    entry = common_pb2.DataFile(
        path=path,
        rows=len(rows),
        bytes=len(content),
        schema_version=meta.schema_version,
        kind=KINDS[kind],
        content=content,
    )
    if kind != common_pb2.FILE_KIND_UNSPECIFIED:
        entry.bucket = bucket_in(path)
    entry.partition.SetInParent()
    fixed = {*meta.primary_key, *meta.partition_columns}
    for at, column in enumerate(meta.columns):
        if at < STATS_COLUMNS or column.name in fixed or not column.nullable:
            values = rows.column(column.name)
            if not pa.types.is_nested(values.type) and not _has_nan(values):
                entry.stats.append(_stats(values, column))
            if column.name in meta.partition_columns:
                entry.partition.values.add(column=column.name, value=wire_value(values[0].as_py(), column.type))
    if OP in rows.column_names:
        entry.tombstones = pc.sum(pc.equal(rows.column(OP), TOMBSTONE)).as_py() or 0
    return entry


def _has_nan(values: pa.ChunkedArray) -> bool:
    """Then its bounds say nothing, and files have none either."""
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _stats(values: pa.ChunkedArray, column: catalog_pb2.Column) -> common_pb2.ColumnStats:
    found = common_pb2.ColumnStats(column_id=column.column_id, nulls=values.null_count)
    if values.null_count == len(values) or pa.types.is_binary(values.type):
        return found
    extremes = pc.min_max(values)
    smallest, cut_min = _bound(extremes["min"], column.type, is_max=False)
    largest, cut_max = _bound(extremes["max"], column.type, is_max=True)
    if smallest is not None and largest is not None:
        found.min.CopyFrom(smallest)
        found.max.CopyFrom(largest)
        found.truncated = cut_min or cut_max
    return found


def _bound(scalar: Any, type_name: str, *, is_max: bool) -> tuple[common_pb2.Value | None, bool]:
    kind = scalar.type
    if pa.types.is_decimal(kind):
        return wire_value(scalar.as_py(), type_name), False
    raw = scalar.value if pa.types.is_temporal(kind) else scalar.as_py()
    return raw_value(raw, type_name, is_max=is_max)
