"""Writes to several tables in one transaction, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from laketx.arrow_reads import ArrowMethods, names_version, scan_of
from laketx.change_streams import ChangeStreams, PlanChanges
from laketx.cursor import Cursor
from laketx.table import Table
from laketx.table_writes import Verbs
from metaservice.client import CommitOutcomeUnknownError, uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.scanner import ArrowScan, ReadOptions
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.commit.noted_reads import EVERYTHING
from worker.commit.rows_read import each_table_once
from worker.commit.transaction import run_writes
from worker.commit.writes import Commit, Write, WriteOptions
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView, write_rules
from worker.dataframes.sql_statements import SqlStatements
from worker.files.storage import remove_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from worker.dataframes import catalog_changes, catalog_writes
    from worker.dataframes.catalog_writes import CatalogWrite
else:
    catalog_changes = LazyModule("worker.dataframes.catalog_changes")
    catalog_writes = LazyModule("worker.dataframes.catalog_writes")


class MultiTableTransaction:
    """Writes to several tables, made by `lake.transaction()`: staged, and committed together when the block ends.

        with lake.transaction("sell") as txn:
            txn.table("sales.orders").append(rows)
            txn.table("sales.stock").update({"left": "left - 1"}, where="item = 7")
        print(txn.commits)

    A table's version is fixed when the block first names it: `txn.table(…).read()` and `txn.sql(…)` return that
    version, and the commit is checked against it. A block that ends with an exception changes nothing.
    """

    def __init__(
        self,
        lake: Connection,
        open_table: Callable[[str], Table],
        message: str,
        app: common_pb2.AppVersion | None = None,
    ) -> None:
        self.lake = lake
        self._open_table = open_table
        self.message = message
        self._app = app
        self.commits: list[Commit] = []
        self._ids: dict[str, str] = {}  # by the names asked for
        self._tables: dict[str, TableInTransaction] = {}
        self._is_over = False
        self._cursors: list[Cursor] = []
        self._txn_id = uuid7()
        self._statements = SqlStatements(lake, self._txn_id)
        self._staged: list[str] = []  # folders of files that are staged already

    def sql(self, statement: str, args: dict[str, Any] | list[Any] | None = None) -> DataFrame:
        """Runs a statement of Spark SQL in this transaction: SELECT, INSERT, UPDATE, DELETE, MERGE or TRUNCATE.

            txn.sql("INSERT INTO lake.sales.orders SELECT * FROM lake.sales.cart WHERE user = :user", {"user": 7})

        Its rows are committed with the other changes when the block ends; until then nobody reads them, nor does this
        transaction. Its reads of the lake's tables count. Statements that define tables, and CALL, are refused.

        Raises InputError if the table already has a change, or the block has ended.
        """
        self.check_open()
        for table in self._tables.values():
            self._statements.fix(table.table_id, table.version)
        frame = self._statements.run(statement, args)
        for table in self._tables.values():
            if table.plan is not None and self._statements.changes(table.table_id):
                raise InputError("CHANGE_TWICE", f"a transaction holds one change per table: {table.name}")
        return frame

    def advance(self, cursor: Cursor) -> None:
        """Moves the cursor to the end of its last `changes`, together with the commit or not at all.

        Raises InputError if the cursor's changes have not been read.
        """
        self.check_open()
        cursor.step()  # what is wrong with it is said here
        self._cursors.append(cursor)

    def table(self, name: str) -> TableInTransaction:
        """Returns a table in this transaction, at a version that is fixed by the first call.

        Raises NotFoundError if no table has that name.
        """
        table_id = self._ids.get(name)
        if table_id is None:  # the same table may be named in several ways
            table = self._open_table(name)
            table_id = self._ids[name] = table.table_id
            if table_id not in self._tables:
                self._tables[table_id] = TableInTransaction(self, table, self._statements.version_of(table_id))
        return self._tables[table_id]

    def changes_by_sql(self, table_id: str) -> bool:
        """Return whether a statement of `sql` changes the table."""
        return self._statements.changes(table_id)

    def stage(self, write: CatalogWrite, version: int) -> Write:
        """Have the catalog write the files now, for the commit at the end of the block."""
        self._staged.append(f"{write.table.folder}/{self._txn_id}")
        return catalog_writes.stage_catalog_write(write, self._txn_id, version)

    def check_open(self) -> None:
        """Raise InputError if the block has ended."""
        if self._is_over:
            raise InputError("TRANSACTION_OVER", "the block of this transaction has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        try:
            if error is None:
                self._commit()
        except CommitOutcomeUnknownError:
            raise  # it may have committed: its files stay
        except BaseException:
            self._undo()
            raise
        if error is not None:
            self._undo()

    def _undo(self) -> None:
        self._statements.undo()
        for folder in self._staged:
            with suppress(OSError):
                remove_folder(folder)

    def _commit(self) -> None:
        moves = [cursor.step() for cursor in self._cursors]
        changed, read = self._writes()
        if changed:
            commits = run_writes(
                self.lake,
                lambda: each_table_once(
                    [*[replace(plan(), app=self._app) for plan in changed], *[plan() for plan in read]]
                ),
                on_conflict="fail" if any(table.reads for table in self._tables.values()) else None,
                message=self.message,
                cursors=moves,
                txn_id=self._txn_id if self._staged or self._statements.is_open else None,
            )
            self.commits = commits[: len(changed)]
            for cursor in self._cursors:
                cursor.refresh()
        elif moves:
            raise InputError(
                "CHANGE_MISSING",
                "a cursor advances with a change of a table; to advance it alone, call cursor.advance()",
            )

    def _writes(self) -> tuple[list[Callable[[], Write]], list[Callable[[], Write]]]:
        """Return a write for each table that is changed, and a write for each that is only read."""
        changed: list[Callable[[], Write]] = []
        read: list[Callable[[], Write]] = []
        by_sql = {write.table.table_id: write for write in self._statements.end()}
        for table_id, table in self._tables.items():
            write = by_sql.pop(table_id, None)
            if table.plan is not None:
                changed.append(partial(table.planned, () if write is None else write.also_read))
            elif write is not None:
                by_sql[table_id] = replace(write, also_read=[*write.also_read, *table.reads])
            elif table.reads and table.counts_reads:
                read.append(table.planned)
        for write in by_sql.values():
            (read if write.stage is None else changed).append(partial(replace, write))
        return changed, read


class TableInTransaction(ArrowMethods, ChangeStreams[None], Verbs[None]):
    """A table in a transaction, at a fixed version. It accepts one change, and its reads count."""

    def __init__(self, txn: MultiTableTransaction, table: Table, version: int | None) -> None:
        self.plan: Callable[[TableView], Write] | None = None
        self.reads: list[common_pb2.Read] = []
        self.version = table.meta.head_version if version is None else version
        self._txn = txn
        self._table = table

    def read(self, where: str | None = None) -> DataFrame:
        """Returns the rows at the transaction's version of the table, with Spark.

        The transaction loses if another transaction changed these rows, even if it changes nothing in this table
        itself. Under `maxcompute` only reads of tables that the transaction changes count.
        """
        self.reads.append(catalog_changes.condition_read(self._table.view, where))
        return self._table.read(version=self.version, where=where)

    def scanner(self, **options: Unpack[ReadOptions]) -> ArrowScan:
        """Returns the rows at the transaction's version of the table without Spark; they count like those of `read`.

        It accepts the arguments of a table's `scanner`. A read of a version that you name doesn't count.
        """
        if names_version(options):
            return scan_of(self._table.view, options)
        are_changes = options.get("since") is not None
        fixed: ReadOptions = {**options, "until": self.version} if are_changes else {**options, "version": self.version}
        scan = scan_of(self._table.view, fixed)
        condition = None if are_changes else scan.where
        self.reads.append(common_pb2.Read(predicate=EVERYTHING if condition is None else condition))
        return scan

    @property
    def counts_reads(self) -> bool:
        """Whether the table's profile checks reads of transactions that don't change it."""
        return write_rules(self._table.meta).counts_reads

    @property
    def name(self) -> str:
        """The table's name with its namespace."""
        return self._table.meta.name

    @property
    def table_id(self) -> str:
        """The table's id."""
        return self._table.table_id

    def planned(self, read_by_sql: Sequence[common_pb2.Read] = ()) -> Write:
        """Return the table's change. A table that is only read gets an UPDATE that changes no row."""
        table = self._table.view
        write = Write(table, common_pb2.OPERATION_UPDATE) if self.plan is None else self.plan(table)
        return replace(write.at(self.version), also_read=[*self.reads, *read_by_sql])

    @property
    def _spark(self) -> SparkSession:
        return self._txn.lake.spark

    @property
    def _uses_spark(self) -> bool:
        return self._txn.lake.uses_spark

    @property
    def _meta(self) -> catalog_pb2.Table:
        return self._table.meta

    def _by_catalog(
        self,
        plan: Callable[[TableView], CatalogWrite],
        options: WriteOptions,
        *,
        is_insert: bool = False,  # noqa: ARG002 - a table alone asks
    ) -> None:
        self._check_change(options)
        planned = plan(self._table.view)
        self._note_columns(planned.table)
        staged = self._txn.stage(planned, self.version)
        self.plan = lambda _: staged

    def _do(
        self,
        plan: Callable[[TableView], Write],
        options: WriteOptions,
        *,
        is_insert: bool = False,  # noqa: ARG002 - a table alone asks
        may_be_recent: bool = False,  # noqa: ARG002 - it is asked for anew
    ) -> None:
        self._check_change(options)
        planned = plan(self._table.view)  # what is wrong with it is said here
        self._note_columns(planned.table)
        self.plan = plan

    def add_missing_columns(self, columns: pa.Schema) -> None:
        """Refuse new columns: a transaction changes rows alone."""
        if len(columns):
            raise InputError(
                "COLUMN_MISSING",
                f"{self.name} lacks {', '.join(columns.names)}: add them before the transaction, by table.add_columns",
            )

    def _apply(self, plan: PlanChanges, options: WriteOptions) -> None:
        self._do(lambda table: plan(table).write, options)

    def _check_change(self, options: WriteOptions) -> None:
        self._txn.check_open()
        if options.on_conflict not in (None, "fail") or options.message or options.app is not None:
            raise InputError(
                "POLICY_INVALID",
                "inside a transaction on_conflict, message, app_id and app_version belong to the whole: "
                "lake.transaction(message, app_id=…, app_version=…)",
            )
        if self.plan is not None or self._txn.changes_by_sql(self.table_id):
            raise InputError("CHANGE_TWICE", f"a transaction holds one change per table: {self.name}")

    def _note_columns(self, planned: TableView) -> None:
        if planned is not self._table.view:  # the change added columns
            self._table.view = planned
            self.version = self._table.meta.head_version
