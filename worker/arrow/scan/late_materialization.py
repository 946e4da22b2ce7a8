"""Late materialization: a condition's columns are read first, and the others only for the rows that it chose.

A look-up by key chooses one row of a million. Reading the key takes some milliseconds, reading all columns of the row
group some hundred. So the columns of the condition are read first, and of the others only the pages that hold the rows.

pyarrow has no reader of pages: it decodes a column of a row group from the begin. `parquet_pages` makes up for it, for
columns without nesting of local files. On an object store one large request costs less than many small ones, so there
a row group's other columns are read whole, but only if it has a row that was chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from worker.arrow.scan.file_rows import InputFile, OpenedFile, RowGroups, completed, opened_file, read_tables
from worker.files.arrow_types import in_shape
from worker.files.footers import top_leaves
from worker.files.parquet_pages import PagedFile
from worker.files.position_blocks import Numbers
from worker.files.storage import in_pages
from worker.files.thrift_compact import UnknownBytesError

LATE_BYTES_AT_LEAST: Final = 1 << 18  # of late columns in the file; fewer are read at once with the others
ROWS_SHARE_MAX: Final = 0.125  # of a row group's rows; if more are chosen, its other columns are read whole
PAGES_SHARE_MAX: Final = 0.5  # of a column's bytes; if its pages have more, it is read whole

PLACE: Final = "_laketx_place"

Chosen = Callable[[pa.Table, int], Numbers]  # (rows with the first columns, position of the first) -> places


def is_small(file: InputFile) -> bool:
    """Return whether all columns are read at once, however few rows a condition chooses."""
    return bool(file.content) or file.bytes < LATE_BYTES_AT_LEAST


def read_chosen(
    file: InputFile,
    schema: pa.Schema,
    first: Collection[str],
    chosen: Chosen,
    memory_bytes: float,
    may_match: RowGroups | None,
) -> Iterator[pa.Table]:
    """Yield the rows that `chosen` chooses by their `first` columns, in order, in parts of about `memory_bytes`."""
    early = pa.schema([field for field in schema if field.name in first])
    late = pa.schema([field for field in schema if field.name not in first])
    if file.content or not len(early) or not len(late):
        for at, rows in read_tables(file, schema, memory_bytes, may_match):
            yield _taken(rows, chosen(rows, at))
        return
    with opened_file(file, schema, memory_bytes) as opened:
        for rows in chosen_in(opened, early, late, chosen, memory_bytes, opened.groups(may_match)):
            yield rows.select(schema.names)


def chosen_in(
    opened: OpenedFile,
    early: pa.Schema,
    late: pa.Schema,
    chosen: Chosen,
    memory_bytes: float,
    groups: list[int],
) -> Iterator[pa.Table]:
    """Yield the chosen rows of these row groups of an opened file, with the early columns before the late ones."""
    schema = pa.schema([*early, *late])
    source = _LateColumns(opened, late)
    if source.bytes_in(groups) < LATE_BYTES_AT_LEAST:
        for at, rows in opened.tables(schema, groups):
            yield _taken(rows, chosen(rows, at))
        return
    for group in groups:
        first_rows = _first_columns(opened, group, early, chosen)
        if first_rows is None:
            for at, rows in opened.tables(schema, [group]):
                yield _taken(rows, chosen(rows, at))
        elif len(first_rows.positions):
            others = source.at(group, first_rows.positions, memory_bytes)
            yield pa.table([*first_rows.rows.columns, *others.columns], schema=schema)


@dataclass(frozen=True, slots=True)
class _ChosenRows:
    """Rows that were chosen, with their first columns, and their positions in the file."""

    rows: pa.Table
    positions: Numbers


def _first_columns(opened: OpenedFile, group: int, early: pa.Schema, chosen: Chosen) -> _ChosenRows | None:
    """Return the chosen rows of a row group; None if they are too many for one part."""
    tables, positions, count = [early.empty_table()], [np.empty(0, np.int64)], 0
    for at, rows in opened.tables(early, [group]):
        places = chosen(rows, at)
        count += len(places)
        if count > opened.rows_at_once:
            return None
        tables.append(_taken(rows, places))
        positions.append(places + at)
    return _ChosenRows(pa.concat_tables(tables), np.concatenate(positions))


def _taken(rows: pa.Table, places: Numbers) -> pa.Table:
    return rows if len(places) == len(rows) else rows.take(pa.array(places))


class _LateColumns:
    """The columns of an opened file that are read at some positions."""

    def __init__(self, opened: OpenedFile, late: pa.Schema) -> None:
        self._opened = opened
        self._late = late
        self._metadata = opened.parquet.metadata
        self._leaves = top_leaves(self._metadata)
        self._twice = {name for name, count in Counter(opened.parquet.schema_arrow.names).items() if count > 1}
        self._paged: PagedFile | None = None

    def bytes_in(self, groups: Collection[int]) -> int:
        """Return the bytes of the columns in these row groups; of all columns, if some are nested."""
        names = self._opened.stored_names(self._late)
        parts = [self._metadata.row_group(group) for group in groups]
        if any(name not in self._leaves for name in names):
            return sum(part.total_byte_size for part in parts)
        return sum(part.column(self._leaves[name]).total_compressed_size for part in parts for name in names)

    def at(self, group: int, positions: Numbers, memory_bytes: float) -> pa.Table:
        """Return the rows at these positions of the file, which ascend and are in the row group."""
        places = positions - sum(self._metadata.row_group(before).num_rows for before in range(group))
        paged, whole = {}, []
        for field in self._late:
            names = self._opened.stored_names(pa.schema([field]))
            column = self._by_pages(group, names[0], places, memory_bytes) if len(names) == 1 else None
            if column is not None:
                paged[names[0]] = column
            elif names:
                whole.append(field)
        stored = [self._opened.parquet.schema_arrow.field(name) for name in paged]
        rows = pa.table([*paged.values(), pa.array(positions)], pa.schema([*stored, pa.field(PLACE, pa.int64())]))
        others = pa.schema([field for field in self._late if field not in whole])
        shaped = in_shape(rows, others, self._opened.file.names)
        parts = [completed(self._opened.file, shaped, positions, others)] if len(others) else []
        parts += [self._by_group(group, pa.schema(whole), positions)] if whole else []
        columns = {field.name: part.column(field.name) for part in parts for field in part.schema}
        return pa.table([columns[name] for name in self._late.names], schema=self._late)

    def _by_pages(self, group: int, name: str, places: Numbers, memory_bytes: float) -> pa.ChunkedArray | None:
        """Return a column at some places, read from their pages; None if it must be read whole."""
        if not self._opened.is_local or name not in self._leaves or name in self._twice:
            return None
        leaf = self._leaves[name]
        chunk = self._metadata.row_group(group).column(leaf)
        if len(places) > ROWS_SHARE_MAX * chunk.num_values:
            return None
        try:
            self._paged = self._paged or PagedFile(self._opened.stream, self._metadata)
            pages = self._paged.pages(group, leaf, places)
        except UnknownBytesError:
            return None
        if pages.size > PAGES_SHARE_MAX * chunk.total_compressed_size or pages.unpacked_size > memory_bytes:
            return None
        column = in_pages(pa.BufferReader(pages.file())).read(use_threads=False).column(0)
        if column.type != self._opened.parquet.schema_arrow.field(name).type:
            return None  # the file's metadata declares another type
        return column.take(pa.array(pages.places))

    def _by_group(self, group: int, schema: pa.Schema, positions: Numbers) -> pa.Table:
        """Return columns at some positions, read from the begin of the row group."""
        parts = [schema.empty_table()]
        for at, rows in self._opened.tables(schema, [group]):
            begin, end = np.searchsorted(positions, [at, at + len(rows)])
            parts.append(_taken(rows, positions[begin:end] - at))
            if end == len(positions):
                break
        return pa.concat_tables(parts)
