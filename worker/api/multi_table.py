"""Writes to several tables in one transaction, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from protos.laketx.v1 import common_pb2
from worker.api.cursors import Cursor
from worker.api.table import Table
from worker.api.verbs import Verbs
from worker.base.connection import Connection
from worker.base.errors import InputError
from worker.base.table_view import TableView
from worker.write.row_changes import condition_read
from worker.write.transaction import Commit, Write, WriteOptions, run_writes


class MultiTableTransaction:
    """Made by `lake.transaction()`. Its changes are staged and committed when the block ends.

    A table's version is fixed when it is first named: `txn.table(…).read()` shows that version, and the commit is
    judged against it. A block that ends with an exception changes nothing.
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

    def advance(self, cursor: Cursor) -> None:
        """Moves the cursor to the end of its last `changes`, together with the commit or not at all."""
        self.check_open()
        cursor.step()  # what is wrong with it is said here
        self._cursors.append(cursor)

    def table(self, name: str) -> TableInTransaction:
        table_id = self._ids.get(name)
        if table_id is None:  # the same table may be named in several ways
            table = self._open_table(name)
            table_id = self._ids[name] = table.table_id
            if table_id not in self._tables:
                self._tables[table_id] = TableInTransaction(self, table)
        return self._tables[table_id]

    def check_open(self) -> None:
        if self._is_over:
            raise InputError("TRANSACTION_OVER", "the block of this transaction has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        if error is not None:
            return
        changed = [one for one in self._tables.values() if one.plan is not None]
        read = [one for one in self._tables.values() if one.plan is None and one.reads]
        moves = [cursor.step() for cursor in self._cursors]
        if changed:
            commits = run_writes(
                self.lake,
                lambda: [
                    *[replace(one.planned(), app=self._app) for one in changed],
                    *[one.planned() for one in read],
                ],
                message=self.message,
                cursors=moves,
            )
            self.commits = commits[: len(changed)]
            for cursor in self._cursors:
                cursor.refresh()
        elif moves:
            raise InputError(
                "CHANGE_MISSING",
                "a cursor advances with a change of a table; to advance it alone, call cursor.advance()",
            )


class TableInTransaction(Verbs[None]):
    """One table of a transaction, at a fixed version; takes one change."""

    def __init__(self, txn: MultiTableTransaction, table: Table) -> None:
        self.plan: Callable[[TableView], Write] | None = None
        self.reads: list[common_pb2.Read] = []
        self.version = table.meta.head_version
        self._txn = txn
        self._table = table

    def read(self, where: str | None = None) -> DataFrame:
        """The rows at the version that the transaction is judged against.

        The transaction loses if another one changed what was read here, even if it changes nothing in this table
        itself. Under `maxcompute` reads don't count.
        """
        if self._table.meta.profile != "maxcompute":
            condition = condition_read(self._table.view, where)
            condition.changes_all = False
            self.reads.append(condition)
        return self._table.read(version=self.version, where=where)

    def planned(self) -> Write:
        """Its change. A table that is only read gets an UPDATE that changes no row."""
        table = self._table.view
        write = Write(table, common_pb2.OPERATION_UPDATE) if self.plan is None else self.plan(table)
        return replace(write.at(self.version), also_read=self.reads)

    @property
    def _spark(self) -> SparkSession:
        return self._txn.lake.spark

    def _do(
        self,
        plan: Callable[[TableView], Write],
        options: WriteOptions,
        *,
        is_insert: bool = False,  # noqa: ARG002 - a table alone asks
    ) -> None:
        self._txn.check_open()
        if options.on_conflict not in (None, "fail") or options.message or options.app is not None:
            raise InputError(
                "POLICY_INVALID",
                "inside a transaction on_conflict, message, app_id and app_version belong to the whole: "
                "lake.transaction(message, app_id=…, app_version=…)",
            )
        if self.plan is not None:
            raise InputError("CHANGE_TWICE", f"a transaction holds one change per table: {self._table.meta.name}")
        planned = plan(self._table.view)  # what is wrong with it is said here
        if planned.table is not self._table.view:  # it added columns
            self._table.view = planned.table
            self.version = self._table.meta.head_version
        self.plan = plan
