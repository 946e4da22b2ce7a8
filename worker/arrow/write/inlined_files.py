"""Entries that contain their few rows, and the statistics that the footer of a file would have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.inlined_rows import contents_of
from worker.base.schema import OP, SET, TOMBSTONE
from worker.base.values import raw_value, wire_value
from worker.files.footers import STATS_COLUMNS, bucket_in
from worker.files.parquet_options import has_nan

ROWS: Final = "write.inline.rows"
BYTES: Final = "write.inline.bytes"
DEFAULTS: Final = {ROWS: common_pb2.LIMIT_INLINE_ROWS, BYTES: common_pb2.LIMIT_INLINE_BYTES}
FEW: Final = 1 << 8  # values: Python finds the bounds of fewer sooner than Arrow
FILES_OF_ALL: Final = 100  # a write to more files may have as many rows per file as a write to so many files
KINDS: Final[Mapping[common_pb2.FileKind.ValueType, common_pb2.FileKind.ValueType]] = {
    common_pb2.FILE_KIND_UNSPECIFIED: common_pb2.FILE_KIND_INLINED,
    common_pb2.FILE_KIND_DELTA: common_pb2.FILE_KIND_INLINED_DELTA,
}
FILE_BYTES_MAX: Final = common_pb2.LIMIT_INLINE_FILE_BYTES
COMMIT_BYTES_MAX: Final = common_pb2.LIMIT_INLINE_COMMIT_BYTES  # each part of a commit names all columns


def are_few(meta: catalog_pb2.Table, rows: pa.Table, files: int = 1) -> bool:
    """Return whether the rows of a write to so many files are few enough, by the table's properties."""
    most = _most(meta, ROWS)
    return len(rows) <= max(most, files * most // FILES_OF_ALL) and takes_at_most(rows, _most(meta, BYTES))


def takes_at_most(rows: pa.Table, most: int) -> bool:
    """Return whether the rows take at most so many bytes in memory. Whole buffers are counted far sooner than parts."""
    return bool(rows.get_total_buffer_size() <= most or rows.nbytes <= most)


def _most(meta: catalog_pb2.Table, name: str) -> int:
    return int(meta.properties[name]) if name in meta.properties else DEFAULTS[name]


def inlined_files(
    meta: catalog_pb2.Table, parts: Sequence[tuple[str, pa.Table]], kind: common_pb2.FileKind.ValueType
) -> list[common_pb2.DataFile] | None:
    """Return the entries of parts, each a path and rows in the shape of the table's files; None if too large."""
    groups: dict[bool, list[tuple[str, pa.Table]]] = defaultdict(list)  # of one schema
    for path, rows in parts:
        groups[SET in rows.schema.names].append((path, rows))
    by_path: dict[str, common_pb2.DataFile] = {}
    size = 0
    for group in groups.values():
        contents = contents_of([rows for _, rows in group])
        size += sum(map(len, contents))
        if size > COMMIT_BYTES_MAX or max(map(len, contents)) > FILE_BYTES_MAX:
            return None
        whole = pa.concat_tables([rows for _, rows in group]) if len(group) > 1 else group[0][1]
        entries = _entries(meta, whole, [len(rows) for _, rows in group])
        for (path, _), content, entry in zip(group, contents, entries, strict=True):
            entry.path, entry.kind, entry.bytes, entry.content = path, KINDS[kind], len(content), content
            if kind != common_pb2.FILE_KIND_UNSPECIFIED:
                entry.bucket = bucket_in(path)
            by_path[path] = entry
    return [by_path[path] for path, _ in parts]


def _entries(meta: catalog_pb2.Table, rows: pa.Table, counts: Sequence[int]) -> list[common_pb2.DataFile]:
    """Return entries for consecutive rows, with their statistics; `counts` are the rows of each entry."""
    entries = [common_pb2.DataFile(rows=count, schema_version=meta.schema_version) for count in counts]
    begins = list(accumulate(counts[:-1], initial=0))
    fixed = {*meta.primary_key, *meta.partition_columns}
    leading, others = meta.columns[:STATS_COLUMNS], meta.columns[STATS_COLUMNS:]
    for column in (*leading, *(other for other in others if not other.nullable or other.name in fixed)):
        values = rows.column(column.name).combine_chunks()
        if not pa.types.is_nested(values.type):
            for entry, stats in zip(entries, _stats(column, values, counts, begins), strict=True):
                if stats is not None:
                    entry.stats.append(stats)
        if column.name in meta.partition_columns:
            firsts = values if len(values) == len(counts) else values.take(pa.array(begins))
            for entry, value in zip(entries, firsts.to_pylist(), strict=True):
                entry.partition.values.add(column=column.name, value=wire_value(value, column.type))
    for entry in entries:
        entry.partition.SetInParent()
    if OP in rows.schema.names:
        are_tombstones = rows.column(OP).to_numpy() == TOMBSTONE
        for entry, tombstones in zip(entries, np.add.reduceat(are_tombstones, begins, dtype=int).tolist(), strict=True):
            entry.tombstones = tombstones
    return entries


def _stats(
    column: catalog_pb2.Column, values: pa.Array, counts: Sequence[int], begins: Sequence[int]
) -> Iterator[common_pb2.ColumnStats | None]:
    """Yield the statistics of each entry's values; None if these include NaN, as for files."""
    if len(values) <= FEW:
        yield from _stats_of_few(column, values, counts, begins)
        return
    none_of = [0] * len(counts)
    nan = none_of
    if has_nan(values):
        nan = np.add.reduceat(pc.is_nan(values).fill_null(False).to_numpy(False), begins, dtype=int).tolist()
    nulls = none_of
    if values.null_count:
        nulls = np.add.reduceat(values.is_null().to_numpy(False), begins, dtype=int).tolist()
    lows = highs = [None] * len(counts)
    if not pa.types.is_binary(values.type):
        smallest, largest = _extremes(values, counts)
        lows = _raw(smallest)
        highs = lows if largest is smallest else _raw(largest)
    for low, high, null, is_nan in zip(lows, highs, nulls, nan, strict=True):
        yield None if is_nan else _bounded(column, null, low, high)


def _stats_of_few(
    column: catalog_pb2.Column, values: pa.Array, counts: Sequence[int], begins: Sequence[int]
) -> Iterator[common_pb2.ColumnStats | None]:
    """Yield the same for few values, without Arrow: its calls for each column would be most of a small write."""
    has_bounds, is_float = not pa.types.is_binary(values.type), pa.types.is_floating(values.type)
    raw = _raw(values) if has_bounds else values.to_pylist()
    for begin, count in zip(begins, counts, strict=True):
        present = [value for value in raw[begin : begin + count] if value is not None]
        nulls = count - len(present)
        if is_float and any(map(math.isnan, present)):
            yield None
        elif not present or not has_bounds:
            yield _bounded(column, nulls, None, None)
        else:
            yield _bounded(column, nulls, min(present), max(present))


def _extremes(values: pa.Array, counts: Sequence[int]) -> tuple[pa.Array, pa.Array]:
    """Return the least and the greatest value of each entry; NULL if all its values are NULL."""
    if len(values) == len(counts):
        return values, values
    if len(counts) == 1:
        extremes = pc.min_max(values)
        return pa.array([extremes["min"]], values.type), pa.array([extremes["max"]], values.type)
    numbered = pa.table({"entry": np.repeat(np.arange(len(counts)), counts), "value": values})
    grouped = numbered.group_by("entry", use_threads=False).aggregate([("value", "min_max")])
    return tuple(grouped.column("value_min_max").combine_chunks().flatten())


def _raw(values: pa.Array) -> list[Any]:
    """Return the values as a footer has them; decimals stay as they are."""
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    raw: list[Any] = values.to_pylist()
    return raw


def _bounded(column: catalog_pb2.Column, nulls: int, low: Any, high: Any) -> common_pb2.ColumnStats:
    if low is None:
        return common_pb2.ColumnStats(column_id=column.column_id, nulls=nulls)
    if isinstance(low, Decimal):
        smallest, largest = wire_value(low, column.type), wire_value(high, column.type)
        return common_pb2.ColumnStats(column_id=column.column_id, nulls=nulls, min=smallest, max=largest)
    least, cut_min = raw_value(low, column.type, is_max=False)
    greatest, cut_max = raw_value(high, column.type, is_max=True)
    stats = common_pb2.ColumnStats(column_id=column.column_id, nulls=nulls)
    if least is not None and greatest is not None:
        stats.min.CopyFrom(least)
        stats.max.CopyFrom(greatest)
        stats.truncated = cut_min or cut_max
    return stats
