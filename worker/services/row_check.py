"""Whether a data file has the rows that its entry in the metadata speaks of: it may be whole, and another one's.

    ROWS_UNREADABLE  its rows can't be decoded, or are not as many as registered
    STATS_WRONG      values lie outside the registered bounds, or another number of them is NULL
    PLACE_WRONG      rows belong to another partition, or their keys to another bucket
    COUNT_WRONG      it has another number of tombstones than registered

Readers leave files out by their bounds, their partition and their bucket, so such a file hides rows or shows others'.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.file_rows import input_file, read_tables
from worker.arrow.scan.inlined_rows import fetch_entries
from worker.arrow.scan.key_places import key_hashes
from worker.arrow.scan.plans import WrittenSchemas
from worker.base.schema import OP, TOMBSTONE
from worker.base.values import FLOATS, python_value, wire_value
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.files.arrow_types import arrow_schema
from worker.files.storage import pages

THREADS: Final = 4
PART_BYTES: Final = 32 << 20

Problem = tuple[str, dict[str, str | int]]  # a word and facts


def pages_of_problems(
    client: MetaClient, warehouse: str, table: catalog_pb2.Table, version: int, read: set[str]
) -> Iterator[list[tuple[common_pb2.DataFile, list[Problem]]]]:
    """The files of a version that are not among those read, a few at a time; they are added to those.

    Inlined ones too. The version is pinned.
    """
    then = TableView(Connection(client, warehouse, None), table).at(version)
    written = WrittenSchemas(then)
    entries = client.list_files(table.table_id, version=version)
    fresh = (entry for entry in entries if entry.HasField("file") and entry.file.path not in read)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="laketx-fsck") as pool:
        for page in pages(fresh, 4 * THREADS):
            fetch_entries(then, page)
            results = pool.map(lambda entry: problems_in(then, written, entry.file, entry.data_version), page)
            yield [(entry.file, problems) for entry, problems in zip(page, results, strict=True)]
            read.update(entry.file.path for entry in page)


def problems_in(
    then: TableView, written: WrittenSchemas, file: common_pb2.DataFile, data_version: int
) -> list[Problem]:
    """What is wrong with a file's rows, the first of each kind and column. Some of the rows are in memory."""
    check = _RowCheck(then, written, file)
    schema = arrow_schema(then.meta, with_op=bool(then.meta.primary_key))
    file_read = input_file(then, written, file, data_version, None)
    try:
        for _, rows in read_tables(file_read, schema, PART_BYTES, checks_pages=True):
            check.take(rows)
    except (OSError, ValueError, pa.ArrowException) as error:
        return [("ROWS_UNREADABLE", {"error": str(error).splitlines()[0][:200]})]
    return list(check.problems())


class _RowCheck:
    """What is seen of one file's rows."""

    def __init__(self, then: TableView, written: WrittenSchemas, file: common_pb2.DataFile) -> None:
        self._meta, self._file = then.meta, file
        self._places: dict[str, Problem] = {}
        self._rows = self._tombstones = 0
        types = {column.column_id: column.type for column in written.columns_of(file)}
        columns = {column.column_id: column for column in then.meta.columns}
        self._bounds = [
            _Bounds(columns[stats.column_id], stats)
            for stats in file.stats
            if stats.column_id in columns and types.get(stats.column_id) == columns[stats.column_id].type
        ]

    def take(self, rows: pa.Table) -> None:
        self._rows += len(rows)
        if self._meta.primary_key:
            self._tombstones += int(np.count_nonzero(rows.column(OP).to_numpy() == TOMBSTONE))
            buckets = key_hashes(rows, self._meta) % np.int64(self._meta.buckets)
            if (buckets != self._file.bucket).any():
                wrong = int(buckets[buckets != self._file.bucket][0])
                self._misplaced("bucket", self._file.bucket, wrong)
        for registered in self._file.partition.values:
            if registered.column in rows.column_names:
                self._take_partition(registered, rows.column(registered.column))
        for bounds in self._bounds:
            bounds.take(rows.column(bounds.column.name))

    def _take_partition(self, registered: common_pb2.PartitionValue, column: pa.ChunkedArray) -> None:
        kind = next(column.type for column in self._meta.columns if column.name == registered.column)
        if self._file.external or kind in FLOATS:  # its values are the path's; both zeros are one partition
            return
        for value in pc.unique(column).to_pylist():
            if _comparable(value, kind) != python_value(registered.value):
                self._misplaced(registered.column, str(python_value(registered.value)), str(value))

    def _misplaced(self, what: str, registered: str | int, stored: str | int) -> None:
        facts: dict[str, str | int] = {"of": what, "registered": registered, "found": stored}
        self._places.setdefault(what, ("PLACE_WRONG", facts))

    def problems(self) -> Iterator[Problem]:
        yield from self._places.values()
        for bounds in self._bounds:
            yield from bounds.problems()
        if self._file.tombstones and self._tombstones != self._file.tombstones:
            yield "COUNT_WRONG", {"of": "tombstones", "registered": self._file.tombstones, "found": self._tombstones}


class _Bounds:
    """A column's statistics, and what is seen of its values."""

    def __init__(self, column: catalog_pb2.Column, stats: common_pb2.ColumnStats) -> None:
        self.column = column
        self._stats = stats
        self._nulls = 0
        self._outside: Any = None

    def take(self, values: pa.ChunkedArray) -> None:
        self._nulls += values.null_count
        if not (self._stats.HasField("min") and self._stats.HasField("max")) or self._outside is not None:
            return
        low, high = (python_value(bound) for bound in (self._stats.min, self._stats.max))
        both = pc.min_max(values).as_py()
        least, most = (_comparable(both[name], self.column.type) for name in ("min", "max"))
        if least is None or any(isinstance(value, float) and math.isnan(value) for value in (low, high, least, most)):
            return
        if least < low or most > high:
            self._outside = least if least < low else most

    def problems(self) -> Iterator[Problem]:
        of = self.column.name
        if self._outside is not None:
            between = f"{python_value(self._stats.min)} to {python_value(self._stats.max)}"
            yield "STATS_WRONG", {"of": of, "registered": between, "found": str(self._outside)}
        if self._stats.HasField("nulls") and self._stats.nulls != self._nulls:
            yield "STATS_WRONG", {"of": f"{of}, NULL", "registered": self._stats.nulls, "found": self._nulls}


def _comparable(value: Any, kind: str) -> Any:
    """A value of a column as the metadata has it."""
    return python_value(wire_value(value, kind))
