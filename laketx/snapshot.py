"""Snapshots: one version of a table for several reads.

with table.snapshot() as s:
    s.to_arrow(columns=["id"])                 # s.read() with Spark
    s.count(where="day = '2026-11-01'")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, Unpack

from laketx.arrow_reads import ArrowMethods, scan_of
from worker.arrow.scan.scanner import ArrowScan, ReadOptions
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.commit.noted_reads import ReadSource
from worker.connection.table_view import TableView
from worker.connection.versions import held_version

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from worker.dataframes import scan
else:
    scan = LazyModule("worker.dataframes.scan")

OTHER_VERSIONS: Final = ("version", "timestamp", "commits_ago", "tag", "since", "until", "mode")


class Snapshot(ArrowMethods):
    """A version that stays readable until the block ends, made by `table.snapshot`.

    read                                               its rows as a DataFrame of Spark
    to_arrow, to_pandas, to_polars, scanner, count     the same without Spark
    """

    def __init__(self, table: TableView, version: int, *, is_chosen: bool) -> None:
        self.table = table
        self.version = version
        self._is_chosen = is_chosen

    def __repr__(self) -> str:
        return f"Snapshot({self.table.name!r}, version {self.version})"

    def read(self, *, where: str | Column | None = None) -> DataFrame:
        """Returns the rows with Spark, to be used inside the block. Raises InputError for a wrong condition."""
        return scan.read_where(self.table, self.version, where, is_chosen=self._is_chosen)

    def scanner(self, **options: Unpack[ReadOptions]) -> ArrowScan:
        """Returns the rows without Spark, to be used inside the block; `to_arrow` and the like have the same arguments.

            with orders.snapshot() as s:
                s.scanner(columns=["id"], where="amount > 15").to_arrow()

        The arguments are columns, where and limit.

        Raises InputError if another version, or a range of changes, is given.
        """
        own = [name for name in OTHER_VERSIONS if name in options]
        if own:
            raise InputError("VERSION_AMBIGUOUS", f"a snapshot reads its own version: leave out {', '.join(own)}")
        scan = scan_of(self.table, {**options, "version": self.version})
        return scan if self._is_chosen else replace(scan, source=self._source)

    @cached_property
    def _source(self) -> ReadSource:
        """Return the read that a write of these rows declares: the newest version.

        A version that the caller named counts for nothing.
        """
        return ReadSource(self.table.at(self.version), self.version)


@contextmanager
def snapshot_of(
    table: TableView,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    commits_ago: int | None = None,
    tag: str | None = None,
) -> Iterator[Snapshot]:
    """Pin one version until the block ends."""
    is_chosen = any(given is not None for given in (version, timestamp, commits_ago, tag))
    with held_version(table, version, timestamp, commits_ago, tag) as held:
        yield Snapshot(table, held, is_chosen=is_chosen)
