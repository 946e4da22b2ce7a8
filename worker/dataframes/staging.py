"""Rows become Parquet files under a transaction's folder, and files become entries with statistics.

    <warehouse>/<table id>/<transaction id>/0/part-….parquet                 an append table
    <warehouse>/<table id>/<transaction id>/0/part-00003-….parquet           a bucket each, by the task's number
    <warehouse>/<table id>/<transaction id>/0/_part=3-5d41…/part-….parquet   a partition and bucket each

Spark writes. In a session with the jar of the catalog each task writes to where its files stay, and the files of one
attempt of each task count: the driver gets their names, renames nothing and lists nothing. Without the jar, what
Spark's committed job left in the folder counts. The driver reads the footers: rows, bytes, smallest and largest values,
and which partition a file is of.
"""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.write.partition_files import write_parts
from worker.arrow.write.row_level import key_sets
from worker.base.schema import FILE_IDS, PART, quoted
from worker.commit.not_null import guarded
from worker.commit.spark_failures import explain
from worker.commit.staged_files import check_duplicates, entries_in, entries_of
from worker.commit.stages import Stage, Staged
from worker.dataframes.small_writes import collected
from worker.files.parquet_options import codec_of
from worker.spark.column_types import FIELD_ID
from worker.spark.session import files_by_jar, has_jar, with_settings

SPARK_CODECS: Final = {"lz4": "lz4_raw", "uncompressed": "none"}
AT: Final = "_laketx_at"
# So many buckets are a task each, however few partitions the session shuffles to.
TASKS_LEAST: Final = common_pb2.LIMIT_BUCKETS_A_TASK
MICROSECONDS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
WRITE_SETTINGS: Final = MICROSECONDS | {
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
CONFLICTS_AT_COMMIT: Final = "mapreduce.fileoutputcommitter.algorithm.version"


# -- what Spark writes


def write_append(stage: Stage, rows: DataFrame, *, in_order: bool = False) -> Staged:
    """Writes rows of an append table, with `_row_id` if they keep their ids; the files keep an existing order."""
    rows = guarded(rows, stage.meta)
    parted = bool(stage.meta.partition_columns)
    if parted and in_order:
        placed = rows.withColumn(AT, sf.monotonically_increasing_id()).withColumn(PART, partition_text(stage.meta))
        rows = placed.sortWithinPartitions(PART, AT).drop(AT)
    elif parted:
        rows = rows.withColumn(PART, partition_text(stage.meta)).sortWithinPartitions(PART)
    return Staged(files=_write(stage, rows, parted, common_pb2.FILE_KIND_UNSPECIFIED))


def write_keyed(
    stage: Stage,
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
    there can be none. The driver writes up to `few` rows itstage.
    """
    rows = guarded(rows, stage.meta)
    kind = common_pb2.FILE_KIND_BASE if is_base else common_pb2.FILE_KIND_DELTA
    files = _write_few(stage, rows, few, kind) if few else None
    if files is None:
        files = _write_buckets(stage, rows, kind)
    if may_repeat:
        check_duplicates(stage, files, if_twice)
    keys = [] if is_base else key_sets(stage.meta, stage.table_folder, files)
    return Staged(files=files, key_sets=keys)


def _write_buckets(stage: Stage, rows: DataFrame, kind: common_pb2.FileKind.ValueType) -> list[common_pb2.DataFile]:
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
    if stage.meta.partition_columns or stage.meta.buckets > max(TASKS_LEAST, tasks):
        return _write(stage, bucket_folders(stage.meta, rows, tasks), True, kind)
    return _write(stage, bucket_tasks(stage.meta, rows), False, kind)


def _write_few(
    stage: Stage, rows: DataFrame, few: int, kind: common_pb2.FileKind.ValueType
) -> list[common_pb2.DataFile] | None:
    """Writes the rows by the driver; None if there are more."""
    found = collected(rows.withColumn(PART, bucket_folder(stage.meta)), few)
    if found is None:
        return None
    name = stage.next_name()
    return write_parts(stage, found, name, kind)


def write_ordered(stage: Stage, rows: DataFrame, kind: common_pb2.FileKind.ValueType) -> Staged:
    """Writes rows as they lie in their Spark partitions, by PART if it is there; base files with it."""
    return Staged(files=_write(stage, rows, PART in rows.columns, kind))


def _write(
    stage: Stage, rows: DataFrame, parted: bool, kind: common_pb2.FileKind.ValueType
) -> list[common_pb2.DataFile]:
    name = stage.next_name()
    folder = f"{stage.table_folder}/{name}"
    try:
        if has_jar(rows.sparkSession):
            paths = files_by_jar(rows, stage.meta.SerializeToString(), folder)
            return entries_of(stage, [f"{name}/{path}" for path in paths], kind)
        _write_and_rename(rows, stage.meta, folder, parted, kind)
    except PySparkException as error:
        raise explain(error, stage.meta) or error from error
    return entries_in(stage, name, kind)


def _write_and_rename(
    rows: DataFrame, meta: catalog_pb2.Table, folder: str, parted: bool, kind: common_pb2.FileKind.ValueType
) -> None:
    """As Spark writes by itself: elements of arrays, keys and values of maps get no field ids."""
    for beside in set(FILE_IDS) & set(rows.columns):
        rows = rows.withMetadata(beside, {FIELD_ID: FILE_IDS[beside]})
    writer = (
        rows.write.mode("error")
        .option("compression", codec_of(meta, SPARK_CODECS))
        .option(CONFLICTS_AT_COMMIT, "1")  # a task's files come into place with the job, not before
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    )
    if kind != common_pb2.FILE_KIND_UNSPECIFIED:
        writer = writer.option("maxRecordsPerFile", "0")  # a bucket's keys lie in one file, sorted
    if parted:
        writer = writer.partitionBy(PART)
    with with_settings(rows.sparkSession, WRITE_SETTINGS):
        writer.parquet(folder)


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
