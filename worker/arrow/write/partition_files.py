"""Rows in Arrow become files of a table, as Spark would have staged them: one for each partition and bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from protos.laketx.v1 import common_pb2
from worker.arrow.write.inlined_files import CONTENT_BYTES_MAX, are_few, inlined_file
from worker.base.schema import OP, PART, ROW_ID
from worker.commit.staged_files import entry_of
from worker.commit.stages import Stage
from worker.files.arrow_types import arrow_schema, file_schema, in_shape
from worker.files.footers import check_required, in_threads
from worker.files.parquet_options import flat_columns, options_of, repeating, with_nan
from worker.files.storage import is_local, make_folder, storage

GROUP_ROWS: Final = 1 << 18


def write_parts(
    stage: Stage, rows: pa.Table, name: str, kind: common_pb2.FileKind.ValueType, *, may_inline: bool = False
) -> list[common_pb2.DataFile]:
    """Writes a file for each value of PART, which is a folder or the number of a bucket, sorted by key.

    Few rows become inlined files, if they may.
    """
    meta = stage.meta
    schema = arrow_schema(meta, with_op=OP in rows.column_names, with_row_id=ROW_ID in rows.column_names)
    names = {column.column_id: column.name for column in meta.columns}
    parts = [
        (f"{PART}={part}/part-0" if isinstance(part, str) else f"part-{part:05d}-0", in_shape(found, schema, names))
        for part, found in by_part(rows, list(meta.primary_key))
    ]
    if may_inline and are_few(meta, rows) and stage.may_inline():
        inlined = [inlined_file(stage, f"{name}/{where}.arrow", found, kind) for where, found in parts]
        if sum(entry.bytes for entry in inlined) <= CONTENT_BYTES_MAX:
            check_required(meta, inlined)
            return inlined
    files, root = storage(stage.table_folder)

    def write(part: tuple[str, pa.Table]) -> common_pb2.DataFile:
        path = f"{name}/{part[0]}.parquet"
        make_folder(files, f"{root}/{path}".rpartition("/")[0])
        footers: list[Any] = []
        with files.open_output_stream(f"{root}/{path}") as out:
            written = pa.table(part[1].columns, schema=file_schema(schema))
            flat = flat_columns(written)
            options = options_of(meta, schema, with_nan(flat)) | {"use_dictionary": repeating(flat, schema)}
            pq.write_table(written, out, row_group_size=GROUP_ROWS, metadata_collector=footers, **options)
            size = out.tell()
        return entry_of(stage, path, footers[0], size, kind)

    entries = list(map(write, parts)) if is_local(files) or len(parts) == 1 else in_threads(write, parts)
    check_required(meta, entries)
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
