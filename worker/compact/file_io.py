"""Files that a job reads and writes: rows in batches, in the table's current shape, and outputs of the target size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2
from worker.base.arrow_shapes import field_id, in_shape
from worker.base.parquet_options import leaves, options_of, with_nan
from worker.base.schema import OP, ROW_ID
from worker.base.storage import in_pages, storage

ROW_GROUP_BYTES: Final = 128 << 20  # decoded
ROWS_AT_LEAST: Final = 1 << 10
SMALL_BYTES: Final = 4 << 20
DICTIONARY_BYTES: Final = 1 << 20  # beyond, pyarrow begins with a dictionary and goes on without
REPEATS: Final = 4


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


def read_batches(file: InputFile, wanted: pa.Schema, memory_bytes: int) -> Iterator[pl.DataFrame]:
    """All rows of the file in order, in parts of about that size; `_op` of a base file is 0, `_row_id` never NULL."""
    files, path = storage(file.path)
    with files.open_input_file(path) as stream:
        opened = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        names = _stored_names(opened.schema_arrow, wanted, file.names)
        rows_at_once = int(memory_bytes / _row_bytes(stream, opened, names))
        at = 0
        for table in _tables(stream, opened, names, max(ROWS_AT_LEAST, rows_at_once)):
            if len(table):
                yield _completed(file, in_shape(table, wanted, file.names), at, wanted)
            at += len(table)
        if at != file.rows:
            raise OSError(f"{file.path} has {at} rows, not {file.rows}")


def _tables(stream: Any, opened: Any, names: list[str], rows_at_once: int) -> Iterator[pa.Table]:
    if opened.metadata.num_rows <= rows_at_once:
        yield opened.read(names)
        return
    for batch in in_pages(stream).iter_batches(rows_at_once, columns=names):
        yield pa.Table.from_batches([batch])


def _row_bytes(stream: Any, opened: Any, names: list[str]) -> float:
    """The memory of a row, from the file's first rows; for small files from their bytes alone."""
    groups = [opened.metadata.row_group(at).total_byte_size for at in range(opened.metadata.num_row_groups)]
    rows = max(1, opened.metadata.num_rows)
    if sum(groups) < SMALL_BYTES:
        return float(max(1.0, sum(groups) / rows))
    first = next(in_pages(stream).iter_batches(ROWS_AT_LEAST, columns=names))
    return float(max(1.0, first.nbytes / max(1, len(first))))


def _stored_names(stored: pa.Schema, wanted: pa.Schema, names: Mapping[int, str] | None) -> list[str]:
    ids = {field_id(one) for one in wanted}
    extra = {one.name for one in wanted if field_id(one) is None}
    by_name = {name for column_id, name in (names or {}).items() if column_id in ids}
    return [
        one.name
        for one in stored
        if one.name in extra or (one.name in by_name if names is not None else field_id(one) in ids)
    ]


def _completed(file: InputFile, rows: pa.Table, at: int, wanted: pa.Schema) -> pl.DataFrame:
    for name, value in file.constants.items():
        place = wanted.get_field_index(name)
        column = pa.repeat(pa.scalar(value, wanted.field(place).type), len(rows))
        rows = rows.set_column(place, wanted.field(place), column)
    found = pl.from_arrow(rows)
    assert isinstance(found, pl.DataFrame)
    if OP in found.columns and not file.is_delta:
        found = found.with_columns(pl.lit(0, pl.Int8).alias(OP))
    if ROW_ID in found.columns:
        by_place = pl.int_range(file.first_row_id + at, file.first_row_id + at + len(found), dtype=pl.Int64)
        found = found.with_columns(pl.coalesce(pl.col(ROW_ID), by_place).alias(ROW_ID))
    return found


# -- outputs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written, by its path relative to the table's folder."""

    path: str
    size: int
    metadata: Any


class Output:
    """Writes ordered rows to files `NAME-0.parquet`, `NAME-1.parquet`…, each closed at the target size."""

    def __init__(
        self, meta: catalog_pb2.Table, table_folder: str, name: str, schema: pa.Schema, file_bytes_target: int
    ) -> None:
        self.written: list[WrittenFile] = []
        self._files, self._root = storage(table_folder)
        self._name = name
        self._schema = schema
        self._meta = meta
        self._target = file_bytes_target
        self._group_bytes = min(ROW_GROUP_BYTES, 2 * file_bytes_target)
        self._waiting: list[pl.DataFrame] = []
        self._waiting_bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self._nan: frozenset[str] = frozenset()  # columns of the file that are without bounds

    def write(self, rows: pl.DataFrame) -> None:
        if not len(rows):
            return
        row_bytes = max(1.0, rows.estimated_size() / len(rows))
        for part in rows.iter_slices(max(1, int(self._group_bytes / row_bytes))):
            self._waiting.append(part)
            self._waiting_bytes += int(len(part) * row_bytes)
            if self._waiting_bytes >= self._group_bytes:
                self._write_group()

    def close(self) -> list[WrittenFile]:
        self._write_group()
        self._end_file()
        return self.written

    def abandon(self) -> None:
        """Removes the written files; if this fails, the sweep of the transaction's folder does."""
        if self._sink is not None:
            self._sink.close()
        number = len(self.written) + 1
        for at in range(number):
            path = f"{self._root}/{self._path(at)}"
            if self._files.get_file_info(path).is_file:
                self._files.delete_file(path)

    def _path(self, number: int) -> str:
        return f"{self._name}-{number}.parquet"

    def _write_group(self) -> None:
        if not self._waiting:
            return
        rows = pl.concat(self._waiting, rechunk=False)
        self._waiting, self._waiting_bytes = [], 0
        nan = with_nan(rows)
        if not nan <= self._nan:
            self._end_file()  # its footer would get bounds that no longer hold
        if self._writer is None:
            self._begin_file(repeating(rows, self._schema), nan)
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self._schema)
        del rows
        self._writer.write_table(table, row_group_size=len(table))
        if self._sink.tell() >= self._target:
            self._end_file()

    def _begin_file(self, repeating: list[str], nan: frozenset[str]) -> None:
        self._nan = nan
        path = f"{self._root}/{self._path(len(self.written))}"
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        self._sink = self._files.open_output_stream(path)
        self._writer = pq.ParquetWriter(
            self._sink, self._schema, use_dictionary=repeating, **options_of(self._meta, self._schema, nan)
        )

    def _end_file(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._sink.close()
        path = self._path(len(self.written))
        size = self._files.get_file_info(f"{self._root}/{path}").size
        metadata = pq.read_metadata(f"{self._root}/{path}", filesystem=self._files)
        self.written.append(WrittenFile(path, size, metadata))
        self._sink = self._writer = None


def repeating(rows: pl.DataFrame, schema: pa.Schema) -> list[str]:
    """The columns that a dictionary makes smaller, by their Parquet names. Others are read more slowly with one."""
    found: list[str] = []
    for one in schema:
        if pa.types.is_nested(one.type):
            found += [path for path, _ in leaves(one.name, one.type)]  # not looked into
            continue
        column = rows[one.name]
        distinct = column.approx_n_unique()
        value_bytes = column.estimated_size() / len(column)
        if distinct * REPEATS <= len(column) and distinct * value_bytes <= DICTIONARY_BYTES:
            found.append(one.name)
    return found
