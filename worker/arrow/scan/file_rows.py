"""Rows of a table's file as Arrow, in the shape of one of the table's schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from worker.arrow.scan.inlined_rows import Content, read_columns
from worker.arrow.scan.plans import WrittenSchemas
from worker.base.lazy_modules import LazyModule
from worker.base.schema import OP, ROW_ID, UPSERT
from worker.base.values import python_value
from worker.connection.table_view import TableView
from worker.files.arrow_types import field_id, in_shape
from worker.files.position_blocks import Numbers
from worker.files.storage import in_pages, is_local, open_to_read, storage

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = LazyModule("pyarrow.compute")

ROWS_AT_LEAST: Final = 1 << 10
SMALL_BYTES: Final = 4 << 20
VALUES_OF_A_THREAD: Final = 1 << 14  # fewer values are read before other threads have begun

RowGroups = Callable[[Any, Any], list[int]]  # (the stream, the Parquet file on it) -> the row groups to read


@dataclass(frozen=True, slots=True)
class InputFile:
    """A live file as a job reads it. `hidden` are the row ids in it that delete sets hide.

    An external file has no field ids: `names` are its column names, `constants` the values from its path.
    """

    path: str
    data_version: int
    rows: int
    bytes: int
    is_delta: bool = False
    first_row_id: int = 0
    carries_row_ids: bool = False
    hidden: BitMap64 | None = None
    names: Mapping[int, str] | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    content: Content = b""  # of an inlined file
    is_partial: bool = False  # some of its images set single columns


def input_file(
    table: TableView, written: WrittenSchemas, file: common_pb2.DataFile, data_version: int, hidden: BitMap64 | None
) -> InputFile:
    """Return an entry's file as it is read under the table's schema."""
    return InputFile(
        path=table.path(file.path),
        data_version=data_version,
        rows=file.rows,
        bytes=file.bytes,
        is_delta=file.kind == common_pb2.FILE_KIND_DELTA,
        first_row_id=file.first_row_id,
        carries_row_ids=file.carries_row_ids,
        hidden=hidden,
        names=written.names_in(file) if file.external else None,
        constants={value.column: python_value(value.value) for value in file.partition.values} if file.external else {},
        content=file.content,
        is_partial=bool(file.set_columns),
    )


def read_tables(
    file: InputFile,
    schema: pa.Schema,
    memory_bytes: float = float("inf"),
    may_match: RowGroups | None = None,
    *,
    checks_pages: bool = False,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of the file in order, in parts of about `memory_bytes`, each with the position of its first row.

    `_op` of a base file is UPSERT, and `_row_id` is never NULL. `may_match` chooses the row groups to read.
    With `checks_pages`, compare the pages' checksums. Raises OSError if a checksum is wrong.
    """
    if file.content:
        yield 0, completed(file, in_shape(read_columns(file.content, schema), schema), 0, schema)
        return
    with opened_file(file, schema, memory_bytes, checks_pages=checks_pages) as opened:
        try:
            yield from opened.tables(schema, opened.groups(may_match))
        except OSError as error:
            raise OSError(f"{file.path}: {error}") from error


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file while it is read, its footer, and how many of its rows are in memory at once."""

    file: InputFile
    stream: Any
    parquet: Any
    rows_at_once: int
    is_local: bool
    checks_pages: bool = False

    def groups(self, may_match: RowGroups | None) -> list[int]:
        """Return the row groups to read."""
        return list(range(self.parquet.num_row_groups)) if may_match is None else may_match(self.stream, self.parquet)

    def tables(self, schema: pa.Schema, groups: list[int]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of these row groups, as `read_tables` does."""
        names = self.stored_names(schema)
        for at, table in _tables(self, names, groups):
            if len(table):
                yield at, completed(self.file, in_shape(table, schema, self.file.names), at, schema)

    def stored_names(self, schema: pa.Schema) -> list[str]:
        """Return the file's names of those columns that it has."""
        return stored_names_in(self.parquet.schema_arrow, schema, self.file)


@contextmanager
def opened_file(
    file: InputFile, schema: pa.Schema, memory_bytes: float, *, checks_pages: bool = False
) -> Iterator[OpenedFile]:
    """Open the file once, to read these columns in parts of about `memory_bytes`."""
    files, path = storage(file.path)
    with open_to_read(files, path) as stream:
        opened = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", page_checksum_verification=checks_pages)
        if opened.metadata.num_rows != file.rows:
            raise OSError(f"{file.path} has {opened.metadata.num_rows} rows, not {file.rows}")
        yield OpenedFile(
            file,
            stream,
            opened,
            _rows_at_once(stream, opened, file, schema, memory_bytes),
            is_local(files),
            checks_pages,
        )


def _rows_at_once(stream: Any, opened: Any, file: InputFile, columns: pa.Schema, memory_bytes: float) -> int:
    if memory_bytes == float("inf"):
        return max(ROWS_AT_LEAST, file.rows)
    whole = file.rows * _row_bytes(stream, opened, stored_names_in(opened.schema_arrow, columns, file))
    return max(ROWS_AT_LEAST, int(min(file.rows, memory_bytes * file.rows / max(whole, 1))))


def _tables(source: OpenedFile, names: list[str], chosen: list[int]) -> Iterator[tuple[int, pa.Table]]:
    opened, rows_at_once = source.parquet, source.rows_at_once
    groups = list(range(opened.metadata.num_row_groups))
    if chosen == groups and opened.metadata.num_rows <= rows_at_once:
        yield 0, opened.read(names, use_threads=opened.metadata.num_rows * len(names) > VALUES_OF_A_THREAD)
        return
    begins = list(accumulate((opened.metadata.row_group(at).num_rows for at in groups), initial=0))
    paged = None
    for group in chosen:
        at = begins[group]
        if begins[group + 1] - at <= rows_at_once:
            yield at, opened.read_row_group(group, names)
            continue
        paged = paged or in_pages(source.stream, checks_pages=source.checks_pages)
        for batch in paged.iter_batches(rows_at_once, row_groups=[group], columns=names):
            yield at, pa.Table.from_batches([batch])
            at += len(batch)


def _row_bytes(stream: Any, opened: Any, names: list[str]) -> float:
    """Estimate the memory of a row from the file's first rows; for small files, from their bytes alone."""
    groups = [opened.metadata.row_group(at).total_byte_size for at in range(opened.metadata.num_row_groups)]
    rows = max(1, opened.metadata.num_rows)
    if sum(groups) < SMALL_BYTES:
        return float(max(1.0, sum(groups) / rows))
    first = next(in_pages(stream).iter_batches(ROWS_AT_LEAST, columns=names))
    return float(max(1.0, first.nbytes / max(1, len(first))))


def stored_names_in(stored: pa.Schema, schema: pa.Schema, file: InputFile) -> list[str]:
    """Return the names that the columns have in a file with the schema `stored`."""
    ids = {field_id(column) for column in schema} - {None}
    extra = {column.name for column in schema if field_id(column) is None}
    if file.names is not None and not file.carries_row_ids:  # a foreign `_row_id` is not one of this table's
        extra.discard(ROW_ID)
    by_name = {name for column_id, name in (file.names or {}).items() if column_id in ids}
    return [
        column.name
        for column in stored
        if column.name in extra or (column.name in by_name if file.names is not None else field_id(column) in ids)
    ]


def completed(file: InputFile, rows: pa.Table, at: int | Numbers, schema: pa.Schema) -> pa.Table:
    """Add the values that the file itself lacks; `at` is the position of the first row, or the positions of all."""
    for name, value in file.constants.items():
        place = schema.get_field_index(name)
        if place >= 0:
            rows = rows.set_column(place, schema.field(place), _repeated(value, schema.field(place).type, len(rows)))
    place = schema.get_field_index(OP)
    if place >= 0 and not file.is_delta:
        rows = rows.set_column(place, schema.field(place), _repeated(UPSERT, pa.int8(), len(rows)))
    place = schema.get_field_index(ROW_ID)
    if place >= 0:
        places = np.arange(at, at + len(rows), dtype=np.int64) if isinstance(at, int) else at
        by_place = pa.array(places + file.first_row_id)
        stored = rows.column(place)
        ids = by_place if stored.null_count == len(stored) else pc.coalesce(stored, by_place)
        rows = rows.set_column(place, schema.field(place), ids)
    return rows


def _repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)
