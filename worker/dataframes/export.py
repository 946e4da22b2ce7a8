"""Writes the rows of a version as plain Parquet files into a user's folder, readable without LakeTX."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from metaservice.client import uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.logs import tell
from worker.base.schema import quoted
from worker.connection.table_view import TableView
from worker.connection.versions import held_version
from worker.dataframes import scan
from worker.files.parquet_options import codec_of
from worker.files.storage import make_folder, storage
from worker.spark.column_types import as_clock
from worker.spark.jobs import explain, failed_tasks_awaited, progress
from worker.spark.session import with_settings

MICROSECONDS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
SPARK_CODECS: Final = {"lz4": "lz4_raw", "uncompressed": "none"}
UNFINISHED: Final = "_laketx_export-"  # readers of Parquet skip folders that begin so
SKIPPED: Final = ("_", ".")
SUFFIX: Final = ".parquet"


def export(
    table: TableView,
    path: str,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    commits_ago: int | None = None,
    where: str | Column | None = None,
    partitioned: bool = True,
    overwrite: bool = False,
) -> int:
    """Write the rows and return their version. Old files are removed when the new ones are complete."""
    if meet(path, table.lake.warehouse):
        raise InputError("PATH_INVALID", f"{path} overlaps with the lake's own files in {table.lake.warehouse}")
    target = find_target(path, overwrite=overwrite)
    with held_version(table, version, timestamp, commits_ago) as held:
        then = table.at(held)
        meta, entries = then.meta, scan.plan(then, held)
        refuse_read_files(target, entries)
        names = list(meta.partition_columns) if partitioned else []
        check_partitions(meta, names, entries)
        rows = scan.read_where(table, held, where, is_chosen=True)
        tell("export begins", table=meta.name, version=held)
        spark = rows.sparkSession
        with (
            target.filled() as folder,
            progress(spark, f"export {meta.name}"),
            failed_tasks_awaited(spark, f"laketx-export-{uuid7()}"),  # each could make the removed folder again
        ):
            try:
                write(named_in_utc(rows, names), folder, names, codec_of(meta, SPARK_CODECS))
            except PySparkException as error:
                raise explain(error, meta) or error from error
        tell("export is complete", table=meta.name, version=held)
        return held


def named_in_utc(rows: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Names the folders of instants in UTC, `at=2026-10-25 00:30:00Z`: in the session's zone two of them may look
    alike.
    """
    for field in rows.schema.fields:
        if field.name in partition_by and isinstance(field.dataType, t.TimestampType):
            clock = as_clock(f"unix_micros({quoted(field.name)})")
            rows = rows.withColumn(field.name, sf.expr(f"concat(cast({clock} as string), 'Z')"))
    return rows


def write(rows: DataFrame, folder: str, partition_by: Sequence[str], codec: str) -> None:
    writer = (
        rows.write.mode("append")
        .option("compression", codec)
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    )
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    with with_settings(rows.sparkSession, MICROSECONDS):
        writer.parquet(folder)


# -- what can't be written so ------------------------------------------------------------------------------------------


def check_partitions(meta: catalog_pb2.Table, names: Sequence[str], entries: Iterable[common_pb2.LiveEntry]) -> None:
    """Refuse partition values that a folder can't name: an empty text reads as NULL, and bytes need not be text."""
    instead = "partitioned=False keeps all columns in the files"
    if names and len(names) == len(meta.columns):
        raise InputError("PARTITION_INVALID", f"{meta.name} has no column beside its partitions: {instead}")
    if any(column.name in names and column.type == "binary" for column in meta.columns):
        raise InputError(
            "PARTITION_INVALID", f"{meta.name} is partitioned by bytes, which can't name a folder: {instead}"
        )
    for entry in entries if names else ():
        for value in entry.file.partition.values:
            if value.value.WhichOneof("kind") == "text" and not value.value.text:
                raise InputError("PARTITION_INVALID", f"an empty {value.column} would be read as NULL: {instead}")


def refuse_read_files(target: Target, entries: Iterable[common_pb2.LiveEntry]) -> None:
    """Refuse a target that contains imported files of the table."""
    for entry in entries:
        if entry.file.external and meet(target.path, entry.file.path):
            raise InputError("PATH_INVALID", f"{entry.file.path} belongs to the table itself, and would be replaced")


# -- where it goes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The target folder, and the files that it contains."""

    path: str
    files: Any
    root: str
    old: tuple[str, ...]

    @contextmanager
    def filled(self) -> Iterator[str]:
        """Yield the folder to write to. It is complete when the block ends well, and unchanged otherwise."""
        inside = f"/{UNFINISHED}{uuid7()}" if self.old else ""
        try:
            yield self.path + inside
            if self.old:
                self._replace(inside)
        except BaseException:
            if not inside:
                with suppress(OSError):
                    self.files.delete_dir_contents(self.root)
            raise
        finally:
            if inside:
                with suppress(OSError):
                    self.files.delete_dir(self.root + inside)

    def _replace(self, inside: str) -> None:
        for path in self.old:
            self.files.delete_file(path)
        begin = self.root + inside
        for path in list_files(self.files, begin):
            new = self.root + path.removeprefix(begin)
            make_folder(self.files, new.rpartition("/")[0])
            self.files.move(path, new)
        for folder in sorted(list_folders(self.files, self.root), reverse=True):
            if not self.files.get_file_info(fs.FileSelector(folder)):
                self.files.delete_dir(folder)


def meet(path: str, other: str) -> bool:
    """Return whether two paths or URIs are the same folder, or one contains the other."""
    (files, path_inside), (other_files, other_inside) = storage(path), storage(other)
    folder, other_folder = whole(files, path_inside), whole(other_files, other_inside)
    return bool(files.type_name == other_files.type_name) and (
        folder.startswith(other_folder) or other_folder.startswith(folder)
    )


def whole(files: Any, path: str) -> str:
    """Return a path to compare: without links, with a slash at the end."""
    real = os.path.realpath(path) if files.type_name == "local" else path
    return f"{real.rstrip('/')}/"


def find_target(path: str, *, overwrite: bool) -> Target:
    """Return the target. Refuse it if it contains anything but Parquet files that may be replaced."""
    files, root = storage(path)
    root = root.rstrip("/")
    kind = files.get_file_info(root).type
    if kind == fs.FileType.File:
        raise InputError("PATH_INVALID", f"{path} is a file; an export needs a folder")
    old = list_files(files, root)
    if old and not overwrite:
        raise InputError("PATH_NOT_EMPTY", f"{path} has {len(old)} files; with overwrite=True they are replaced")
    for file in old:
        name = file.rpartition("/")[2]
        if not name.endswith(SUFFIX) and not name.startswith(SKIPPED):
            raise InputError("PATH_INVALID", f"{file} is not a Parquet file: an export replaces only Parquet files")
    return Target(path if "://" in path or path.startswith("file:") else root, files, root, tuple(old))


def list_files(files: Any, root: str) -> list[str]:
    infos = files.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    return [info.path for info in infos if info.type == fs.FileType.File]


def list_folders(files: Any, root: str) -> list[str]:
    infos = files.get_file_info(fs.FileSelector(root, recursive=True))
    return [info.path for info in infos if info.type == fs.FileType.Directory]
