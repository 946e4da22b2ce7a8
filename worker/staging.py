"""Rows become Parquet files under a transaction's folder, and files become entries with statistics.

    <warehouse>/<table id>/<transaction id>/0/part-….parquet                 an append table
    <warehouse>/<table id>/<transaction id>/0/part-00003-….parquet           a bucket each, by the task's number
    <warehouse>/<table id>/<transaction id>/0/_part=3-5d41…/part-….parquet   a partition and bucket each

Spark writes; what its committed job left in the folder counts, so a task that ran twice counts once. The driver reads
the footers: rows, bytes, smallest and largest values, and which partition a file is of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker import merge_on_read as mor
from worker.errors import InputError
from worker.faults import explain
from worker.few import collected, write_few
from worker.required import guarded
from worker.row_sets import key_sets
from worker.schema import OP, PART, ROW_ID, quoted
from worker.storage import in_pages, remove_folder, storage
from worker.values import FLOATS, TIMES, raw_value, wire_value

STATS_COLUMNS: Final = 32  # leading ones; key and partition columns always
FOOTER_THREADS: Final = 8
CODECS: Final = {"lz4": "lz4_raw", "uncompressed": "none"}
DAYS_AND_TIMES: Final = TIMES | {"date"}
ROWS_AT_ONCE: Final = 1 << 17
AT: Final = "_laketx_at"
TASKS_LEAST: Final = 64  # so many buckets are a task each, however few partitions the session shuffles to
CONFLICTS_AT_COMMIT: Final = "mapreduce.fileoutputcommitter.algorithm.version"


# -- what a transaction stages -----------------------------------------------------------------------------------------


@dataclass
class Staged:
    """Entries for one table of a transaction."""

    files: list[common_pb2.DataFile] = field(default_factory=list)
    delete_sets: list[common_pb2.DeleteSet] = field(default_factory=list)
    key_sets: list[common_pb2.KeySet] = field(default_factory=list)
    reads: Sequence[common_pb2.Read] | None = None  # what was read after all; None: what its plan said
    looked_at: list[common_pb2.Read] = field(default_factory=list)  # beside that

    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def add(self, other: Staged) -> None:
        self.files += other.files
        self.delete_sets += other.delete_sets
        self.key_sets += other.key_sets
        self.looked_at += other.looked_at


class Stage:
    """The folder of one transaction in one table, as its writer sees it."""

    def __init__(self, meta: catalog_pb2.Table, table_folder: str, txn_id: str, read_version: int) -> None:
        self.meta = meta
        self.table_folder = table_folder
        self.txn_id = txn_id
        self.read_version = read_version
        self.staged = Staged()
        self._numbers = count()

    def remove(self) -> None:
        remove_folder(f"{self.table_folder}/{self.txn_id}")

    def next_name(self) -> str:
        """Relative to the table's folder."""
        return f"{self.txn_id}/{next(self._numbers)}"

    def write_append(self, rows: DataFrame, *, in_order: bool = False) -> Staged:
        """Rows of an append table, with `_row_id` where they keep their ids; files keep an order that there is."""
        rows = guarded(rows, self.meta)
        parted = bool(self.meta.partition_columns)
        if parted and in_order:
            placed = rows.withColumn(AT, sf.monotonically_increasing_id()).withColumn(PART, partition_text(self.meta))
            rows = placed.sortWithinPartitions(PART, AT).drop(AT)
        elif parted:
            rows = rows.withColumn(PART, partition_text(self.meta))
        return Staged(files=self._write(rows, parted, common_pb2.FILE_KIND_UNSPECIFIED))

    def write_keyed(
        self,
        rows: DataFrame,
        *,
        is_base: bool = False,
        may_repeat: bool = True,
        few: int = 0,
        if_twice: str = "with order_by the last of them wins",
    ) -> Staged:
        """Rows of a primary-key table, sorted by key within their buckets; with `_op` unless they are a base's.

        A key that stands there twice is an error, whose text ends with the way out, `if_twice`; where none can,
        `may_repeat` saves looking. Up to `few` rows are written by the driver.
        """
        rows = guarded(rows, self.meta)
        kind = common_pb2.FILE_KIND_BASE if is_base else common_pb2.FILE_KIND_DELTA
        files = self._write_few(rows, few, kind) if few else None
        if files is None:
            files = self._write_buckets(rows, kind)
        if may_repeat:
            self._check_duplicates(files, if_twice)
        keys = [] if is_base else key_sets(self.meta, rows.sparkSession, self.table_folder, files)
        return Staged(files=files, key_sets=keys)

    def _write_buckets(self, rows: DataFrame, kind: common_pb2.FileKind.ValueType) -> list[common_pb2.DataFile]:
        tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
        if self.meta.partition_columns or self.meta.buckets > max(TASKS_LEAST, tasks):
            return self._write(bucket_folders(self.meta, rows, tasks), True, kind)
        return self._write(bucket_tasks(self.meta, rows), False, kind)

    def _write_few(
        self, rows: DataFrame, few: int, kind: common_pb2.FileKind.ValueType
    ) -> list[common_pb2.DataFile] | None:
        """None where there are more rows."""
        found = collected(rows.withColumn(PART, bucket_folder(self.meta)), few)
        if found is None:
            return None
        name = self.next_name()
        write_few(self.meta, found, self.table_folder, name)
        return self._entries(name, kind)

    def write_ordered(self, rows: DataFrame, kind: common_pb2.FileKind.ValueType) -> Staged:
        """Rows as they lie in their Spark partitions, by PART where it is there; a base's with it."""
        return Staged(files=self._write(rows, PART in rows.columns, kind))

    def _write(self, rows: DataFrame, parted: bool, kind: common_pb2.FileKind.ValueType) -> list[common_pb2.DataFile]:
        name = self.next_name()
        codec = self.meta.properties.get("write.compression", "zstd")
        rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        rows.sparkSession.conf.set("spark.sql.parquet.fieldId.write.enabled", "true")
        rows.sparkSession.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
        writer = (
            rows.write.mode("error")
            .option("compression", CODECS.get(codec, codec))
            .option(CONFLICTS_AT_COMMIT, "1")  # a task's files come into place with the job, not before
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        )
        if kind != common_pb2.FILE_KIND_UNSPECIFIED:
            writer = writer.option("maxRecordsPerFile", "0")  # a bucket's keys lie in one file, sorted
        if parted:
            writer = writer.partitionBy(PART)
        try:
            writer.parquet(f"{self.table_folder}/{name}")
        except PySparkException as error:
            raise explain(error, self.meta) or error from error
        return self._entries(name, kind)

    def _entries(self, name: str, kind: common_pb2.FileKind.ValueType) -> list[common_pb2.DataFile]:
        files, root = storage(self.table_folder)
        found = [
            (info.path, f"{name}/{info.path.removeprefix(f'{root}/{name}/')}", info.size)
            for info in list_parquet(files, f"{root}/{name}")
        ]
        footers = read_footers(files, [path for path, _, _ in found])
        entries = []
        for (path, relative, size), footer in zip(found, footers, strict=True):
            if footer.num_rows:
                entry = data_file(self.meta, relative, footer, size)
                entry.kind = kind
                if kind != common_pb2.FILE_KIND_UNSPECIFIED:
                    entry.bucket = bucket_in(relative)
                entry.partition.CopyFrom(partition_of(self.meta, entry, files, path))
                entries.append(entry)
        check_required(self.meta, entries)
        return entries

    def _check_duplicates(self, entries: Sequence[common_pb2.DataFile], if_twice: str) -> None:
        files, root = storage(self.table_folder)
        keys = list(self.meta.primary_key)

        def look(entry: common_pb2.DataFile) -> dict[str, Any] | None:
            return first_duplicate(files, f"{root}/{entry.path}", keys)

        for duplicate in in_threads(look, entries):
            if duplicate is not None:
                raise InputError(
                    "KEY_TWICE",
                    f"the key {duplicate} stands twice in what is written to {self.meta.name}; {if_twice}",
                )


# -- where a row goes --------------------------------------------------------------------------------------------------


def bucket_of(meta: catalog_pb2.Table) -> str:
    """Spark's words for a row's bucket."""
    return f"cast(pmod(xxhash64({', '.join(map(quoted, meta.primary_key))}), {meta.buckets}) as int)"


def bucket_tasks(meta: catalog_pb2.Table, rows: DataFrame) -> DataFrame:
    """A task a bucket, of the bucket's number, sorted by the key alone: half the work of sorting by folder and key."""
    bucket = bucket_of(meta)
    astray = f"cast(raise_error(concat('LAKETX_BUCKET ', cast({bucket} as string))) as boolean)"
    return (
        rows.repartitionById(meta.buckets, sf.expr(bucket))
        .where(f"case when {bucket} = spark_partition_id() then true else {astray} end")
        .sortWithinPartitions(*[quoted(name) for name in meta.primary_key])
    )


def bucket_folders(meta: catalog_pb2.Table, rows: DataFrame, tasks: int) -> DataFrame:
    """With the folder of a partition and bucket each in PART, sorted by it and the key."""
    tasks = min(meta.buckets, tasks)
    task = sf.expr(f"cast(pmod({bucket_of(meta)}, {tasks}) as int)")
    parted = rows.withColumn(PART, bucket_folder(meta)).repartitionById(tasks, task)
    return parted.sortWithinPartitions(PART, *[quoted(name) for name in meta.primary_key])


def bucket_folder(meta: catalog_pb2.Table) -> Column:
    """A row's bucket, with a word for its partition where there are some; never NULL.

    Spark would put a step between the sort and the writer.
    """
    bucket = sf.expr(bucket_of(meta))
    if not meta.partition_columns:
        return bucket
    return sf.coalesce(sf.concat(bucket.cast("string"), sf.lit("-"), partition_text(meta)), sf.lit(""))


def bucket_in(path: str) -> int:
    """Of a file that was staged: its folder says it, or the number of the task that wrote it."""
    folder = path.rpartition(f"/{PART}=")[2].partition("/")[0] if f"/{PART}=" in path else ""
    number = folder.partition("-")[0] or path.rpartition("/")[2].removeprefix("part-").partition("-")[0]
    return int(number)


def partition_text(meta: catalog_pb2.Table) -> Column:
    """A word for a row's partition that is good in a path: Spark's own takes '' for NULL."""
    types = {column.name: column.type for column in meta.columns}
    parts = []
    for name in meta.partition_columns:
        value = sf.col(quoted(name))
        if types[name] in ("float", "double"):
            value = sf.when(value == 0, sf.lit(0.0)).otherwise(value)
        if types[name] == "timestamp":
            value = sf.unix_micros(value)  # as a text two instants of the session's zone look alike
        if types[name] != "binary":
            value = value.cast("string")
        parts.append(sf.coalesce(sf.concat(sf.lit("v"), sf.hex(value)), sf.lit("n")))
    return sf.md5(sf.concat_ws("/", *parts).cast("binary"))


# -- footers -----------------------------------------------------------------------------------------------------------


def list_parquet(files: Any, folder: str) -> list[Any]:
    """Data files below a folder, by path; what Spark and Hadoop hide stays hidden."""
    infos = files.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    found = [
        info
        for info in infos
        if info.type == fs.FileType.File
        and info.base_name.endswith(".parquet")
        and info.base_name[0] not in "._"
        and "/_temporary/" not in info.path
    ]
    return sorted(found, key=lambda info: str(info.path))


def in_threads(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(FOOTER_THREADS, thread_name_prefix="laketx-footers") as pool:
        return list(pool.map(work, items))


def read_footers(files: Any, paths: Sequence[str]) -> list[Any]:
    return in_threads(lambda path: pq.read_metadata(path, filesystem=files), paths)


def data_file(
    meta: catalog_pb2.Table, path: str, footer: Any, size: int, *, external: bool = False
) -> common_pb2.DataFile:
    """Without partition, bucket and kind. What an external file's footer says of floats is not believed."""
    entry = common_pb2.DataFile(path=path, rows=footer.num_rows, bytes=size, schema_version=meta.schema_version)
    entry.external = external
    fixed = {*meta.primary_key, *meta.partition_columns}
    types, is_old = arrow_types(footer), has_old_calendar(footer)
    leaves = top_leaves(footer)
    for at, column in enumerate(meta.columns):
        wanted = at < STATS_COLUMNS or column.name in fixed or not column.nullable
        is_known = not (is_old and column.type in DAYS_AND_TIMES)
        if wanted and is_known and column.name in leaves and fits(types[column.name], column.type):
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
    """How many rows are tombstones; 0 where the footer doesn't tell."""
    found = 0
    for at in range(footer.num_row_groups):
        chunk = footer.row_group(at).column(leaf)
        stats = chunk.statistics
        if stats is None or not stats.has_min_max or not stats.has_null_count or stats.min != stats.max:
            return 0
        found += (chunk.num_values - stats.null_count) * (stats.min == mor.TOMBSTONE)
    return found


def top_leaves(footer: Any) -> dict[str, int]:
    """Where the columns without parts stand among all leaves: a leaf's path doesn't tell `a.b` from b in a."""
    found, at = {}, 0
    for one in footer.schema.to_arrow_schema():
        if not pa.types.is_nested(one.type):
            found[one.name] = at
        at += _count_leaves(one.type)
    return found if at == len(footer.schema) else {}


def _count_leaves(kind: Any) -> int:
    if isinstance(kind, pa.ExtensionType):
        return _count_leaves(kind.storage_type)
    if not pa.types.is_nested(kind):
        return 1
    return sum(_count_leaves(kind.field(at).type) for at in range(kind.num_fields))


def has_old_calendar(footer: Any) -> bool:
    """Whether days before 1582 are the Julian calendar's: Spark moves them when it reads them, footers don't say so."""
    known = footer.metadata or {}
    return b"org.apache.spark.legacyDateTime" in known or known.get(b"org.apache.spark.version", b"3") < b"3"


def arrow_types(footer: Any) -> dict[str, Any]:
    """A dictionary is how values are stored, no type of their own."""
    schema = footer.schema.to_arrow_schema()
    return {one.name: one.type.value_type if pa.types.is_dictionary(one.type) else one.type for one in schema}


def fits(kind: Any, type_name: str) -> bool:
    """Whether a file's statistics can be taken as they stand: its type is the column's."""
    if type_name in ("timestamp", "timestamp_ntz"):
        zoned = type_name == "timestamp"
        return bool(pa.types.is_timestamp(kind) and kind.unit == "us" and (kind.tz is not None) == zoned)
    exact = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "binary": pa.binary(),
    }.get(type_name)
    if exact is not None:
        return bool(kind == exact)
    return bool(pa.types.is_decimal(kind)) and type_name == f"decimal({kind.precision},{kind.scale})"


def column_stats(footer: Any, leaf: int, column: catalog_pb2.Column) -> common_pb2.ColumnStats | None:
    """Over all row groups; None where one of them says nothing."""
    groups = [footer.row_group(at).column(leaf) for at in range(footer.num_row_groups)]
    groups = [(chunk.statistics, chunk.num_values) for chunk in groups if chunk.num_values]
    if any(stats is None for stats, _ in groups):
        return None
    found = common_pb2.ColumnStats(column_id=column.column_id)
    known = all(stats.has_null_count for stats, _ in groups)
    if known:
        found.nulls = sum(stats.null_count for stats, _ in groups)
    filled = [stats for stats, rows in groups if not (stats.has_null_count and stats.null_count == rows)]
    has_bounds = filled and all(stats.has_min_max for stats in filled)
    if has_bounds and column.type in FLOATS:  # parquet-mr writes NaN as the largest
        has_bounds = not any(math.isnan(one.min_raw) or math.isnan(one.max_raw) for one in filled)
    if has_bounds:
        low, high = min(one.min_raw for one in filled), max(one.max_raw for one in filled)
        if column.type.startswith("decimal") and isinstance(low, bytes):
            low = min((one.min_raw for one in filled), key=_signed)
            high = max((one.max_raw for one in filled), key=_signed)
        smallest, cut_min = raw_value(low, column.type, is_max=False)
        largest, cut_max = raw_value(high, column.type, is_max=True)
        if smallest is not None and largest is not None:
            found.min.CopyFrom(smallest)
            found.max.CopyFrom(largest)
            found.truncated = cut_min or cut_max
    return found


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def partition_of(meta: catalog_pb2.Table, entry: common_pb2.DataFile, files: Any, path: str) -> common_pb2.Partition:
    """Of the file's rows, which are all of one: from its statistics, or else its first row."""
    found = common_pb2.Partition()
    columns = {column.name: column for column in meta.columns}
    stats = {one.column_id: one for one in entry.stats}
    for name in meta.partition_columns:
        column = columns[name]
        one = stats.get(column.column_id)
        value = found.values.add(column=name).value
        if one is not None and one.HasField("nulls") and one.nulls == entry.rows:
            value.null = common_pb2.NULL_VALUE_UNSPECIFIED
        elif one is not None and one.HasField("min") and one.min == one.max and one.nulls == 0:
            value.CopyFrom(one.min)
        else:
            first = next(in_pages(path, files).iter_batches(batch_size=1, columns=[name]))
            at = first.schema.get_field_index(name)
            value.CopyFrom(wire_value(first.column(at)[0].as_py(), column.type))
    return found


def check_required(meta: catalog_pb2.Table, entries: Iterable[common_pb2.DataFile]) -> None:
    """No NULL where the table takes none, by what the footers count."""
    required = {column.column_id: column.name for column in meta.columns if not column.nullable}
    for entry in entries:
        for stats in entry.stats:
            if stats.column_id in required and stats.nulls:
                name = required[stats.column_id]
                raise InputError("NULL_NOT_ALLOWED", f"{stats.nulls} rows have no {name}, which {meta.name} asks for")


def first_duplicate(
    files: Any, path: str, keys: Sequence[str], rows_at_once: int = ROWS_AT_ONCE
) -> dict[str, Any] | None:
    """The first key that stands twice in a file sorted by key."""
    last: Any = None
    for batch in in_pages(path, files).iter_batches(batch_size=rows_at_once, columns=list(keys)):
        columns = [batch.column(batch.schema.get_field_index(name)) for name in keys]
        if last is not None and all(column[0] == before for column, before in zip(columns, last, strict=True)):
            return {name: column[0].as_py() for name, column in zip(keys, columns, strict=True)}
        same: Any = None
        for column in columns:
            equal = pc.equal(column.slice(1), column.slice(0, len(column) - 1))
            same = equal if same is None else pc.and_(same, equal)
        where = pc.index(same, True).as_py() if len(same) else -1
        if where >= 0:
            return {name: column[where].as_py() for name, column in zip(keys, columns, strict=True)}
        last = [column[-1] for column in columns]
    return None
