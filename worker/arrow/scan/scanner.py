"""Rows of a table for programs without Spark: as Arrow, pandas, polars, DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

import pyarrow as pa

from worker.arrow.expressions.conditions import Predicate
from worker.base.errors import InputError
from worker.commit.noted_reads import ReadSource, note
from worker.connection.pins import PinnedVersion

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

BATCH_BYTES: Final = 8 << 20
WHOLE: Final = float("inf")


class ReadOptions(TypedDict, total=False):
    """The arguments of a read: columns and rows of one version, or the changes between two versions."""

    columns: Sequence[str] | None
    where: str | None
    limit: int | None
    version: int | None
    timestamp: Any
    commits_ago: int | None
    tag: str | None
    since: Any
    until: Any
    mode: str


class Rows(Protocol):
    """Rows that can be read again and again."""

    schema: pa.Schema

    def tables(self, columns: Sequence[str], where: Predicate | None, memory_bytes: float) -> Iterator[pa.Table]: ...

    def count(self, where: Predicate | None) -> int: ...


@dataclass(frozen=True)
class ArrowScan:
    """The rows of a read. Nothing is read before it is used; each use reads the same rows again.

    to_arrow, to_batches, to_pandas, to_polars, to_lazy_polars, to_duckdb, count

    Every library that accepts Arrow streams accepts a scan: `polars.DataFrame(scan)`, `pyarrow.table(scan)`, and in
    DuckDB `SELECT … FROM scan`. The version stays readable while the scan, or a reader of it, is in use.
    """

    rows: Rows
    pinned: tuple[PinnedVersion, ...]
    columns: tuple[str, ...]
    where: Predicate | None = None
    limit: int | None = None
    source: ReadSource | None = None  # None for a named version, whose rows never change
    anew: Callable[[], ArrowScan] | None = None  # the same scan of the newest version

    @property
    def version(self) -> int:
        """The version that is read; for changes, the last version."""
        return self.pinned[-1].version

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self.rows.schema.field(name) for name in self.columns])

    def __repr__(self) -> str:
        return f"ArrowScan(version {self.version}, {', '.join(self.columns)})"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Returns all rows as a table."""
        memory_bytes = WHOLE if self.limit is None else BATCH_BYTES
        parts = list(self._tables(self.columns, self.where, self.limit, memory_bytes))
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def to_batches(self) -> pa.RecordBatchReader:
        """Returns the rows as a stream, with a few batches in memory at a time."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Returns all rows; the options are those of `pyarrow.Table.to_pandas`. Raises InputError without pandas."""
        rows = self.to_arrow()
        try:
            return rows.to_pandas(**options)
        except ModuleNotFoundError as error:  # only this method needs it
            raise InputError("PANDAS_MISSING", "to_pandas needs pandas: pip install pandas") from error

    def to_polars(self) -> pl.DataFrame:
        """Returns all rows as a DataFrame of polars."""
        from worker.arrow.scan import polars_frames  # noqa: PLC0415 - polars is loaded where it is wanted

        return polars_frames.frame(self.to_arrow())

    def to_lazy_polars(self) -> pl.LazyFrame:
        """Returns a lazy frame, which reads only the columns and rows that its query needs."""
        from worker.arrow.scan import polars_frames  # noqa: PLC0415 - likewise

        return polars_frames.lazy(self.schema, self._pushed)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
        """Returns a relation of DuckDB, which reads only the columns and rows that its query needs."""
        rows = self.to_lazy_polars()  # noqa: F841 - DuckDB finds it by its name
        return connection.sql("FROM rows")

    def count(self) -> int:
        """Returns the number of rows, and reads as little as possible."""
        if self.limit is not None:
            return sum(len(rows) for rows in self._tables(self.columns[:1], self.where, self.limit, BATCH_BYTES))
        note(self.source, self.where)
        return self.rows.count(self.where)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self._tables(self.columns, self.where, self.limit, BATCH_BYTES):
            for batch in rows.to_batches():
                yield batch
                note(self.source, self.where)  # a write may take the other rows

    def _pushed(self, columns: Sequence[str], where: Predicate | None, limit: int | None) -> Iterator[pa.Table]:
        both = [condition for condition in (self.where, where) if condition is not None]
        limits = [maximum for maximum in (self.limit, limit) if maximum is not None]
        return self._tables(columns, all_of(both), min(limits, default=None), BATCH_BYTES)

    def _tables(
        self, columns: Sequence[str], where: Predicate | None, limit: int | None, memory_bytes: float
    ) -> Iterator[pa.Table]:
        note(self.source, where)
        left = limit
        for part in self.rows.tables(columns, where, memory_bytes):
            rows = part if left is None else part.slice(0, left)
            if left is not None:
                left -= len(rows)
            if len(rows):
                yield rows
                note(self.source, where)
            if left == 0:
                return


def all_of(parts: Sequence[Predicate]) -> Predicate | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    predicate = Predicate()
    predicate.all_of.operands.extend(parts)
    return predicate


def named_columns(names: Sequence[str] | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the named columns, found in any case; without names, all columns."""
    if names is None:
        return tuple(schema.names)
    columns = {name.lower(): name for name in schema.names}
    if isinstance(names, str) or not names:
        raise InputError("COLUMNS_INVALID", f"columns is a list of names, not {names!r}")
    missing = [name for name in names if name.lower() not in columns]
    if missing:
        raise InputError("COLUMN_UNKNOWN", f"there is no column {missing[0]}; there are {', '.join(schema.names)}")
    named = tuple(columns[name.lower()] for name in names)
    if len(set(named)) < len(named):
        raise InputError("COLUMN_TWICE", f"columns names one twice: {', '.join(names)}")
    return named
