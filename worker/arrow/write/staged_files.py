"""Rows in Arrow become staged files: one for each partition and bucket, or entries that have their few rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.image_folds import set_in
from worker.arrow.scan.inlined_rows import content_of
from worker.base.schema import OP, PART, ROW_ID, SET, TOMBSTONE
from worker.base.values import raw_value, wire_value
from worker.commit.stages import Stage
from worker.files.arrow_types import arrow_schema, file_schema, in_shape
from worker.files.footers import (
    STATS_COLUMNS,
    check_required,
    data_file,
    in_threads,
    name_set_columns,
    partition_of,
)
from worker.files.parquet_options import has_nan, options_for
from worker.files.storage import is_local, make_folder, storage

ROWS: Final = "write.inline.rows"
BYTES: Final = "write.inline.bytes"
DEFAULTS: Final = {ROWS: common_pb2.LIMIT_INLINE_ROWS, BYTES: common_pb2.LIMIT_INLINE_BYTES}
KINDS: Final[Mapping[common_pb2.FileKind.ValueType, common_pb2.FileKind.ValueType]] = {
    common_pb2.FILE_KIND_UNSPECIFIED: common_pb2.FILE_KIND_INLINED,
    common_pb2.FILE_KIND_DELTA: common_pb2.FILE_KIND_INLINED_DELTA,
}
CONTENT_BYTES_MAX: Final = common_pb2.LIMIT_INLINE_COMMIT_BYTES  # of a commit: each part of it names all columns
GROUP_ROWS: Final = 1 << 18


def entry_of(
    meta: catalog_pb2.Table,
    place: tuple[Any, str],
    path: str,
    footer: Any,
    size: int,
    kind: common_pb2.FileKind.ValueType,
) -> common_pb2.DataFile:
    """The entry of a file with rows; the path is relative to the table's folder, which is the place."""
    files, root = place
    entry = data_file(meta, path, footer, size)
    entry.kind = kind
    if kind != common_pb2.FILE_KIND_UNSPECIFIED:
        entry.bucket = bucket_in(path)
    entry.partition.CopyFrom(partition_of(meta, entry, files, f"{root}/{path}"))
    return entry


def bucket_in(path: str) -> int:
    """The bucket of a staged file, from its folder or the number of the task that wrote it."""
    folder = path.rpartition(f"/{PART}=")[2].partition("/")[0] if f"/{PART}=" in path else ""
    number = folder.partition("-")[0] or path.rpartition("/")[2].removeprefix("part-").partition("-")[0]
    return int(number)


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
            if not pa.types.is_nested(values.type) and not has_nan(values):  # as files have them
                entry.stats.append(_stats(values, column))
            if column.name in meta.partition_columns:
                entry.partition.values.add(column=column.name, value=wire_value(values[0].as_py(), column.type))
    if OP in rows.column_names:
        entry.tombstones = pc.sum(pc.equal(rows.column(OP), TOMBSTONE)).as_py() or 0
    return entry


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


def write_parts(
    stage: Stage, rows: pa.Table, name: str, kind: common_pb2.FileKind.ValueType, *, may_inline: bool = False
) -> list[common_pb2.DataFile]:
    """Writes a file for each value of PART, which is a folder or the number of a bucket, sorted by key.

    Few rows become inlined files, if they may.
    """
    meta = stage.meta
    whole = arrow_schema(meta, with_op=OP in rows.column_names, with_row_id=ROW_ID in rows.column_names)
    partial = arrow_schema(meta, with_op=True, with_set=True)
    names = {column.column_id: column.name for column in meta.columns}

    def shaped(part: pa.Table) -> pa.Table:
        sets_columns = SET in part.column_names and part.column(SET).null_count < len(part)
        schema = partial if sets_columns else whole
        return part if part.schema.equals(schema, check_metadata=True) else in_shape(part, schema, names)

    parts = [
        (f"{PART}={part}/part-0" if isinstance(part, str) else f"part-{part:05d}-0", shaped(found))
        for part, found in by_part(rows, list(meta.primary_key))
    ]
    if may_inline and are_few(meta, rows) and stage.may_inline():
        inlined = [inlined_file(stage, f"{name}/{where}.arrow", found, kind) for where, found in parts]
        if sum(entry.bytes for entry in inlined) <= CONTENT_BYTES_MAX:
            return _checked(meta, inlined, parts)
    files, root = storage(stage.table_folder)

    def write(part: tuple[str, pa.Table]) -> common_pb2.DataFile:
        path = f"{name}/{part[0]}.parquet"
        make_folder(files, f"{root}/{path}".rpartition("/")[0])
        footers: list[Any] = []
        with files.open_output_stream(f"{root}/{path}") as out:
            written = pa.table(part[1].columns, schema=file_schema(part[1].schema))
            options = options_for(meta, written, GROUP_ROWS)
            pq.write_table(written, out, row_group_size=GROUP_ROWS, metadata_collector=footers, **options)
            size = out.tell()
        return entry_of(meta, (files, root), path, footers[0], size, kind)

    entries = list(map(write, parts)) if is_local(files) or len(parts) == 1 else in_threads(write, parts)
    return _checked(meta, entries, parts)


def _checked(
    meta: catalog_pb2.Table, entries: list[common_pb2.DataFile], parts: Sequence[tuple[str, pa.Table]]
) -> list[common_pb2.DataFile]:
    check_required(meta, entries)
    for entry, (_, rows) in zip(entries, parts, strict=True):
        if SET in rows.column_names:
            name_set_columns(meta, entry, set_in(rows, meta))
    return entries


def by_part(rows: pa.Table, keys: Sequence[str]) -> Iterator[tuple[int | str, pa.Table]]:
    if not len(rows):
        return
    if PART not in rows.column_names:
        yield 0, rows
        return
    in_order = rows.sort_by([(name, "ascending") for name in (PART, *keys)])
    counts = pc.value_counts(in_order.column(PART))  # in the order of the rows
    begin = 0
    for part, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        yield part, in_order.slice(begin, count).drop_columns(PART)
        begin += count
