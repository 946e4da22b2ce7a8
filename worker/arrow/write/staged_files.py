"""Rows in Arrow become staged files: one for each partition and bucket, or entries that have their few rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.image_folds import set_in
from worker.arrow.write.inlined_files import are_few, inlined_files
from worker.base.schema import OP, PART, ROW_ID, SET
from worker.commit.stages import Stage
from worker.files.arrow_types import arrow_schema, file_schema, in_shape
from worker.files.footers import (
    bucket_in,
    check_required,
    data_file,
    in_threads,
    name_set_columns,
    partition_of,
)
from worker.files.parquet_options import options_for
from worker.files.storage import is_local, make_folder, storage

GROUP_ROWS: Final = 1 << 18


def entry_of(
    meta: catalog_pb2.Table,
    place: tuple[Any, str],
    path: str,
    footer: Any,
    size: int,
    kind: common_pb2.FileKind.ValueType,
) -> common_pb2.DataFile:
    """Return the entry of a file with rows; the path is relative to `place`, the table's folder."""
    files, root = place
    entry = data_file(meta, path, footer, size)
    entry.kind = kind
    if kind != common_pb2.FILE_KIND_UNSPECIFIED:
        entry.bucket = bucket_in(path)
    entry.partition.CopyFrom(partition_of(meta, entry, files, f"{root}/{path}"))
    return entry


def write_parts(
    stage: Stage, rows: pa.Table, name: str, kind: common_pb2.FileKind.ValueType, *, may_inline: bool = False
) -> list[common_pb2.DataFile]:
    """Write a file for each value of PART, which is a folder or the number of a bucket, sorted by key.

    Few rows become inlined files, if they may.
    """
    meta = stage.meta
    whole = arrow_schema(meta, with_op=OP in rows.column_names, with_row_id=ROW_ID in rows.column_names)
    partial = arrow_schema(meta, with_op=True, with_set=True)

    def shaped(part: pa.Table) -> pa.Table:
        sets_columns = SET in part.column_names and part.column(SET).null_count < len(part)
        schema = partial if sets_columns else whole
        if part.schema.equals(schema, check_metadata=True):
            return part
        return in_shape(part, schema, {column.column_id: column.name for column in meta.columns})

    parts = [
        (f"{PART}={part}/part-0" if isinstance(part, str) else f"part-{part:05d}-0", shaped(part_rows))
        for part, part_rows in by_part(rows, list(meta.primary_key))
    ]
    if may_inline and are_few(meta, rows, len(parts)) and stage.may_inline():
        inlined = inlined_files(meta, [(f"{name}/{where}.arrow", part_rows) for where, part_rows in parts], kind)
        if inlined is not None:
            return _checked(meta, inlined, parts)
    files, root = storage(stage.table_folder)

    def write(part: tuple[str, pa.Table]) -> common_pb2.DataFile:
        path = f"{name}/{part[0]}.parquet"
        make_folder(files, f"{root}/{path}".rpartition("/")[0])
        with files.open_output_stream(f"{root}/{path}") as out:
            written = pa.table(part[1].columns, schema=file_schema(part[1].schema))
            options = options_for(meta, written, GROUP_ROWS)
            with pq.ParquetWriter(out, written.schema, **options) as writer:  # `write_table` hides the error
                writer.write_table(written, row_group_size=GROUP_ROWS)
            size = out.tell()
        return entry_of(meta, (files, root), path, writer.writer.metadata, size, kind)

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
    if rows.schema.get_field_index(PART) < 0:
        yield 0, rows
        return
    in_order = rows.sort_by([(name, "ascending") for name in (PART, *keys)])
    counts = pc.value_counts(in_order.column(PART))  # in the order of the rows
    shown = in_order.drop_columns(PART)
    begin = 0
    for part, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        yield part, shown.slice(begin, count)
        begin += count
