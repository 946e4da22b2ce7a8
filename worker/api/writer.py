"""Single rows from many threads, committed in groups: for a web service, a consumer of a queue, a sensor.

    with table.writer(flush_rows=1_000, flush_ms=20) as writer:
        writer.write({"id": 1, "amount": 2.5}).result()     # waits until the row is durable
        await writer.write_async({"id": 2, "amount": 4.0})  # the same in a coroutine

A group commits when it has `flush_rows` rows, or when its first row is `flush_ms` old. While a group commits, the next
one fills. `write` waits while `rows_max` rows are waiting.

With `app_id` each row has a sequence number that grows. The table remembers the highest one that was committed, in the
same commit. A writer that begins anew leaves out rows up to it: read the source again from `writer.resume_after`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.write.transaction import Commit

FLUSH_ROWS: Final = 1_000
FLUSH_MS: Final = 20.0
ROWS_MAX: Final = 100_000

Row = Mapping[str, Any]
Send = Callable[[Sequence[Row], int | None], Commit]  # commits the rows, with the sequence number of the last one


@dataclass(slots=True)
class _Waiting:
    """A row on its way; its future gets the commit, or None if an earlier run had committed it."""

    row: Row
    sequence: int | None
    since: float
    done: Future[Commit | None] = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.done.set_running_or_notify_cancel()  # a row that was taken is not taken back


class TableWriter:
    """Collects rows and commits them in groups. Threads share it; `close`, or the end of `with`, commits the rest."""

    def __init__(
        self,
        send: Send,
        *,
        flush_rows: int = FLUSH_ROWS,
        flush_ms: float = FLUSH_MS,
        rows_max: int = ROWS_MAX,
        resume_after: int | None = None,
        is_numbered: bool = False,
    ) -> None:
        """`send` commits rows. `resume_after` is the highest sequence number that is committed already."""
        if flush_rows < 1 or flush_ms < 0 or rows_max < flush_rows:
            raise InputError(
                "WRITER_INVALID", "flush_rows is at least 1, flush_ms at least 0, rows_max at least flush_rows"
            )
        self.resume_after = resume_after
        self._send = send
        self._flush_rows = flush_rows
        self._flush_s = flush_ms / 1_000
        self._rows_max = rows_max
        self._is_numbered = is_numbered
        self._last = resume_after  # the sequence number of the last row that was taken
        self._rows: list[_Waiting] = []
        self._group: list[_Waiting] = []  # the rows that commit now
        self._changed = threading.Condition()
        self._flushes = 0  # how many callers wait for everything
        self._is_closed = False
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="laketx-writer", daemon=True)
        self._thread.start()

    def write(self, row: Row, *, sequence: int | None = None) -> Future[Commit | None]:
        """Takes a row, and returns a future of its commit. Waits while too many rows are waiting."""
        while True:
            taken = self._take(row, sequence)
            if taken is not None:
                return taken
            with self._changed:
                self._changed.wait_for(lambda: not self._is_full() or self._is_closed)

    async def write_async(self, row: Row, *, sequence: int | None = None) -> Commit | None:
        """Takes a row, and waits until it is durable; other coroutines run meanwhile."""
        taken = self._take(row, sequence)
        if taken is None:
            taken = await asyncio.to_thread(self.write, row, sequence=sequence)
        return await asyncio.wrap_future(taken)

    def flush(self) -> None:
        """Commits what waits, and returns when it is durable; raises what failed."""
        with self._changed:
            pending = [one.done for one in (*self._group, *self._rows)]
            self._flushes += 1
            self._changed.notify_all()
        try:
            for done in pending:
                done.result()
        finally:
            with self._changed:
                self._flushes -= 1

    def close(self) -> None:
        """Commits what waits, and ends; raises if the writer broke."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        if self._broken is not None:
            raise self._broken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, row: Row, sequence: int | None) -> Future[Commit | None] | None:
        """None while too many rows are waiting."""
        one = _Waiting(dict(row), sequence, time.monotonic())
        with self._changed:
            self._check(sequence)
            if self._is_full():
                return None
            if sequence is not None:
                if self.resume_after is not None and sequence <= self.resume_after:
                    one.done.set_result(None)
                    return one.done
                if self._last is not None and sequence <= self._last:
                    raise InputError("SEQUENCE_INVALID", f"{sequence} comes after {self._last}: numbers grow")
                self._last = sequence
            self._rows.append(one)
            if len(self._rows) in (1, self._flush_rows):
                self._changed.notify_all()
        return one.done

    def _is_full(self) -> bool:
        return len(self._rows) >= self._rows_max and self._broken is None

    def _check(self, sequence: int | None) -> None:
        if self._broken is not None:
            raise self._breakage() from self._broken
        if self._is_closed:
            raise InputError("WRITER_CLOSED", "this writer was closed")
        if self._is_numbered != (sequence is not None):
            hint = "with app_id each row has a sequence number" if self._is_numbered else "sequence needs an app_id"
            raise InputError("SEQUENCE_INVALID", hint)
        if sequence is not None and not 0 <= sequence < 1 << 63:
            raise InputError("SEQUENCE_INVALID", f"{sequence} is no whole number from 0")

    def _breakage(self) -> InputError:
        return InputError("WRITER_BROKEN", f"an earlier group failed, open another writer: {self._broken}")

    # -- the thread that commits

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._rows or self._is_closed)
                if not self._rows:
                    return
                self._wait_for_more()
                self._group, self._rows = self._rows[: self._flush_rows], self._rows[self._flush_rows :]
                self._changed.notify_all()
            self._commit(self._group)
            with self._changed:
                self._group = []
                if self._broken is None:
                    continue
                left, self._rows = self._rows, []
                self._changed.notify_all()
            for one in left:
                one.done.set_exception(self._breakage())
            return

    def _wait_for_more(self) -> None:
        while len(self._rows) < self._flush_rows and not self._is_closed and not self._flushes:
            left_s = self._rows[0].since + self._flush_s - time.monotonic()
            if left_s <= 0:
                return
            self._changed.wait(left_s)

    def _commit(self, group: list[_Waiting]) -> None:
        try:
            commit = self._send([one.row for one in group], group[-1].sequence)
        except BaseException as error:  # noqa: BLE001 - told to those who wait
            if isinstance(error, InputError) and len(group) > 1 and not self._is_numbered:
                # Only the wrong rows fail. Rows with numbers stay together: a later commit would say that all are
                # there.
                half = len(group) // 2
                self._commit(group[:half])
                self._commit(group[half:])
                return
            if self._is_numbered:
                self._broken = error
            for one in group:
                one.done.set_exception(error)
        else:
            for one in group:
                one.done.set_result(commit)


def latest_rows(rows: Sequence[Row], meta: catalog_pb2.Table) -> Iterable[Row]:
    """The last row of each key; all rows of a table without keys."""
    if not meta.primary_key:
        return rows
    where = [name.lower() for name in (*meta.partition_columns, *meta.primary_key)]
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        known = {name.lower(): value for name, value in row.items()}
        key = tuple(known.get(name) for name in where)
        found.pop(key, None)
        found[key] = row
    return found.values()
