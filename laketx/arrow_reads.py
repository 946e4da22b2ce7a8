"""A table's rows without Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from metaservice.client import InvalidError
from worker.arrow.changes.commits import check_mode, check_range
from worker.arrow.expressions.conditions import parsed
from worker.arrow.scan.plans import PinnedPlan, pinned_plan
from worker.arrow.scan.scanner import ArrowScan, ReadOptions, Rows, named_columns
from worker.arrow.scan.version_rows import VersionRows, columns_schema
from worker.base.errors import InputError
from worker.commit.noted_reads import ReadSource
from worker.connection.pins import PinnedVersion
from worker.connection.table_view import TableView
from worker.connection.versions import no_zone, time_us_of, version_at

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class ArrowMethods(ABC):
    """The reads without Spark, as Arrow, pandas, polars or by DuckDB, of an object with rows."""

    @abstractmethod
    def scanner(self, **options: Unpack[ReadOptions]) -> ArrowScan:
        """Returns a scan, which reads the rows each time it is used."""

    def _scan(self, options: ReadOptions) -> ArrowScan:
        """Return a scan for a single read, which begins at once."""
        return self.scanner(**options)

    def to_arrow(self, **options: Unpack[ReadOptions]) -> pa.Table:
        """Returns the rows as an Arrow table; the arguments are those of `scanner`.

            orders.to_arrow(columns=["id"], where="amount > 15", version=12)

        Raises the errors of `scanner`.
        """
        return self._scan(options).to_arrow()

    def to_batches(self, **options: Unpack[ReadOptions]) -> pa.RecordBatchReader:
        """Returns the rows as a stream of Arrow batches, in bounded memory; the arguments are those of `scanner`."""
        return self._scan(options).to_batches()

    def to_pandas(self, **options: Unpack[ReadOptions]) -> pd.DataFrame:
        """Returns the rows as a DataFrame of pandas; the arguments are those of `scanner`."""
        return self._scan(options).to_pandas()

    def to_polars(self, **options: Unpack[ReadOptions]) -> pl.DataFrame:
        """Returns the rows as a DataFrame of polars; the arguments are those of `scanner`."""
        return self._scan(options).to_polars()

    def to_lazy_polars(self, **options: Unpack[ReadOptions]) -> pl.LazyFrame:
        """Returns a lazy frame of polars, which reads only the columns and rows that its query needs."""
        return self.scanner(**options).to_lazy_polars()

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection, **options: Unpack[ReadOptions]
    ) -> duckdb.DuckDBPyRelation:
        """Returns a relation of DuckDB, which reads only the columns and rows that its query needs.

            orders.to_duckdb(duckdb.connect()).filter("amount > 15").aggregate("count(*)")

        The arguments are those of `scanner`.
        """
        return self.scanner(**options).to_duckdb(connection)

    def count(self, **options: Unpack[ReadOptions]) -> int:
        """Returns the number of rows, and reads as little as possible; the arguments are those of `scanner`."""
        return self._scan(options).count()


class ArrowReads(ArrowMethods):
    """Reads of one version, or of the changes between two versions, with Arrow. All have the arguments of `scanner`."""

    view: TableView

    def scanner(self, **options: Unpack[ReadOptions]) -> ArrowScan:
        """Returns a scan to read as Arrow, pandas, polars or by DuckDB; each use reads the rows again.

            table.scanner(columns=["id", "amount"], where="day >= '2026-11-01' AND amount > 100").to_pandas()

        columns, where, limit: the columns, a condition on the rows, the maximum number of rows. version, timestamp,
        commits_ago, tag: one of them; default the newest version. A time includes its zone. since, until, mode: instead
        of a version, the rows that changed after `since`, like those of `changes`.

        Raises InputError for a wrong condition, column or combination, InvalidError for a version above the newest,
        GoneError for a version that is no longer kept, NotFoundError for an unknown tag.
        """
        return scan_of(self.view, options)

    def _scan(self, options: ReadOptions) -> ArrowScan:
        return scan_of(self.view, options, at_once=True)


PinnedRows = tuple[tuple[PinnedVersion, ...], Rows, TableView]  # as of the last version


def scan_of(table: TableView, options: ReadOptions, *, at_once: bool = False) -> ArrowScan:
    """Pin and plan the rows of a read.

    With `at_once` they are read now, so they are planned however many files there are.
    """
    unknown = options.keys() - ReadOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a read takes {', '.join(ReadOptions.__annotations__)}; not {', '.join(sorted(unknown))}")
    limit = options.get("limit")
    if limit is not None and limit < 0:
        raise InputError("LIMIT_INVALID", f"limit is a number of rows, not {limit}")
    are_changes = options.get("since") is not None
    where = options.get("where")
    pinned, rows, then = _changes(table, options) if are_changes else _snapshot(table, options, where, at_once=at_once)
    condition = None if where is None else parsed(where, then.meta)
    columns = named_columns(options.get("columns"), rows.schema)
    if names_version(options):
        return ArrowScan(rows, pinned, columns, condition, limit)
    source = ReadSource(then, pinned[-1].version, is_filtered=not are_changes)
    return ArrowScan(rows, pinned, columns, condition, limit, source, partial(scan_of, table, options))


def names_version(options: ReadOptions) -> bool:
    """Return whether a version is named, so that later commits don't change the rows."""
    names = ("version", "timestamp", "commits_ago", "tag", "until")
    return any(options.get(name) is not None for name in names)


def _snapshot(table: TableView, options: ReadOptions, where: str | None, *, at_once: bool) -> PinnedRows:
    if options.get("until") is not None or options.get("mode") is not None:
        raise InputError("RANGE_INVALID", "until and mode belong to a range of changes: say since, too")
    version = _version(table, options)
    planned = _planned(table, version, where, whole=at_once)
    if planned is not None:
        return (planned.pinned,), VersionRows(planned.table, planned.pinned.version, planned), planned.table
    pinned = table.lake.pins.own(table.table_id, version)
    then = table.at(pinned.version)
    return (pinned,), VersionRows(then, pinned.version), then


def _planned(table: TableView, version: int | None, where: str | None, *, whole: bool) -> PinnedPlan | None:
    """Plan a read in one call, with the condition on the known columns; None if these columns may be outdated."""
    try:
        return pinned_plan(table, version, None if where is None else parsed(where, table.meta), whole=whole)
    except (InputError, InvalidError):
        if where is None:
            raise
        return None  # the condition may fit the columns of that version


def _changes(table: TableView, options: ReadOptions) -> PinnedRows:
    if any(options.get(name) is not None for name in ("version", "timestamp", "commits_ago", "tag")):
        raise InputError("VERSION_AMBIGUOUS", "changes have since and until; they have no other version")
    from worker.arrow.changes.change_rows import ChangeRows  # noqa: PLC0415 - polars is loaded where it is wanted

    mode = options.get("mode", "latest")
    check_mode(mode)
    begin = table.lake.pins.own(table.table_id, version_at(table, options["since"], no_zone))
    until = options.get("until")
    end = table.lake.pins.own(table.table_id, None if until is None else version_at(table, until, no_zone))
    check_range(begin.version, end.version)
    then = table.at(end.version)
    return (begin, end), ChangeRows(then, begin.version, end.version, mode), then


def _version(table: TableView, options: ReadOptions) -> int | None:
    """Return the version that the arguments name; None: the newest."""
    given = {name: options.get(name) for name in ("version", "timestamp", "commits_ago", "tag")}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError("VERSION_AMBIGUOUS", "give one of version, timestamp, commits_ago and tag")
    if not named or options.get("version") is not None:
        return options.get("version")
    timestamp = options.get("timestamp")
    time_us = None if timestamp is None else time_us_of(timestamp, no_zone)
    version = table.client.resolve_version(
        table.table_id, time_us=time_us, commits_ago=options.get("commits_ago"), tag=options.get("tag")
    )
    return version.version


def get_rows(
    table: TableView, keys: Any, columns: Sequence[str] | None, refreshed: Callable[[], TableView]
) -> pa.Table:
    """Return the rows of the newest version that have one of the keys, by one call if the known columns are current."""
    while True:
        try:
            rows = _rows_by_keys(table, keys, columns)
        except (InputError, InvalidError):
            rows, before = None, table.meta.schema_version
            if refreshed().meta.schema_version == before:
                raise
        if rows is not None:
            return rows
        table = refreshed()


def _rows_by_keys(table: TableView, keys: Any, columns: Sequence[str] | None) -> pa.Table | None:
    from laketx.input_rows import key_rows  # noqa: PLC0415 - polars is loaded where it is wanted
    from worker.arrow.write.key_lookups import fitted_keys, newest_rows  # noqa: PLC0415

    if not table.meta.primary_key:
        raise InputError("KEY_MISSING", f"{table.meta.name} has no primary key: read it by a condition")
    chosen = None if columns is None else named_columns(columns, columns_schema(table.meta))
    return newest_rows(table, fitted_keys(key_rows(keys, table.meta), table.meta), chosen)
