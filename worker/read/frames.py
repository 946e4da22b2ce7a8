"""A table's entries as DataFrames, read by Spark's own Parquet reader.

Clean files are read as they are. Dirty files, which have hidden rows, are a second scan, from which the blocks of
hidden rows are anti-joined (`hidden_rows`). `file_scans` builds the scans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import common_pb2
from worker.base.schema import FILE, OP, ROW_ID, ROW_INDEX, TOMBSTONE
from worker.base.storage import storage
from worker.base.table_view import TableView
from worker.base.values import PartitionKey, partition_key
from worker.read import merge_on_read as mor
from worker.read.file_identity import ScannedFile, Tag, row_ids
from worker.read.file_layouts import plain
from worker.read.file_scans import FileScans
from worker.read.hidden_rows import Span, hidden_rows
from worker.read.position_blocks import Blocks, blocks_of, positions_of, together, within

IS_IMAGE: Final = f"coalesce({OP}, 0) != {TOMBSTONE}"  # base files have no such column


def frame_of(table: TableView, entries: Iterable[common_pb2.LiveEntry], *, with_origin: bool = False) -> DataFrame:
    """The visible rows of the entries, under the view's schema."""
    return Frames(table, with_origin=with_origin).shown(list(entries))


class Frames:
    """Makes DataFrames of the entries of one table, all under one of its schemas."""

    def __init__(self, table: TableView, *, with_origin: bool = False) -> None:
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
        return self._union(self._appended(self._with_hidden(files, sets)))

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

    def _with_hidden(self, files: Sequence[ScannedFile], sets: Sequence[common_pb2.LiveEntry]) -> Iterator[ScannedFile]:
        """The files with the ids of their hidden rows; a file without visible rows is left out."""
        by_partition: dict[PartitionKey, list[common_pb2.LiveEntry]] = defaultdict(list)
        for entry in sets:
            by_partition[partition_key(entry.delete_set.partition)].append(entry)
        hiding: dict[PartitionKey, list[ScannedFile]] = defaultdict(list)
        for one in files:
            key = partition_key(one.file.partition) if by_partition else ()
            if key in by_partition:
                hiding[key].append(one)
            else:
                yield one
        for key, listed in hiding.items():
            yield from self._hide(listed, by_partition[key])

    def _hide(self, files: list[ScannedFile], sets: list[common_pb2.LiveEntry]) -> Iterator[ScannedFile]:
        files = sorted(files, key=lambda one: -one.data_version)
        hidden = self.hidden_ids([(one.file, one.data_version) for one in files], sets)
        for one, found in zip(files, hidden, strict=True):
            if len(found) < one.file.rows or one.file.carries_row_ids:
                yield replace(one, hidden=found or None)

    def hidden_ids(
        self, newest_first: Iterable[tuple[common_pb2.DataFile, int]], sets: Iterable[common_pb2.LiveEntry]
    ) -> Iterator[BitMap64]:
        """The ids that delete sets hide in each file.

        Files come by descending data version, so more and more sets take part.
        """
        waiting = sorted(sets, key=lambda entry: entry.data_version)
        hidden = BitMap64()
        for file, version in newest_first:
            while waiting and waiting[-1].data_version > version:
                hidden |= self.bitmap(waiting.pop().delete_set)
            yield within(hidden, *row_ids(file))

    def bitmap(self, delete_set: common_pb2.DeleteSet) -> BitMap64:
        payload = delete_set.bitmap
        if not payload:
            files, path = storage(self.scans.path(delete_set.path))
            with files.open_input_stream(path) as stream:
                payload = stream.read()
        return BitMap64.deserialize(payload)

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
        buckets: dict[tuple[PartitionKey, int], list[ScannedFile]] = defaultdict(list)
        for one in files:
            buckets[partition_key(one.file.partition), one.file.bucket].append(one)
        clean: list[ScannedFile] = []
        dirty: list[list[ScannedFile]] = []
        for bucket in buckets.values():
            if len({one.data_version for one in bucket}) == 1:
                clean += bucket  # within one version no key comes twice
            else:
                dirty.append(bucket)
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
        work = [mor.BucketToMerge(tuple(self._key_file(one, at[id(one.file)]) for one in bucket)) for bucket in buckets]
        hidden = mor.hidden_by_key(self._spark, [Span(one.number, *_places(one)) for one in files], work)
        if hidden is None:
            return None
        return [
            self.scans.select(part, hidden.without(rows, self.scans.number(part), ROW_INDEX)) for part, rows in parts
        ]

    def _key_file(self, one: ScannedFile, at: int) -> mor.KeyFile:
        ids = {column.name: column.column_id for column in self._meta.columns}
        wanted = [ids[name] for name in self._meta.primary_key]
        names = {column.column_id: column.name for column in self.scans.layouts.columns_of(one.file)}
        return mor.KeyFile(
            self.scans.path(one.file.path),
            one.file.rows,
            one.data_version,
            at,
            tuple(names[column_id] for column_id in wanted),
            one.file.kind == common_pb2.FILE_KIND_DELTA,
        )


def _places(one: ScannedFile) -> tuple[int, int]:
    """The first and the last position of its rows in the file."""
    return 0, max(one.file.rows, 1) - 1
