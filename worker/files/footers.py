"""Footers of Parquet files: rows, smallest and largest values, and the partition of a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.schema import OP, PART, ROW_ID, TOMBSTONE
from worker.base.values import FLOATS, TIMES, raw_value, wire_value
from worker.files.arrow_types import ARROW
from worker.files.storage import in_pages

STATS_COLUMNS: Final = 32  # leading ones; key and partition columns always
FOOTER_THREADS: Final = 8
DAYS_AND_TIMES: Final = TIMES | {"date"}


def list_parquet(files: Any, folder: str) -> list[Any]:
    """List the data files below a folder, by path, without those that Spark and Hadoop treat as hidden."""
    infos = files.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    data_files = [
        info
        for info in infos
        if info.type == fs.FileType.File
        and info.base_name.endswith(".parquet")
        and info.base_name[0] not in "._"
        and "/_temporary/" not in info.path
    ]
    return sorted(data_files, key=lambda info: str(info.path))


def in_threads(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(FOOTER_THREADS, thread_name_prefix="laketx-footers") as pool:
        return list(pool.map(work, items))


def read_footers(files: Any, paths: Sequence[str]) -> list[Any]:
    return in_threads(lambda path: pq.read_metadata(path, filesystem=files), paths)


def data_file(
    meta: catalog_pb2.Table, path: str, footer: Any, size: int, *, external: bool = False
) -> common_pb2.DataFile:
    """Return the file's entry, without partition, bucket and kind.

    Bounds of floats in an external file's footer are not used.
    """
    entry = common_pb2.DataFile(path=path, rows=footer.num_rows, bytes=size, schema_version=meta.schema_version)
    entry.external = external
    fixed = {*meta.primary_key, *meta.partition_columns}
    types, is_old = arrow_types(footer), has_old_calendar(footer)
    leaves = top_leaves(footer)
    for at, column in enumerate(meta.columns):
        needs_stats = at < STATS_COLUMNS or column.name in fixed or not column.nullable
        is_known = not (is_old and column.type in DAYS_AND_TIMES)
        if needs_stats and is_known and column.name in leaves and fits(types[column.name], column.type):
            stats = column_stats(footer, leaves[column.name], column)
            if stats is not None:
                if external and column.type in FLOATS:
                    stats.ClearField("min")
                    stats.ClearField("max")
                entry.stats.append(stats)
    if OP in leaves:
        entry.tombstones = tombstones_of(footer, leaves[OP])
    if ROW_ID in leaves:
        entry.carries_row_ids = True
        bounds = column_stats(footer, leaves[ROW_ID], catalog_pb2.Column(name=ROW_ID, type="bigint"))
        if bounds is not None and bounds.HasField("min") and bounds.HasField("max"):
            entry.row_id_min, entry.row_id_max = bounds.min.integer, bounds.max.integer
    return entry


def tombstones_of(footer: Any, leaf: int) -> int:
    """Return the number of tombstones; 0 if the footer doesn't show it."""
    count = 0
    for at in range(footer.num_row_groups):
        chunk = footer.row_group(at).column(leaf)
        stats = chunk.statistics
        if stats is None or not stats.has_min_max or not stats.has_null_count or stats.min != stats.max:
            return 0
        count += (chunk.num_values - stats.null_count) * (stats.min == TOMBSTONE)
    return count


def top_leaves(footer: Any) -> dict[str, int]:
    """Return the positions of flat columns among all leaves. Paths can't distinguish `a.b` from field b in a."""
    leaves, at = {}, 0
    for field in footer.schema.to_arrow_schema():
        if not pa.types.is_nested(field.type):
            leaves[field.name] = at
        at += _count_leaves(field.type)
    return leaves if at == len(footer.schema) else {}


def _count_leaves(kind: Any) -> int:
    if isinstance(kind, pa.ExtensionType):
        return _count_leaves(kind.storage_type)
    if not pa.types.is_nested(kind):
        return 1
    return sum(_count_leaves(kind.field(at).type) for at in range(kind.num_fields))


def has_old_calendar(footer: Any) -> bool:
    """Return whether days before 1582 use the Julian calendar.

    Spark rebases them when it reads; the footer doesn't show it.
    """
    metadata = footer.metadata or {}
    return b"org.apache.spark.legacyDateTime" in metadata or metadata.get(b"org.apache.spark.version", b"3") < b"3"


def arrow_types(footer: Any) -> dict[str, Any]:
    """Return the types without dictionaries, which are an encoding and not a type."""
    schema = footer.schema.to_arrow_schema()
    return {field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema}


def fits(kind: Any, type_name: str) -> bool:
    """Return whether a file's statistics can be used unchanged: its type is the column's."""
    if type_name in TIMES:
        zoned = type_name == "timestamp"
        return bool(pa.types.is_timestamp(kind) and kind.unit == "us" and (kind.tz is not None) == zoned)
    if type_name in ARROW:
        return bool(kind == ARROW[type_name])
    return bool(pa.types.is_decimal(kind)) and type_name == f"decimal({kind.precision},{kind.scale})"


def column_stats(footer: Any, leaf: int, column: catalog_pb2.Column) -> common_pb2.ColumnStats | None:
    """Return the statistics over all row groups; None if one row group has none."""
    groups = [footer.row_group(at).column(leaf) for at in range(footer.num_row_groups)]
    groups = [(chunk.statistics, chunk.num_values) for chunk in groups if chunk.num_values]
    if any(stats is None for stats, _ in groups):
        return None
    merged = common_pb2.ColumnStats(column_id=column.column_id)
    counts_nulls = all(stats.has_null_count for stats, _ in groups)
    if counts_nulls:
        merged.nulls = sum(stats.null_count for stats, _ in groups)
    filled = [stats for stats, rows in groups if not (stats.has_null_count and stats.null_count == rows)]
    has_bounds = filled and all(stats.has_min_max for stats in filled)
    if has_bounds and column.type in FLOATS:  # parquet-mr writes NaN as the largest
        has_bounds = not any(
            math.isnan(chunk_stats.min_raw) or math.isnan(chunk_stats.max_raw) for chunk_stats in filled
        )
    if has_bounds:
        low, high = (
            min(chunk_stats.min_raw for chunk_stats in filled),
            max(chunk_stats.max_raw for chunk_stats in filled),
        )
        if column.type.startswith("decimal") and isinstance(low, bytes):
            low = min((chunk_stats.min_raw for chunk_stats in filled), key=_signed)
            high = max((chunk_stats.max_raw for chunk_stats in filled), key=_signed)
        smallest, cut_min = raw_value(low, column.type, is_max=False)
        largest, cut_max = raw_value(high, column.type, is_max=True)
        if smallest is not None and largest is not None:
            merged.min.CopyFrom(smallest)
            merged.max.CopyFrom(largest)
            merged.truncated = cut_min or cut_max
    return merged


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def bucket_in(path: str) -> int:
    """Return the bucket of a staged file, from its folder or the number of the task that wrote it."""
    folder = path.rpartition(f"/{PART}=")[2].partition("/")[0] if f"/{PART}=" in path else ""
    number = folder.partition("-")[0] or path.rpartition("/")[2].removeprefix("part-").partition("-")[0]
    return int(number)


def partition_of(meta: catalog_pb2.Table, entry: common_pb2.DataFile, files: Any, path: str) -> common_pb2.Partition:
    """Return the partition of the file's rows, from its statistics or its first row."""
    partition = common_pb2.Partition()
    columns = {column.name: column for column in meta.columns}
    stats = {bounds.column_id: bounds for bounds in entry.stats}
    for name in meta.partition_columns:
        column = columns[name]
        bounds = stats.get(column.column_id)
        value = partition.values.add(column=name).value
        if bounds is not None and bounds.HasField("nulls") and bounds.nulls == entry.rows:
            value.null = common_pb2.NULL_VALUE_UNSPECIFIED
        elif bounds is not None and bounds.HasField("min") and bounds.min == bounds.max and bounds.nulls == 0:
            value.CopyFrom(bounds.min)
        else:
            first = next(in_pages(path, files).iter_batches(batch_size=1, columns=[name]))
            at = first.schema.get_field_index(name)
            value.CopyFrom(wire_value(first.column(at)[0].as_py(), column.type))
    return partition


def check_required(meta: catalog_pb2.Table, entries: Iterable[common_pb2.DataFile]) -> None:
    """Refuse NULL in NOT NULL columns, by the counts in the footers."""
    required = {column.column_id: column.name for column in meta.columns if not column.nullable}
    for entry in entries:
        for stats in entry.stats:
            if stats.column_id in required and stats.nulls:
                name = required[stats.column_id]
                raise InputError(
                    "NULL_NOT_ALLOWED", f"{stats.nulls} rows have NULL in {name}, which is NOT NULL in {meta.name}"
                )


def name_set_columns(meta: catalog_pb2.Table, entry: common_pb2.DataFile, columns: Sequence[int]) -> None:
    """Set the columns that a file's images set. Its statistics are those of images, except for key and partition."""
    entry.set_columns[:] = columns
    everywhere = {*meta.primary_key, *meta.partition_columns}
    kept = {column.column_id for column in meta.columns if column.name in everywhere}
    kept_stats = [stats for stats in entry.stats if stats.column_id in kept]
    del entry.stats[:]
    entry.stats.extend(kept_stats)
