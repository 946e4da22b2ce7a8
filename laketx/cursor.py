"""Cursors: positions of readers of increments. The service keeps all later commits for the cursor's reader.

    cursor = table.cursor("nightly")
    rows = cursor.changes()                        # the changes since the last time; cursor.to_arrow() without Spark
    with lake.transaction() as txn:
        txn.table("summary").insert(summed(rows))
        txn.advance(cursor)                        # both or neither

Without a transaction, call `cursor.advance()` after processing the rows: after a crash in between they are read again.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Unpack

from laketx.arrow_reads import ArrowMethods, scan_of
from protos.laketx.v1 import read_pb2, transaction_pb2
from worker.arrow.scan.scanner import ArrowScan, ReadOptions
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.connection.table_view import TableView
from worker.connection.versions import version_at, zone_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from worker.dataframes import changes
else:
    changes = LazyModule("worker.dataframes.changes")


class Cursor(ArrowMethods):
    """A position in a table's history, made by `table.cursor`.

    It has one reader at a time: a second reader's step is refused.

    changes                                            the changes since the position, as a DataFrame of Spark
    to_arrow, to_pandas, to_polars, scanner, count     the same without Spark
    advance, step                                      moves to the end of the last read
    """

    def __init__(self, table: TableView, stored: read_pb2.Cursor) -> None:
        self.table = table
        self._stored = stored
        self._read_to: int | None = None

    def __repr__(self) -> str:
        return f"Cursor({self.name!r} of {self.table.name!r}, version {self.version})"

    @property
    def name(self) -> str:
        """The cursor's name."""
        return self._stored.name

    @property
    def version(self) -> int:
        """The last version that the cursor's reader has processed."""
        return self._stored.version

    @property
    def read_to(self) -> int | None:
        """The end of the last `changes` or `scanner`, to which the next `advance` moves the cursor."""
        return self._read_to

    def changes(self, *, mode: str = "latest", until: int | None = None) -> DataFrame:
        """Returns the changes after the cursor's position, up to the newest version or `until`.

        The cursor does not move.

        Raises InputError for an unknown mode, InvalidError for an `until` above the newest version.
        """
        head = self.table.client.resolve_version(self.table.table_id, version=until).version
        rows = changes.read_changes(self.table, since=self.version, until=head, mode=mode)
        self._read_to = head
        return rows

    def scanner(self, **options: Unpack[ReadOptions]) -> ArrowScan:
        """Returns the changes after the position without Spark; `to_arrow` and the like have the same arguments.

            cursor.to_arrow(mode="changes", columns=["id", "amount"])

        The arguments are mode, until (a version), columns, where and limit. The cursor does not move.

        Raises InputError if a version, a time or a tag is given.
        """
        own = sorted(options.keys() & {"since", "version", "timestamp", "commits_ago", "tag"})
        if own:
            raise InputError("RANGE_INVALID", f"a cursor reads from its own position: leave out {', '.join(own)}")
        until = options.get("until")
        zone = partial(zone_of, self.table.lake)
        head = self.table.client.resolve_version(self.table.table_id).version
        end = head if until is None else version_at(self.table, until, zone)
        scan = scan_of(self.table, {**options, "since": self.version, "until": end})
        self._read_to = end
        return scan

    def advance(self) -> int:
        """Moves the cursor to the end of the last `changes` or `scanner`; returns the new position.

        Raises InputError if nothing was read, StaleError if another reader has moved the cursor.
        """
        move = self.step()
        client = self.table.client
        self._stored = client.advance_cursor(move.table_id, move.name, move.expected_version, move.version)
        self._read_to = None
        return self.version

    def step(self) -> transaction_pb2.CursorMove:
        """Returns the step of `advance`, for the commit of a transaction.

        Raises InputError if nothing was read.
        """
        if self._read_to is None:
            raise InputError("CURSOR_UNREAD", f"read the changes of {self.name} first: it goes to where they end")
        return transaction_pb2.CursorMove(
            table_id=self.table.table_id, name=self.name, expected_version=self.version, version=self._read_to
        )

    def refresh(self) -> Cursor:
        """Loads the cursor's current position. Raises NotFoundError if the cursor was dropped."""
        self._stored = self.table.client.create_cursor(self.table.table_id, self.name, must_exist=True).cursor
        self._read_to = None
        return self

    def drop(self) -> None:
        """Drops the cursor: it no longer keeps old versions."""
        self.table.client.drop_cursor(self.table.table_id, self.name)


def cursor_of(table: TableView, name: str, version: int | None, keep: timedelta | None) -> Cursor:
    """Return the cursor of that name; create it if it doesn't exist."""
    keep_ms = 0 if keep is None else max(round(keep / timedelta(milliseconds=1)), 1)
    answer = table.client.create_cursor(table.table_id, name, version=version, keep_ms=keep_ms)
    return Cursor(table, answer.cursor)
