"""A table's entries as DataFrames, read by Spark's own Parquet reader.

Clean files are read as they are. Dirty files, which have hidden rows, are a second scan, from which the blocks of
hidden rows are anti-joined (`hidden_rows`). `file_scans` builds the scans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import common_pb2
from worker.base.schema import FILE, OP, ROW_ID, ROW_INDEX, TOMBSTONE
from worker.base.table_view import TableView
from worker.read import merge_on_read
from worker.read.file_identity import ScannedFile, Tag, row_ids
from worker.read.file_layouts import plain
from worker.read.file_scans import FileScans
from worker.read.hidden_ids import with_hidden_ids
from worker.read.hidden_rows import Span, hidden_rows
from worker.read.key_merge import bucket_to_merge, by_bucket
from worker.read.position_blocks import Blocks, blocks_of, positions_of, together

IS_IMAGE: Final = f"coalesce({OP}, 0) != {TOMBSTONE}"  # base files have no such column


def frame_of(table: TableView, entries: Iterable[common_pb2.LiveEntry], *, with_origin: bool = False) -> DataFrame:
    """The visible rows of the entries, under the view's schema."""
    return Frames(table, with_origin=with_origin).shown(list(entries))


class Frames:
    """Makes DataFrames of the entries of one table, all under one of its schemas."""

    def __init__(self, table: TableView, *, with_origin: bool = False) -> None:
        self._table = table
        self._spark = table.spark
        self._meta = table.meta
        self._with_origin = with_origin
        self.scans = FileScans(table, with_origin=with_origin)
        self.target = self.scans.target

    # -- what a table shows

    def shown(
        self,
        entries: Sequence[common_pb2.LiveEntry],
        tag: Callable[[common_pb2.DataFile], Tag] | None = None,
    ) -> DataFrame:
        """The visible rows of a snapshot's entries, with their files' tags in the columns TAGS."""
        files = [
            ScannedFile(entry.file, entry.data_version, tag=None if tag is None else tag(entry.file))
            for entry in entries
            if entry.WhichOneof("entry") == "file"
        ]
        if self._meta.primary_key:
            return self._union(self._keyed(files))
        sets = [entry for entry in entries if entry.WhichOneof("entry") == "delete_set"]
        return self._union(self._appended(with_hidden_ids(self._table, files, sets)))

    def written(self, files: Iterable[tuple[common_pb2.DataFile, Tag]], *, with_op: bool = False) -> DataFrame:
        """All rows in files, hidden or not, with their tags; including the tombstones of deltas and their column."""
        parts = self.scans.parts([ScannedFile(file, 0, tag=tag) for file, tag in files])
        scanned = [(part, self.scans.native(part, with_op=with_op)) for part in parts]
        return self._union([self.scans.select(part, rows, with_op=with_op) for part, rows in scanned])

    def _union(self, frames: Iterable[DataFrame]) -> DataFrame:
        listed = list(frames)
        if not listed:
            return self._empty()
        return reduce(DataFrame.unionAll, listed)

    def _empty(self) -> DataFrame:
        fields = [t.StructField(one.name, one.dataType) for one in self.target.fields]
        if self._with_origin:
            fields.append(t.StructField(FILE, t.StringType()))
            if not self._meta.primary_key:
                fields.append(t.StructField(ROW_ID, t.LongType()))
        columns = [sf.lit(None).cast(plain(one.dataType)).alias(one.name) for one in fields]
        return self._spark.range(1).filter(sf.lit(False)).select(*columns)  # Spark sees that there is nothing to run

    # -- append tables

    def _appended(self, files: Iterable[ScannedFile]) -> Iterator[DataFrame]:
        listed = list(files)
        for part in self.scans.parts([one for one in listed if one.hidden is None]):
            yield self.scans.select(part, self.scans.native(part))
        for part, rows in self.scans.told_parts([one for one in listed if one.hidden is not None]):
            by_id = part.has_own_ids
            spans = [Span(one.number, *(row_ids(one.file) if by_id else _places(one))) for one in part.files]
            blocks = together(self._blocks(one, at, by_id) for at, one in enumerate(part.files))
            hidden = hidden_rows(self._spark, spans, blocks)
            position = self.scans.row_id(part) if by_id else ROW_INDEX
            yield self.scans.select(part, hidden.without(rows, self.scans.number(part), position))

    @staticmethod
    def _blocks(one: ScannedFile, at: int, by_id: bool) -> Blocks:
        positions = positions_of(one.hidden or BitMap64())
        return blocks_of(positions if by_id else positions - one.file.first_row_id, at)

    # -- primary-key tables

    def _keyed(self, files: Sequence[ScannedFile]) -> Iterator[DataFrame]:
        clean, dirty = by_bucket(files)
        if dirty:
            merged = self._merged(dirty)
            if merged is None:
                clean += [one for bucket in dirty for one in bucket]
            else:
                yield from merged
        for part in self.scans.parts(clean):
            has_op = any(one.file.kind == common_pb2.FILE_KIND_DELTA for one in part.files)
            rows = self.scans.native(part, with_op=has_op)
            yield self.scans.select(part, rows.filter(IS_IMAGE).drop(OP) if has_op else rows)

    def _merged(self, buckets: list[list[ScannedFile]]) -> list[DataFrame] | None:
        """The rows after merging by key; None if no row is hidden."""
        parts = self.scans.told_parts([one for bucket in buckets for one in bucket])
        files = [one for part, _ in parts for one in part.files]
        at = {id(one.file): place for place, one in enumerate(files)}
        written = self.scans.layouts.written
        work = [bucket_to_merge(self._table, written, bucket, lambda one: at[id(one.file)]) for bucket in buckets]
        hidden = merge_on_read.hidden_by_key(self._spark, [Span(one.number, *_places(one)) for one in files], work)
        if hidden is None:
            return None
        return [
            self.scans.select(part, hidden.without(rows, self.scans.number(part), ROW_INDEX)) for part, rows in parts
        ]


def _places(one: ScannedFile) -> tuple[int, int]:
    """The first and the last position of its rows in the file."""
    return 0, max(one.file.rows, 1) - 1
