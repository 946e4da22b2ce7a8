"""Single rows from many threads, committed in groups: for a web service, a consumer of a queue, a sensor.

    with table.writer(flush_rows=1_000, flush_ms=20) as writer:
        writer.write({"id": 1, "amount": 2.5}).result()     # waits until the row is durable
        await writer.write_async({"id": 2, "amount": 4.0})  # the same in a coroutine

A group commits when it has `flush_rows` rows, or when its first row is `flush_ms` old. While a group commits, the next
group fills. `write` blocks while `rows_max` rows are waiting.

With `app_id` each row has an increasing sequence number. The commit of a row also stores the highest sequence number in
the table. A writer that starts again skips rows up to it: read the source again from `writer.resume_after`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from laketx.pending_rows import APPLIED, Group, PendingRow, Row
from metaservice.client import is_partial, key_spans_partitions
from metaservice.client.threads import start_thread
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.commit.writes import Commit

FLUSH_ROWS: Final = 1_000
FLUSH_MS: Final = 20.0
ROWS_MAX: Final = 100_000

Send = Callable[[Sequence[Row], int | None], Commit]  # commits the rows, with the sequence number of the last one


class TableWriter:
    """Collects rows and commits them in groups.

    Threads can share it; `close`, or the end of `with`, commits the rest.
    """

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
        """`send` commits rows. `resume_after` is the highest sequence number that is already committed."""
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
        self._groups: deque[Group] = deque()  # those that wait; the last one may have room
        self._waiting = 0  # their rows
        self._committing: Group | None = None
        self._changed = threading.Condition()
        self._flushes = 0  # how many callers wait for everything
        self._is_closed = False
        self._broken: BaseException | None = None
        self._thread = start_thread(self._run, "laketx-writer", self._end)

    def write(self, row: Row, *, sequence: int | None = None) -> PendingRow:
        """Accepts a row and returns a future of its commit. Blocks while too many rows are waiting.

            done = writer.write({"id": 1, "amount": 2.5})
            print(done.result().version)

        Raises InputError if the writer is closed or broken, or the sequence number is missing or too low. The future
        raises the error of a row that doesn't fit the table.
        """
        with self._changed:
            taken = self._take(row, sequence)
            # The row is in the queue before its thread waits: threads that wait are not overtaken by others.
            self._changed.wait_for(lambda: self._waiting <= self._rows_max or taken.done())
        return taken

    async def write_async(self, row: Row, *, sequence: int | None = None) -> Commit | None:
        """Accepts a row and waits until it is durable; other coroutines run in the meantime.

        Raises the errors of `write`.
        """
        with self._changed:
            taken = self._take(row, sequence)
        return await taken

    def flush(self) -> None:
        """Commits the waiting rows and returns when they are durable. Raises the error of a failed row."""
        with self._changed:
            committing = [] if self._committing is None else [self._committing]
            pending = [row for group in (*committing, *self._groups) for row in group.rows]
            self._flushes += 1
            self._changed.notify_all()
        try:
            for row in pending:
                row.result()
        finally:
            with self._changed:
                self._flushes -= 1

    def close(self) -> None:
        """Commits the waiting rows and ends the writer. Raises the error that broke the writer, if any."""
        self._end()
        self._thread.join()
        if self._broken is not None:
            raise self._broken

    def _end(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, row: Row, sequence: int | None) -> PendingRow:
        self._check(sequence)
        if sequence is not None:
            if self.resume_after is not None and sequence <= self.resume_after:
                return PendingRow(APPLIED, row, sequence)
            if self._last is not None and sequence <= self._last:
                raise InputError("SEQUENCE_INVALID", f"{sequence} comes after {self._last}: numbers grow")
            self._last = sequence
        if not self._groups or len(self._groups[-1].rows) == self._flush_rows:
            self._groups.append(Group(time.monotonic()))
        group = self._groups[-1]
        taken = PendingRow(group, dict(row), sequence)
        group.rows.append(taken)
        self._waiting += 1
        if self._waiting in (1, self._flush_rows):
            self._changed.notify_all()
        return taken

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
                self._changed.wait_for(lambda: self._groups or self._is_closed)
                if not self._groups:
                    return
                self._wait_for_more()
                group = self._committing = self._groups.popleft()
                self._waiting -= len(group.rows)
                self._changed.notify_all()
            self._commit(group.rows)
            group.finish()
            with self._changed:
                self._committing = None
                if self._broken is None:
                    continue
                left, self._waiting = list(self._groups), 0
                self._groups.clear()
                self._changed.notify_all()
            for group in left:
                for row in group.rows:
                    row.become(error=self._breakage())
                group.finish()
            return

    def _wait_for_more(self) -> None:
        while self._waiting < self._flush_rows and not self._is_closed and not self._flushes:
            left_s = self._groups[0].since + self._flush_s - time.monotonic()
            if left_s <= 0:
                return
            self._changed.wait(left_s)

    def _commit(self, rows: list[PendingRow]) -> None:
        commit = failed = None
        try:
            commit = self._send([pending.row for pending in rows], rows[-1].sequence)
        except BaseException as error:  # noqa: BLE001 - told to those who wait
            if isinstance(error, InputError) and len(rows) > 1 and not self._is_numbered:
                # Only the wrong rows fail. Rows with numbers stay together: a later commit would say that all are
                # there.
                half = len(rows) // 2
                self._commit(rows[:half])
                self._commit(rows[half:])
                return
            if self._is_numbered:
                self._broken = error
            failed = error
        for row in rows:
            row.become(commit, failed)


def latest_rows(rows: Sequence[Row], meta: catalog_pb2.Table) -> Iterable[Row]:
    """Return the last row of each key, with what it leaves as it is; for a table without keys, all rows."""
    if not meta.primary_key:
        return rows
    partition = () if key_spans_partitions(meta) else meta.partition_columns
    where = [name.lower() for name in (*partition, *meta.primary_key)]
    latest: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        given = {name.lower(): value for name, value in row.items()}
        key = tuple(given.get(name) for name in where)
        try:
            before = latest.pop(key, {})
        except TypeError as error:  # a list, say, which is refused alone
            raise InputError("VALUE_INVALID", f"a key of {meta.name} can't be {key}: {error}") from error
        kept = {name: value for name, value in before.items() if name.lower() not in given} if is_partial(meta) else {}
        latest[key] = {**kept, **row}
    return latest.values()
