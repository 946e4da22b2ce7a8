"""The rows of one version, read by threads of this process: Parquet to Arrow, without Spark.

Each source is a file, or a bucket of a primary-key table in which newer rows hide older ones. What a reader doesn't
need isn't read: other partitions and files by the service's plan, other buckets by the hash of the key, other row
groups by their bounds, other columns.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from metaservice.client import is_partial
from metaservice.shared.column_types import BLOOM_COLUMNS
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.expressions.conditions import Predicate, columns_in, conjuncts
from worker.arrow.scan.bucket_vectors import (
    INLINED_AT_ONCE,
    as_one,
    by_bucket,
    hidden_rows,
    inlined_runs,
    runs_together,
)
from worker.arrow.scan.chosen_rows import Choice, choice
from worker.arrow.scan.deleted_row_ids import with_hidden_ids
from worker.arrow.scan.file_rows import InputFile, input_file, read_tables
from worker.arrow.scan.inlined_rows import content_of, joined
from worker.arrow.scan.key_buckets import buckets_of
from worker.arrow.scan.late_materialization import is_small, read_chosen
from worker.arrow.scan.plans import ScannedFile, VersionPlan, WrittenSchemas, entries_of
from worker.arrow.scan.row_groups import row_groups
from worker.arrow.scan.small_files import chosen_together, in_runs
from worker.base.in_parallel import Source, in_parallel
from worker.base.lazy_modules import LazyModule
from worker.base.schema import OP, ROW_ID, SET, TOMBSTONE
from worker.connection.table_view import TableView
from worker.files.arrow_types import arrow_schema, column_field
from worker.files.position_blocks import Numbers, Positions, places_of, positions_of
from worker.files.storage import is_local, storage

if TYPE_CHECKING:
    from worker.arrow.scan import image_folds
else:
    image_folds = LazyModule("worker.arrow.scan.image_folds")  # it loads polars

REMOTE_THREADS: Final = 16
ITEMS_AHEAD: Final = 2
ENTRIES_UNPRUNED: Final = 8  # so few are opened sooner than the service says which of them a condition rules out
VERSION: Final = "_laketx_version"  # the data version of an image's file
T = TypeVar("T")

NOTHING: Final[Positions] = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class FileToRead:
    """A file, the positions of its hidden rows, and whether tombstones are still among the others."""

    file: InputFile
    hidden: Positions = field(default_factory=lambda: NOTHING)
    has_tombstones: bool = False
    is_current: bool = False  # its names mean what they mean in the table


class VersionRows:
    """The rows of a table at the version of the view's schema. Reading twice gives the same rows.

    `planned` spares the first read its plan, if that has the same condition, or a narrower one and the entries are few.
    """

    def __init__(self, table: TableView, version: int, planned: VersionPlan | None = None) -> None:
        self._table = table
        self._version = version
        self._planned = planned
        self._written = WrittenSchemas(table)
        self._is_partial = is_partial(table.meta)
        self._last_choice: tuple[Predicate, Choice] | None = None
        self._stored = arrow_schema(table.meta, with_op=True, with_row_id=True, with_set=self._is_partial)
        self.schema = shown_schema(table)

    def tables(
        self, columns: Sequence[str], where: Predicate | None, memory_bytes: float, near: Predicate | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows for which the condition is true, in parts of at most about `memory_bytes`.

        Files and row groups without rows for which `near`, by default the condition, is true are left out.
        """
        shown = pa.schema([self.schema.field(name) for name in columns])

        def read(source: Source[FileToRead]) -> Iterator[pa.Table]:
            for rows in self._rows(source(), columns, where, memory_bytes, near or where):
                yield _as_shown(rows.select(list(columns)), shown)

        sources = [partial(read, source) for source in in_runs(self._sources(near or where), self._threads())]
        return in_parallel(sources, self._threads(), ITEMS_AHEAD if memory_bytes < float("inf") else 0)

    def visit(
        self,
        entries: Sequence[common_pb2.LiveEntry],
        read: Callable[[FileToRead], Iterable[T]],
        where: Predicate | None,
    ) -> Iterator[T]:
        """Yield the results of `read` for the files of a snapshot's entries, file by file; several threads call it."""
        sources = [partial(_each, read, source) for source in self.sources(entries, where)]
        return in_parallel(sources, self._threads(), ITEMS_AHEAD)

    def files_near(self, where: Predicate) -> list[ScannedFile]:
        """The files that may have an image of a key for which the condition is true."""
        files = _files(self._entries(where))
        buckets = buckets_of(self._table.meta, where)
        return files if buckets is None else [scanned for scanned in files if scanned.file.bucket in buckets]

    def images(self, files: Sequence[ScannedFile], columns: Sequence[str], where: Predicate) -> Iterator[pa.Table]:
        """Yield images and tombstones in these files, hidden or not; of large files, those for which `where` is true.

        They have `_op` and VERSION, and SET if images may set single columns. The newest of a key in a partition is
        what it has there, or all of them are folded, so nothing else of its bucket need be read. Inlined files are
        read together.
        """

        shown = self.images_schema(columns)
        names = shown.names[:-1]

        def read(run: list[ScannedFile]) -> Iterator[pa.Table]:
            scanned = as_one(run)
            whole = FileToRead(self._input(scanned), is_current=self._is_current(scanned))
            versions = np.repeat([each.data_version for each in run], [each.file.rows for each in run])
            for rows in self.visible(whole, names, None if is_small(whole.file) else where, float("inf")):
                of_rows = versions if len(run) > 1 else np.full(len(rows), scanned.data_version, np.int64)
                yield _as_shown(rows.select(names).append_column(VERSION, pa.array(of_rows, pa.int64())), shown)

        return in_parallel([partial(read, run) for run in runs_together(files)], self._threads(), 0)

    def images_schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the schema of images with these columns."""
        own = {OP: pa.int8(), **({SET: pa.binary()} if self._is_partial else {}), VERSION: pa.int64()}
        return pa.schema([*(self.schema.field(name) for name in columns), *map(pa.field, own, own.values())])

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Return no rows, with these columns."""
        return pa.schema([self.schema.field(name) for name in columns]).empty_table()

    def count(self, where: Predicate | None) -> int:
        """Return the number of rows for which the condition is true."""
        if where is not None and not columns_in(where):  # it is TRUE or FALSE for all rows
            one_row = pa.table({VERSION: [self._version]})
            return self.count(None) if len(self._choice(where)(one_row)) else 0

        def count_in(file: FileToRead) -> Iterator[int]:
            if where is None and not file.has_tombstones and file.file.hidden is None:
                yield file.file.rows - len(file.hidden)
                return
            for rows in self.visible(file, [], where, float("inf")):
                yield len(rows)

        sources = [partial(_each, count_in, source) for source in self._sources(where)]
        return sum(in_parallel(sources, self._threads(), 0))

    @property
    def table(self) -> TableView:
        return self._table

    def _threads(self) -> int:
        files, _ = storage(self._table.folder)
        return len(os.sched_getaffinity(0)) if is_local(files) else REMOTE_THREADS

    # -- what is read

    def _sources(self, where: Predicate | None) -> list[Source[FileToRead]]:
        entries = self._entries(where)
        if self._table.meta.primary_key:
            return self._keyed(_files(entries), where, self._merged_together)
        return self._together(self._appended_files(entries))

    def _entries(self, where: Predicate | None) -> list[common_pb2.LiveEntry]:
        planned, self._planned = self._planned, None  # large tables have many: they are not kept
        if planned is not None and planned.is_whole and _serves(planned, where):
            return planned.entries
        return entries_of(self._table, self._version, where)

    def sources(
        self, entries: Sequence[common_pb2.LiveEntry], where: Predicate | None = None
    ) -> list[Source[FileToRead]]:
        """Return the files to read for the entries of a snapshot."""
        if self._table.meta.primary_key:
            return self._keyed(_files(entries), where, self._merged)
        return [partial(iter, [self._appended(scanned)]) for scanned in self._appended_files(entries)]

    def _appended_files(self, entries: Sequence[common_pb2.LiveEntry]) -> list[ScannedFile]:
        files = _files(entries)
        if len(files) == len(entries):
            return files
        sets = [entry for entry in entries if entry.HasField("delete_set")]
        return list(with_hidden_ids(self._table, files, sets))

    def _together(self, files: Sequence[ScannedFile]) -> list[Source[FileToRead]]:
        """Return the files to read. Inlined files without hidden rows are joined, so the begin of each is unknown."""
        alone: list[ScannedFile] = []
        groups: dict[tuple[int, bool], list[ScannedFile]] = defaultdict(list)
        for scanned in files:
            file = scanned.file
            group = groups[file.schema_version, file.carries_row_ids]
            (group if file.inlined and scanned.hidden is None else alone).append(scanned)
        sources: list[Source[FileToRead]] = [partial(iter, [self._appended(scanned)]) for scanned in alone]
        return sources + [
            partial(self._joined, group[begin : begin + INLINED_AT_ONCE])
            for group in groups.values()
            for begin in range(0, len(group), INLINED_AT_ONCE)
        ]

    def _joined(self, files: Sequence[ScannedFile]) -> Iterator[FileToRead]:
        first = self._appended(files[0])
        content = joined([scanned.file.content for scanned in files])
        yield replace(
            first, file=replace(first.file, rows=sum(scanned.file.rows for scanned in files), content=content)
        )

    def _appended(self, scanned: ScannedFile) -> FileToRead:
        to_read = FileToRead(self._input(scanned), is_current=self._is_current(scanned))
        if scanned.hidden is None or scanned.file.carries_row_ids:
            return to_read
        positions = positions_of(scanned.hidden) - np.uint64(scanned.file.first_row_id)
        return replace(to_read, file=replace(to_read.file, hidden=None), hidden=positions)

    def _keyed(
        self,
        files: Sequence[ScannedFile],
        where: Predicate | None,
        merged: Callable[[list[ScannedFile]], Iterator[FileToRead]],
    ) -> list[Source[FileToRead]]:
        buckets = None if where is None else buckets_of(self._table.meta, where)
        if buckets is not None:
            files = [scanned for scanned in files if scanned.file.bucket in buckets]
        clean, dirty = by_bucket(files)
        sources: list[Source[FileToRead]] = [
            partial(self._folded if any(scanned.file.set_columns for scanned in bucket) else merged, bucket)
            for bucket in dirty
        ]
        return sources + [partial(iter, [self._clean(scanned)]) for scanned in clean]

    def _clean(self, scanned: ScannedFile) -> FileToRead:
        is_delta = scanned.file.kind == common_pb2.FILE_KIND_DELTA
        return FileToRead(self._input(scanned), has_tombstones=is_delta, is_current=self._is_current(scanned))

    def _merged(self, files: list[ScannedFile]) -> Iterator[FileToRead]:
        hidden = dict(zip(map(id, files), hidden_rows(self._table, self._written, files), strict=True))
        for scanned in chain.from_iterable(inlined_runs(files)):
            yield from self._partly_hidden(scanned, hidden[id(scanned)])

    def _merged_together(self, files: list[ScannedFile]) -> Iterator[FileToRead]:
        """Yield the files to read. Inlined files in a row are joined, so the begin of each is unknown."""
        hidden = dict(zip(map(id, files), hidden_rows(self._table, self._written, files), strict=True))
        for run in inlined_runs(files):
            begins = np.cumsum([0, *(scanned.file.rows for scanned in run[:-1])]).astype(np.uint64)
            parts = [hidden[id(scanned)] + begin for scanned, begin in zip(run, begins, strict=True)]
            yield from self._partly_hidden(as_one(run), np.concatenate(parts))

    def _folded(self, files: list[ScannedFile]) -> Iterator[FileToRead]:
        """Yield the rows of a bucket in which images set single columns, as a file in memory."""
        meta = self._table.meta
        schema = arrow_schema(meta, with_op=True, with_set=True)
        runs = runs_together(files)
        images = pa.concat_tables([rows for run in runs for _, rows in read_tables(self._input(as_one(run)), schema)])
        of_files = [scanned for run in runs for scanned in run]
        versions = np.repeat([each.data_version for each in of_files], [each.file.rows for each in of_files])
        rows = image_folds.visible(image_folds.folded(images, meta, meta.primary_key, versions))
        if len(rows):
            content = content_of(rows)
            newest = max(each.data_version for each in of_files)
            yield FileToRead(InputFile(files[0].file.path, newest, len(rows), len(content), content=content))

    def _partly_hidden(self, scanned: ScannedFile, hidden: Positions) -> Iterator[FileToRead]:
        if len(hidden) < scanned.file.rows:
            yield FileToRead(self._input(scanned), hidden, is_current=self._is_current(scanned))

    def _input(self, scanned: ScannedFile) -> InputFile:
        return input_file(self._table, self._written, scanned.file, scanned.data_version, scanned.hidden)

    def _is_current(self, scanned: ScannedFile) -> bool:
        return not scanned.file.external and scanned.file.schema_version == self._table.meta.schema_version

    # -- the rows of a file

    def _rows(
        self,
        files: Iterable[FileToRead],
        columns: Sequence[str],
        where: Predicate | None,
        memory_bytes: float,
        near: Predicate | None,
    ) -> Iterator[pa.Table]:
        """Yield visible rows for which the condition is true, in order. Rows of small files are chosen together."""
        if where is None:
            for file in files:
                yield from self.visible(file, columns, None, memory_bytes, near)
            return
        condition_columns, condition = list(columns_in(where)), self._choice(where)
        names = list(dict.fromkeys([*columns, *condition_columns]))
        has_filters = bool(self._table.meta.properties.get(BLOOM_COLUMNS))  # they may spare a small file's rows, too

        def whole(file: FileToRead) -> Iterable[pa.Table] | None:
            if has_filters or not is_small(file.file):
                return None
            return (rows.select(names) for rows in self.visible(file, names, None, memory_bytes))

        def chosen(file: FileToRead) -> Iterable[pa.Table]:
            return (rows.select(names) for rows in self.visible(file, names, where, memory_bytes, near))

        def choose(rows: pa.Table) -> pa.Table:
            places = _chosen(rows.select(condition_columns), None, condition)
            return rows if len(places) == len(rows) else rows.take(pa.array(places))

        yield from chosen_together(files, whole, chosen, choose, memory_bytes)

    def visible(
        self,
        file: FileToRead,
        columns: Sequence[str],
        where: Predicate | None,
        memory_bytes: float,
        near: Predicate | None = None,
    ) -> Iterator[pa.Table]:
        """Yield visible rows for which the condition is true, with at least these columns; `near` as in `tables`."""
        near = near or where
        names = dict.fromkeys([*columns, *(columns_in(where) if where is not None else ())])
        names |= dict.fromkeys([OP] if file.has_tombstones else []) | dict.fromkeys(
            [ROW_ID] if file.file.hidden else []
        )
        schema = pa.schema([self._stored.field(name) for name in names])
        groups = None if near is None else row_groups(file.file, near, self._stored, has_names=file.is_current)
        if where is None:
            for at, rows in read_tables(file.file, schema, memory_bytes, groups):
                hidden = _hidden_flags(file, rows, at)
                yield rows if hidden is None else rows.filter(pa.array(~hidden))
            return
        condition_columns = list(columns_in(where))
        first = {*condition_columns, *([OP] if file.has_tombstones else []), *([ROW_ID] if file.file.hidden else [])}
        condition = self._choice(where)

        def chosen(rows: pa.Table, at: int) -> Numbers:
            return _chosen(rows.select(condition_columns), _hidden_flags(file, rows, at), condition)

        yield from read_chosen(file.file, schema, first, chosen, memory_bytes, groups)

    def visible_with_ids(self, file: FileToRead, columns: Sequence[str], ids: Positions) -> Iterator[pa.Table]:
        """Yield the visible rows with these row ids, which ascend, with at least these columns."""
        schema = pa.schema([self._stored.field(name) for name in dict.fromkeys([*columns, ROW_ID])])

        def chosen(rows: pa.Table, at: int) -> Numbers:
            return _chosen(rows, _hidden_flags(file, rows, at), lambda rows: places_of(_ids(rows), ids))

        yield from read_chosen(file.file, schema, {ROW_ID}, chosen, float("inf"), None)

    def _choice(self, where: Predicate) -> Choice:
        """Return the function that finds the rows for which the condition is true; it is made once for all files."""
        last = self._last_choice
        if last is None or last[0] is not where:
            self._last_choice = last = where, choice(where, self._stored)
        return last[1]


def _serves(planned: VersionPlan, where: Predicate | None) -> bool:
    """Return whether the entries of a plan are those that a condition needs, with few others."""
    if planned.predicate == where:
        return True
    if where is None or len(planned.entries) > ENTRIES_UNPRUNED:
        return False
    parts = list(conjuncts(where))
    return planned.predicate is None or all(part in parts for part in conjuncts(planned.predicate))


def _files(entries: Iterable[common_pb2.LiveEntry]) -> list[ScannedFile]:
    return [ScannedFile(entry.file, entry.data_version) for entry in entries if entry.HasField("file")]


def _each(read: Callable[[FileToRead], Iterable[Any]], source: Source[FileToRead]) -> Iterator[Any]:
    for file in source():
        yield from read(file)


def _as_shown(rows: pa.Table, shown: pa.Schema) -> pa.Table:
    """Return the rows in the schema that readers see. A cast loads pyarrow.compute, even without anything to cast."""
    fits = all(
        column.type.equals(field.type, check_metadata=True) and (field.nullable or not column.null_count)
        for column, field in zip(rows.columns, shown, strict=True)
    )
    return pa.table(rows.columns, schema=shown) if fits else rows.cast(shown)


def _hidden_flags(file: FileToRead, rows: pa.Table, at: int) -> Any:
    """Return a flag for each row that is true if it is hidden; None if no row is."""
    flags = None
    begin, end = np.searchsorted(file.hidden, np.array([at, at + len(rows)], np.uint64))
    if end > begin:
        flags = np.zeros(len(rows), bool)
        flags[file.hidden[begin:end] - np.uint64(at)] = True
    if file.has_tombstones:
        gone = rows.column(OP).to_numpy() == TOMBSTONE
        flags = gone if flags is None else flags | gone
    if file.file.hidden is not None:
        flags = np.zeros(len(rows), bool) if flags is None else flags
        flags[places_of(_ids(rows), positions_of(file.file.hidden))] = True
    return flags if flags is not None and flags.any() else None


def _ids(rows: pa.Table) -> Positions:
    ids: Positions = rows.column(ROW_ID).to_numpy().view(np.uint64)
    return ids


def _chosen(rows: pa.Table, hidden: Any, condition: Choice) -> Numbers:
    """Return the places of the visible rows for which the condition is true; `rows` has the condition's columns."""
    places = condition(rows)
    return places if hidden is None else places[~hidden[places]]


def shown_schema(table: TableView) -> pa.Schema:
    """Return the table's columns as its readers see them."""
    return columns_schema(table.meta)


def columns_schema(meta: catalog_pb2.Table) -> pa.Schema:
    """Return the columns in the service's answer as readers see them."""
    return _columns_schema(catalog_pb2.Table(columns=meta.columns).SerializeToString())


@lru_cache(maxsize=1 << 7)
def _columns_schema(columns: bytes) -> pa.Schema:
    listed = catalog_pb2.Table.FromString(columns).columns
    return pa.schema([pa.field(column.name, plain(column_field(column).type), column.nullable) for column in listed])


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without field ids."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type), field.nullable) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    return kind
