"""One table: its reads, its writes, and changes of its definition."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from laketx.arrow_reads import ArrowReads, get_rows
from laketx.change_streams import TableChangeStreams
from laketx.column_changes import ColumnChanges
from laketx.cursor import Cursor, cursor_of
from laketx.foreign_calls import OF_TABLES, KnowsForeignCalls, by_name
from laketx.history import HistoryEntry, history_entry
from laketx.input_rows import AnyRows
from laketx.pending_rows import Row
from laketx.schema import Schema
from laketx.snapshot import Snapshot, snapshot_of
from laketx.table_writes import Verbs
from laketx.writer import FLUSH_MS, FLUSH_ROWS, ROWS_MAX, TableWriter, latest_rows
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.base.schema import create_statement
from worker.commit.conflict_policies import check_policy
from worker.commit.rows_read import each_table_once
from worker.commit.transaction import run_writes
from worker.commit.writes import Commit, Write, WriteOptions
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.connection.versions import version_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from worker.dataframes import catalog_writes, changes, export, scan
    from worker.dataframes.catalog_writes import CatalogWrite
    from worker.services.compaction import by_hand
else:
    by_hand = LazyModule("worker.services.compaction.by_hand")
    changes = LazyModule("worker.dataframes.changes")
    scan = LazyModule("worker.dataframes.scan")
    catalog_writes = LazyModule("worker.dataframes.catalog_writes")
    export = LazyModule("worker.dataframes.export")


DESCRIBED: Final = pa.schema(
    [("col_name", pa.string()), ("data_type", pa.string()), ("nullable", pa.bool_()), ("comment", pa.string())]
)
RECENT_S: Final = 1.0  # small writes without Spark don't ask anew for a table that they saw so recently


class Table(KnowsForeignCalls, ArrowReads, ColumnChanges, TableChangeStreams, Verbs[Commit]):
    """A table, made by `lake.table` and `lake.create_table`.

    Reads return lazy DataFrames of one version. Every write is a transaction, finished when the method returns, and
    returns a Commit with its version, time and transaction.

    read, snapshot, changes, resolve, history, export            reads
    insert, overwrite, update, delete, merge                     rows
    to_arrow, to_pandas, to_polars, to_duckdb, scanner, count    reads without Spark; `snapshot` has them, too
    append, upsert, writer, apply_changes, apply_debezium        rows without Spark
    truncate, restore                                            whole partitions, or all
    add_columns, rename_column, drop_column, widen_column        columns
    set_properties, refresh                                      settings; changes by others

        t.insert(df)                                             appends; with a primary key upserts
        t.update({"status": "'paid'"}, where="id = 7")
        t.merge(df, on="id").when_matched_update().when_not_matched_insert().execute()
        t.read(version=12, where="day = '2026-11-01'")

    An insert that lost a race commits its files again. Any other write raises ConflictError, unless `on_conflict` is
    "rerun".
    """

    _foreign = by_name(OF_TABLES)

    def __init__(self, lake: Connection, meta: catalog_pb2.Table) -> None:
        self.lake = lake
        self.view = TableView(lake, meta)
        self._refreshed_s = time.monotonic()

    @property
    def meta(self) -> catalog_pb2.Table:
        """The service's description of the table at the last refresh."""
        return self.view.meta

    def __repr__(self) -> str:
        return f"Table({self.meta.name!r}, version {self.meta.head_version})"

    @property
    def name(self) -> str:
        """The table's name with its namespace, as of the last refresh."""
        return self.meta.name

    @property
    def table_id(self) -> str:
        """The table's id, which a rename doesn't change."""
        return self.meta.table_id

    @property
    def folder(self) -> str:
        """The folder of the table's files; paths of files are relative to it."""
        return self.view.folder

    @property
    def schema(self) -> Schema:
        """The columns, as of the last refresh: `print(table.schema)`, `.names`, `.to_arrow()`, `.to_spark()`."""
        return Schema(self.meta)

    def describe(self) -> pa.Table:
        """Returns the columns as rows: name, type, nullable, comment. The last row is the comment of the table."""
        rows: list[tuple[Any, ...]] = [
            (column.name, column.type, column.nullable, column.comment) for column in self.meta.columns
        ]
        if self.meta.comment:
            rows.append(("# table", None, None, self.meta.comment))
        return pa.Table.from_pylist([dict(zip(DESCRIBED.names, row, strict=True)) for row in rows], DESCRIBED)

    def ddl(self) -> str:
        """Returns the SQL statement that creates the table, with its comments and properties."""
        return create_statement(self.meta)

    def refresh(self) -> Self:
        """Loads the table's current state from the service. Every write does so, too.

        Raises BlockedError if the table is dropped.
        """
        self.view = self.view.refreshed()
        self._refreshed_s = time.monotonic()
        return self

    # -------------------------------------------------------------------------------------------------------- reads

    def read(
        self,
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        commits_ago: int | None = None,
        tag: str | None = None,
        where: str | Column | None = None,
    ) -> DataFrame:
        """Returns the rows of one version as a DataFrame of Spark; without arguments, of the newest version.

            orders.read(version=12, where="day = '2026-11-01'").show()

        A time without a zone is in the session's time zone. `where` filters the rows; as text it also prunes files.

        Raises InputError for a wrong condition, InvalidError for a version above the newest, GoneError for a version
        that is no longer kept, NotFoundError for an unknown tag.
        """
        return scan.read(self.view, version=version, timestamp=timestamp, commits_ago=commits_ago, tag=tag, where=where)

    def get(self, keys: AnyRows | Sequence[Any], *, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows of the newest version that have one of the keys, in no order, without Spark.

            orders.get([7, 8], columns=["id", "amount"])

        `keys` is a list of values or of dicts, or a table with the key columns; these can name the partition columns,
        too. Only the buckets of the keys are read. A key that doesn't exist gives no row.

        Raises InputError for a table without a primary key, and for keys or columns that don't fit.
        """
        return get_rows(self.view, keys, columns, lambda: self.refresh().view)

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        commits_ago: int | None = None,
        tag: str | None = None,
    ) -> AbstractContextManager[Snapshot]:
        """Keeps one version readable for several queries.

            with orders.snapshot(tag="2026-11") as s:
                s.to_arrow(columns=["id"])
                s.read(where="amount > 15")  # with Spark

        Raises the errors of `read`.
        """
        return snapshot_of(self.view, version, timestamp, commits_ago, tag)

    def changes(
        self, *, since: int | str | datetime, until: int | str | datetime | None = None, mode: str = "latest"
    ) -> DataFrame:
        """Returns the rows that changed after `since`, up to `until` (default: the newest version), with Spark.

            orders.changes(since=12, mode="changes").show()

        `since` and `until` are versions or times. Mode "latest" returns new and changed rows, as they are at the end;
        "changes" also deleted rows and previous images; "log" the same for each commit. The result also has
        `_change_type`, `_commit_version` and `_commit_time`, and `_set_columns` if the table has partial updates.

        Raises InputError for a wrong range or mode, GoneError if the range begins before the oldest kept version.
        """
        return changes.read_changes(self.view, since=since, until=until, mode=mode)

    def cursor(self, name: str, *, version: int | None = None, keep: timedelta | None = None) -> Cursor:
        """Returns the cursor of that name, a durable position to read increments from; creates it if it doesn't exist.

            cursor = orders.cursor("nightly", version=12)
            rows = cursor.changes()  # or cursor.to_arrow()
            cursor.advance()

        A new cursor begins at `version`, by default the newest: its first increment contains later commits. The service
        keeps all commits that the cursor has not read, until it has been idle for `keep` (default: a week).
        """
        return cursor_of(self.view, name, version, keep)

    def tag(self, name: str, *, version: int | None = None, comment: str = "", move: bool = False) -> int:
        """Names a version, by default the newest, and returns it. It stays readable while it has the tag.

            orders.tag("2026-11", comment="books of November")

        Raises AlreadyExistsError if the tag names another version, unless `move` is set.
        """
        client = self.lake.client
        return client.create_tag(self.table_id, name, version=version, comment=comment, move=move).version

    def tags(self) -> dict[str, int]:
        """Returns the tagged versions by tag."""
        return {tag.name: tag.version for tag in self.lake.client.list_tags(self.table_id)}

    def drop_tag(self, name: str) -> None:
        """Drops a tag, so that its version can be retired. A missing tag is no error."""
        self.lake.client.drop_tag(self.table_id, name)

    def export(
        self,
        path: str | Path,
        *,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        commits_ago: int | None = None,
        where: str | Column | None = None,
        partitioned: bool = True,
        overwrite: bool = False,
    ) -> int:
        """Writes the rows of one version as plain Parquet files with Spark, and returns that version.

            orders.export("/backup/orders", where="day >= '2026-11-01'")

        Any reader can open the files without LakeTX. The files of a partitioned table are in folders like
        `day=2026-11-01`, and its partition columns are only in the folder names; with `partitioned=False` all files are
        in one folder and contain all columns. The path must be empty or not exist. `overwrite` replaces existing
        Parquet files, once the new files are complete.

        Raises InputError if the path is not empty, or is in the lake.
        """
        return export.export(
            self.view,
            str(path),
            version=version,
            timestamp=timestamp,
            commits_ago=commits_ago,
            where=where,
            partitioned=partitioned,
            overwrite=overwrite,
        )

    def resolve(
        self, version: int | None = None, timestamp: datetime | str | None = None, commits_ago: int | None = None
    ) -> int:
        """Returns the version that a read uses; without arguments the newest.

            orders.resolve(timestamp="2026-11-01 08:00:00Z")

        Raises InputError for two of them, InvalidError for a version above the newest, GoneError for a version that is
        no longer kept.
        """
        return version_of(self.view, version, timestamp, commits_ago)

    def history(self, limit: int | None = 100) -> list[HistoryEntry]:
        """Returns the table's commits, newest first.

            for entry in orders.history(10):
                print(entry.version, entry.operation, entry.message)

        With `limit=None` it returns all commits.
        """
        entries: list[HistoryEntry] = []
        for version in self.lake.client.list_versions(self.table_id, page_size=min(limit or 500, 500)):
            if limit is not None and len(entries) >= limit:
                break
            entries.append(history_entry(version))
        return entries

    def clone(self, new_name: str, *, version: int | None = None) -> Table:
        """Makes a table that begins as this one is, or was at a version; nothing is copied. Each goes its own way.

            orders.clone("test.orders", version=41)

        Raises AlreadyExistsError if the new name is taken.
        """
        client = self.lake.client
        namespace, dot, _ = new_name.partition(".")
        if dot:
            client.create_namespace(namespace, if_not_exists=True)
        return Table(self.lake, client.clone_table(self.table_id, new_name, version=version))

    # ------------------------------------------------------------------------------------------------------ services

    def compact(
        self,
        operation: str = "minor",
        *,
        partition: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        sort_by: Sequence[str] = (),
        zorder_by: Sequence[str] = (),
        message: str = "",
    ) -> Commit | None:
        """Rewrites files into fewer, larger files with the same rows. Returns None if there is nothing to do.

            orders.compact()
            orders.compact("cluster", sort_by=["day"])

        "minor" merges small files, "major" rewrites files with hidden rows or deltas, "cluster" orders rows by columns,
        in sequence (`sort_by`) or equally (`zorder_by`). It needs no Spark: processes on this machine do the work, or
        the executors of the lake's session if they are on other machines.

        Raises InputError for an unknown operation or a wrong order, ConflictError if a write wins the race.
        """
        return by_hand.compact(
            self.refresh().view, operation, partition, sort_by=sort_by, zorder_by=zorder_by, message=message
        )

    def detach(self, *, message: str = "") -> Commit | None:
        """Rewrites the files that this clone shares with the table that it was made of. Returns None if there are none.

            lake.table("test.orders").detach()

        The rows stay the same. The clone's older versions still show the shared files; when its retention gives them
        up, it keeps nothing of that table any more. Works as `compact` does. A repeated call goes on where one ended.

        Raises InvalidError if the table is no clone, ConflictError if a write wins the race.
        """
        return by_hand.detach(self.refresh().view, message)

    # ------------------------------------------------------------------------------------------------------- writes

    def writer(
        self,
        *,
        flush_rows: int = FLUSH_ROWS,
        flush_ms: float = FLUSH_MS,
        rows_max: int = ROWS_MAX,
        app_id: str | None = None,
        message: str = "",
    ) -> TableWriter:
        """Returns a writer that accepts single rows from many threads and commits them in groups, without Spark.

            with orders.writer(flush_rows=1_000, flush_ms=20) as writer:
                writer.write({"id": 1, "amount": 2.5}).result()

        A group commits when it has `flush_rows` rows, or when its first row is `flush_ms` old; if a key appears twice
        in a group, the last row wins. At most `rows_max` rows wait. With `app_id` each row has an increasing `sequence`
        number, and is written once, even if the program restarts. See docs/arrow.md.

        Raises InputError for limits out of range.
        """

        def send(rows: Sequence[Row], sequence: int | None) -> Commit:
            write = self.upsert if self.meta.primary_key else self.append
            return write(
                list(latest_rows(rows, self.meta)),
                message=message,
                app_id=app_id,
                app_version=sequence,
            )

        return TableWriter(
            send,
            flush_rows=flush_rows,
            flush_ms=flush_ms,
            rows_max=rows_max,
            resume_after=None if app_id is None else self.app_version(app_id),
            is_numbered=app_id is not None,
        )

    def app_version(self, app_id: str) -> int | None:
        """Returns the highest version that the application has written to the table, or None."""
        resolved = self.lake.client.resolve_version(self.table_id, app_id=app_id)
        return resolved.app_version if resolved.HasField("app_version") else None

    @property
    def _spark(self) -> SparkSession:
        return self.lake.spark

    @property
    def _uses_spark(self) -> bool:
        return self.lake.uses_spark

    @property
    def _meta(self) -> catalog_pb2.Table:
        return self.meta

    def _do(
        self,
        plan: Callable[[TableView], Write],
        options: WriteOptions,
        *,
        is_insert: bool = False,
        may_be_recent: bool = False,
    ) -> Commit:
        is_recent = may_be_recent and time.monotonic() - self._refreshed_s < RECENT_S

        def planned() -> list[Write]:
            nonlocal is_recent
            if is_recent:
                is_recent = False
                with suppress(InputError):  # the columns may have changed
                    write = plan(self.view)
                    if write.is_one_call and write.has_all_columns:
                        return [write.named(options.app)]
            write = plan(self.refresh().view)
            self.view = write.table  # it may have added columns
            return each_table_once([write.named(options.app)])

        check_policy(options.on_conflict, is_insert=is_insert)
        return run_writes(self.lake, planned, on_conflict=options.on_conflict, message=options.message)[0]

    def _by_catalog(
        self, plan: Callable[[TableView], CatalogWrite], options: WriteOptions, *, is_insert: bool = False
    ) -> Commit:
        def planned() -> CatalogWrite:
            write = plan(self.refresh().view)
            self.view = write.table  # it may have added columns
            return write

        check_policy(options.on_conflict, is_insert=is_insert)
        return catalog_writes.run_catalog_write(planned, options)
