"""Rows become Parquet files under a transaction's folder, and files become entries with statistics.

    <warehouse>/<table id>/<transaction id>/0/part-….parquet                 an append table
    <warehouse>/<table id>/<transaction id>/0/part-00003-….parquet           a bucket each, by the task's number
    <warehouse>/<table id>/<transaction id>/0/_part=3-5d41…/part-….parquet   a partition and bucket each

Spark writes; what its committed job left in the folder counts, so a task that ran twice counts once. The driver reads
the footers: rows, bytes, smallest and largest values, and which partition a file is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.footers import check_required, data_file, in_threads, list_parquet, partition_of, read_footers
from worker.base.parquet_options import codec_of
from worker.base.schema import PART, quoted
from worker.base.session import with_settings
from worker.base.storage import in_pages, remove_folder, storage
from worker.write.not_null import guarded
from worker.write.row_level import key_sets
from worker.write.small_writes import collected, write_few
from worker.write.spark_failures import explain

SPARK_CODECS: Final = {"lz4": "lz4_raw", "uncompressed": "none"}
ROWS_AT_ONCE: Final = 1 << 17
AT: Final = "_laketx_at"
TASKS_LEAST: Final = 64  # so many buckets are a task each, however few partitions the session shuffles to
MICROSECONDS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
WRITE_SETTINGS: Final = MICROSECONDS | {
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
CONFLICTS_AT_COMMIT: Final = "mapreduce.fileoutputcommitter.algorithm.version"


# -- what a transaction stages -----------------------------------------------------------------------------------------


@dataclass
class Staged:
    """The entries staged for one table of a transaction."""

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
        """The next file name, relative to the table's folder."""
        return f"{self.txn_id}/{next(self._numbers)}"

    def write_append(self, rows: DataFrame, *, in_order: bool = False) -> Staged:
        """Writes rows of an append table, with `_row_id` if they keep their ids; the files keep an existing order."""
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
        if_twice: str = "with order_by the last one wins",
    ) -> Staged:
        """Writes rows of a primary-key table, sorted by key within their buckets; with `_op` unless they are base
        files.

        A duplicate key is an error, whose text ends with the solution, `if_twice`; `may_repeat` skips the check if
        there can be none. The driver writes up to `few` rows itself.
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
        """Writes the rows by the driver; None if there are more."""
        found = collected(rows.withColumn(PART, bucket_folder(self.meta)), few)
        if found is None:
            return None
        name = self.next_name()
        write_few(self.meta, found, self.table_folder, name)
        return self._entries(name, kind)

    def write_ordered(self, rows: DataFrame, kind: common_pb2.FileKind.ValueType) -> Staged:
        """Writes rows as they lie in their Spark partitions, by PART if it is there; base files with it."""
        return Staged(files=self._write(rows, PART in rows.columns, kind))

    def _write(self, rows: DataFrame, parted: bool, kind: common_pb2.FileKind.ValueType) -> list[common_pb2.DataFile]:
        name = self.next_name()
        writer = (
            rows.write.mode("error")
            .option("compression", codec_of(self.meta, SPARK_CODECS))
            .option(CONFLICTS_AT_COMMIT, "1")  # a task's files come into place with the job, not before
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        )
        if kind != common_pb2.FILE_KIND_UNSPECIFIED:
            writer = writer.option("maxRecordsPerFile", "0")  # a bucket's keys lie in one file, sorted
        if parted:
            writer = writer.partitionBy(PART)
        try:
            with with_settings(rows.sparkSession, WRITE_SETTINGS):
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
                    f"the key {duplicate} appears twice in the rows written to {self.meta.name}; {if_twice}",
                )


# -- where a row goes --------------------------------------------------------------------------------------------------


def bucket_of(meta: catalog_pb2.Table) -> str:
    """A row's bucket as a Spark expression."""
    return f"cast(pmod(xxhash64({', '.join(map(quoted, meta.primary_key))}), {meta.buckets}) as int)"


def bucket_tasks(meta: catalog_pb2.Table, rows: DataFrame) -> DataFrame:
    """One Spark task per bucket, sorted by key only: half the cost of sorting by folder and key."""
    bucket = bucket_of(meta)
    astray = f"cast(raise_error(concat('LAKETX_BUCKET ', cast({bucket} as string))) as boolean)"
    return (
        rows.repartitionById(meta.buckets, sf.expr(bucket))
        .where(f"case when {bucket} = spark_partition_id() then true else {astray} end")
        .sortWithinPartitions(*[quoted(name) for name in meta.primary_key])
    )


def bucket_folders(meta: catalog_pb2.Table, rows: DataFrame, tasks: int) -> DataFrame:
    """Adds the folder of partition and bucket as PART, and sorts by it and the key."""
    tasks = min(meta.buckets, tasks)
    task = sf.expr(f"cast(pmod({bucket_of(meta)}, {tasks}) as int)")
    parted = rows.withColumn(PART, bucket_folder(meta)).repartitionById(tasks, task)
    return parted.sortWithinPartitions(PART, *[quoted(name) for name in meta.primary_key])


def bucket_folder(meta: catalog_pb2.Table) -> Column:
    """A row's bucket, with a text for its partition if the table has partitions; never NULL.

    With a NULL, Spark would insert a step between the sort and the writer.
    """
    bucket = sf.expr(bucket_of(meta))
    if not meta.partition_columns:
        return bucket
    return sf.coalesce(sf.concat(bucket.cast("string"), sf.lit("-"), partition_text(meta)), sf.lit(""))


def bucket_in(path: str) -> int:
    """The bucket of a staged file, from its folder or the number of the task that wrote it."""
    folder = path.rpartition(f"/{PART}=")[2].partition("/")[0] if f"/{PART}=" in path else ""
    number = folder.partition("-")[0] or path.rpartition("/")[2].removeprefix("part-").partition("-")[0]
    return int(number)


def partition_text(meta: catalog_pb2.Table) -> Column:
    """A text for a row's partition that is valid in a path; Spark's own text reads '' as NULL."""
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


# -- what is written --------------------------------------------------------------------------------------------------


def first_duplicate(
    files: Any, path: str, keys: Sequence[str], rows_at_once: int = ROWS_AT_ONCE
) -> dict[str, Any] | None:
    """The first key that appears twice in a file sorted by key."""
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
