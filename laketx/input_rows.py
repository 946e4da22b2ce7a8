"""Rows as users pass them: a Spark DataFrame, or a table that supports Arrow (pandas, polars, pyarrow).

`spark_rows` converts them for Spark; this module converts them to Arrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import pyarrow as pa

from metaservice.client import is_partial
from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.scanner import ArrowScan
from worker.arrow.write.merge_sources import source_of_dicts
from worker.arrow.write.python_rows import of_dicts
from worker.base.errors import InputError
from worker.commit.noted_reads import Notes
from worker.commit.rows_read import declares_all, reads_elsewhere, reads_of, with_reads
from worker.commit.writes import Write

if TYPE_CHECKING:
    from polars import LazyFrame
    from pyspark.sql import DataFrame

    from worker.dataframes.catalog_writes import CatalogWrite


IN_MEMORY: Final = ("pandas.", "polars.")  # where classes are whose rows are there already


class ArrowStream(Protocol):
    """A DataFrame of pandas or polars, an Arrow table or record batch."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Rows: TypeAlias = "DataFrame | ArrowStream | LazyFrame"
AnyRows: TypeAlias = "DataFrame | ArrowStream | LazyFrame | Sequence[Mapping[str, Any]]"


def arrow_table(rows: Any) -> pa.Table:
    """Convert rows other than a Spark DataFrame to Arrow. A NaN of pandas becomes NULL.

    Raises InputError for rows without the Arrow interface.
    """
    if isinstance(rows, pa.Table):
        return rows
    if _is_lazy_frame(rows):
        rows = rows.collect()
    if not hasattr(rows, "__arrow_c_stream__"):
        raise InputError(
            "ROWS_INVALID",
            f"rows are a DataFrame of Spark, pandas or polars, or an Arrow table, not {type(rows).__name__}: "
            "spark.createDataFrame makes a DataFrame of a list",
        )
    try:
        if type(rows).__module__.startswith("pandas."):
            _check_objects(rows)
            return pa.Table.from_pandas(rows, preserve_index=False)
        return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError("ROWS_INVALID", f"these rows don't fit into an Arrow table: {error}") from error


def _check_objects(rows: Any) -> None:
    """Refuse Python objects in pandas that pyarrow would truncate: dates mixed with times, and times of two kinds."""
    for name in rows.columns:
        if str(getattr(rows[name], "dtype", "")) != "object":
            continue
        days = [value for value in rows[name] if isinstance(value, date) and value == value]  # NaT differs from itself
        kinds = {(isinstance(value, datetime), getattr(value, "tzinfo", None) is None) for value in days}
        if len(kinds) > 1 or any(getattr(value, "nanosecond", 0) for value in days):
            message = f"{name} mixes dates and times, times with and without a zone, or nanoseconds: give it one type"
            raise InputError("ROWS_INVALID", message)


def is_spark(rows: Any) -> bool:
    return type(rows).__module__.startswith("pyspark.")


def arrow_rows(rows: Any, meta: catalog_pb2.Table) -> pa.Table:
    """Convert rows for a table to Arrow; the table's columns give a list of dicts its types."""
    if is_spark(rows):
        raise InputError("ROWS_INVALID", "this is a DataFrame of Spark: use insert")
    if isinstance(rows, (list, tuple)) and all(_is_dict(row) for row in rows):
        return of_dicts(rows, meta)
    return arrow_table(rows)


def is_stream(rows: Any) -> bool:
    return isinstance(rows, pa.RecordBatchReader)


def may_need_defaults(rows: Any) -> bool:
    """Return whether some dicts lack a column that other dicts have."""
    return isinstance(rows, (list, tuple)) and any(_is_dict(row) and row.keys() != rows[0].keys() for row in rows)


class Given:
    """The rows of a write, which may be planned several times: rows that can be read only once are read once.

    Nothing is read before the first plan, which fixes the version at which the write begins: a query may take long.
    Reads of tables while the rows are consumed are noted.
    """

    def __init__(self, rows: Any, *, is_streamed: bool = False) -> None:
        """With `is_streamed` a stream stays a stream: only its first batch is held in memory."""
        self._rows = rows
        self._is_streamed = is_streamed and is_stream(rows)
        self._held: Any = None
        self._ahead: list[pa.RecordBatch] | None = None
        self._notes = Notes()

    @property
    def is_lazy(self) -> bool:
        """Whether reading the rows may take long: a stream, a scan, a relation of DuckDB."""
        kind = type(self._rows)
        is_table = isinstance(self._rows, (pa.Table, pa.RecordBatch)) or kind.__module__.startswith(IN_MEMORY)
        return _is_lazy_frame(self._rows) or (hasattr(self._rows, "__arrow_c_stream__") and not is_table)

    def arrow(self, meta: catalog_pb2.Table) -> Any:
        """Return a table of Arrow, or batches.

        The first batch is read here, because it shows which tables the rows read.
        """
        if not self._is_streamed:
            return arrow_rows(self.held, meta)
        if self._ahead is None:
            self._ahead = self._next()
        return self._batches()

    @property
    def are_dicts(self) -> bool:
        """Whether the rows are a list of dicts, which Spark doesn't accept."""
        return isinstance(self._rows, (list, tuple)) and all(_is_dict(row) for row in self._rows)

    def columns_given(self, meta: catalog_pb2.Table) -> list[Collection[str]]:
        """Return the columns of each dict, where they differ and the table keeps what a row doesn't have."""
        return [row.keys() for row in self._rows] if is_partial(meta) and may_need_defaults(self._rows) else []

    def merge_source(self, meta: catalog_pb2.Table) -> pa.Table:
        """Return the source rows of a merge as Arrow; they may have columns that the table lacks."""
        return source_of_dicts(self._rows, meta) if self.are_dicts else arrow_table(self.held)

    @property
    def held(self) -> Any:
        """The rows in memory: a stream becomes a table.

        A list stays a list, because the table's columns give it types.
        """
        if self._held is None:  # no cached_property: that of Python 3.11 lets one object at a time be read
            is_foreign = hasattr(self._rows, "__arrow_c_stream__") or _is_lazy_frame(self._rows)
            if not is_foreign or is_spark(self._rows):
                return self._rows
            with self._notes.taken():
                self._held = arrow_table(self._rows)
        return self._held

    def noted(self, write: Write, *, can_rerun: bool = True) -> Write:
        """Add the rows' reads of the table to the write. With `can_rerun` each plan reads the rows again."""
        if is_spark(self._rows) or not self.is_lazy:
            return write
        can_rerun = can_rerun and isinstance(self._rows, ArrowScan) and self._rows.anew is not None
        repeatable = replace(write, are_rows_once=self._is_streamed, rows_anew=self._read_anew if can_rerun else None)
        return with_reads(repeatable, self._notes)

    def declared(self, write: CatalogWrite) -> CatalogWrite:
        """Add the rows' reads of tables to a write of Spark's catalog."""
        if is_spark(self._rows) or not self.is_lazy:
            return write
        are_all = declares_all(write.table, by_spark=True)
        others = reads_elsewhere(write.table, self._notes) if are_all else []
        return write.reading(reads_of(write.table, self._notes), others)

    def _read_anew(self) -> None:
        self._rows = self._rows.anew()
        self._held = None
        self._notes.clear()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while self._ahead:
            yield self._ahead.pop()
            self._ahead = self._next()

    def _next(self) -> list[pa.RecordBatch]:
        with self._notes.taken():
            return [batch] if (batch := next(self._rows, None)) is not None else []


def _is_lazy_frame(rows: Any) -> bool:
    return type(rows).__module__.startswith("polars.lazyframe")


def _is_dict(row: Any) -> bool:
    return type(row) is dict or isinstance(row, Mapping)  # the second takes far longer, and there may be many


def key_rows(keys: Any, meta: catalog_pb2.Table) -> pa.Table:
    """Convert keys to rows of the key columns; plain values are keys of one column. No keys give no rows."""
    if isinstance(keys, (list, tuple, set, frozenset, range)) and not keys:
        return of_dicts([], meta).select(list(meta.primary_key))
    if isinstance(keys, (list, tuple, set, frozenset, range)) and not any(isinstance(key, Mapping) for key in keys):
        if len(meta.primary_key) != 1:
            raise InputError("ROWS_INVALID", f"the key of {meta.name} has several columns: give dicts")
        return of_dicts([{meta.primary_key[0]: key} for key in keys], meta)
    return arrow_rows(keys, meta)
