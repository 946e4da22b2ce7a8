"""Files that a job reads and writes: rows in batches, in the table's current shape, and outputs of the target size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.file_rows import InputFile, read_tables
from worker.files.arrow_types import file_schema
from worker.files.parquet_options import bloom_filters, encodings, options_of, repeating, with_nan
from worker.files.storage import make_folder, storage

ROW_GROUP_BYTES: Final = 128 << 20  # decoded


def read_batches(file: InputFile, schema: pa.Schema, memory_bytes: int) -> Iterator[pl.DataFrame]:
    """Yield all rows of the file in order, in parts of about `memory_bytes`. Raises OSError if a page is damaged."""
    for _, rows in read_tables(file, schema, memory_bytes, checks_pages=True):
        batch = pl.from_arrow(rows)
        assert isinstance(batch, pl.DataFrame)
        yield batch


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
        self._schema = file_schema(schema)
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
            self._begin_file(rows, nan)
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self._schema)
        del rows
        self._writer.write_table(table, row_group_size=len(table))
        if self._sink.tell() >= self._target:
            self._end_file()

    def _begin_file(self, rows: pl.DataFrame, nan: frozenset[str]) -> None:
        self._nan = nan
        path = f"{self._root}/{self._path(len(self.written))}"
        make_folder(self._files, path.rpartition("/")[0])
        self._sink = self._files.open_output_stream(path)
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            bloom_filter_options=bloom_filters(self._meta, rows),
            **encodings(repeating(rows, self._schema), self._schema),
            **options_of(self._meta, self._schema, nan),
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
