"""Rows that wait for the commit of their group, and the callers who wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from worker.base.logs import log
from worker.commit.writes import Commit

Row = Mapping[str, Any]


class Group:
    """Rows that commit together."""

    __slots__ = ("callbacks", "changed", "is_done", "rows", "since")

    def __init__(self, since: float) -> None:
        """`since` is the time of the first row, by a monotonic clock."""
        self.since = since
        self.rows: list[PendingRow] = []
        self.changed = threading.Condition()
        self.is_done = False
        self.callbacks: list[tuple[Callable[[PendingRow], object], PendingRow]] = []

    def finish(self) -> None:
        """Wake the callers, after all rows have their outcome."""
        with self.changed:
            self.is_done = True
            self.changed.notify_all()
        for tell_row, row in self.callbacks:
            _call(tell_row, row)
        self.callbacks.clear()
        self.rows.clear()  # rows know their group: a circle would wait for the garbage collector


class PendingRow:
    """A row that a writer accepted. It gets a commit, None if an earlier run had committed it, or an error.

    It behaves like `concurrent.futures.Future` but is smaller: rows of a group share the lock on which their callers
    wait. In coroutines, `await` it.
    """

    __slots__ = ("_commit", "_error", "_group", "row", "sequence")

    def __init__(self, group: Group, row: Row, sequence: int | None) -> None:
        self._group = group
        self._commit: Commit | None = None
        self._error: BaseException | None = None
        self.row = row
        self.sequence = sequence

    def done(self) -> bool:
        """Returns whether the row has its outcome."""
        return self._group.is_done

    def result(self, timeout: float | None = None) -> Commit | None:
        """Waits until the row is durable and returns its commit.

        Raises the row's error, or TimeoutError after that many seconds.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._commit

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the outcome and returns the row's error, or None. Raises TimeoutError after that many seconds."""
        group = self._group
        with group.changed:
            if not group.changed.wait_for(lambda: group.is_done, timeout):
                raise TimeoutError
        return self._error

    def add_done_callback(self, call: Callable[[PendingRow], object]) -> None:
        """Calls the function with this row when the row is done, on the writer's thread; at once if it is done."""
        with self._group.changed:
            if not self._group.is_done:
                self._group.callbacks.append((call, self))
                return
        _call(call, self)

    def __await__(self) -> Generator[Any, None, Commit | None]:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self.add_done_callback(lambda _: loop.call_soon_threadsafe(_wake, waiter))
        yield from waiter
        return self.result()

    def become(self, commit: Commit | None = None, error: BaseException | None = None) -> None:
        """Set the row's outcome."""
        self._commit = commit
        self._error = error


APPLIED: Final = Group(0.0)  # of rows that an earlier run had committed
APPLIED.finish()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # its coroutine may have been cancelled
        waiter.set_result(None)


def _call(call: Callable[[PendingRow], object], row: PendingRow) -> None:
    try:
        call(row)
    except Exception:  # noqa: BLE001 - a caller's mistake must not stop the writer
        log.exception("a callback of a row failed")
