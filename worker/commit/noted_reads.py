"""What is read of tables while the rows of a write are read.

The rows may be computed from a table of the lake, somewhere behind polars, DuckDB or a generator, where no plan can be
looked at. So each read says what it reads while a write takes its rows. It is the write's if the write's own thread
reads, or a thread that Python did not start, such as those of polars and DuckDB.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from protos.laketx.v1 import common_pb2
from worker.connection.table_view import TableView

EVERYTHING = common_pb2.Predicate(literal=True)


@dataclass(frozen=True)
class ReadSource:
    """A table, under the schema of a version, of which rows are read."""

    table: TableView
    version: int
    is_filtered: bool = True  # False: more is read than the rows for which a condition is true


@dataclass(frozen=True)
class NotedRead:
    """A condition on the rows of a table at a version."""

    source: ReadSource
    predicate: common_pb2.Predicate


class Notes:
    """The reads that were made while rows were taken."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, int, bytes], NotedRead] = {}

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Note the reads of this thread in the block, in which rows are taken."""
        entry = (self, threading.get_ident())
        with _lock:
            _taking.append(entry)
        try:
            yield
        finally:
            with _lock:
                _taking.remove(entry)

    def add(self, source: ReadSource, predicate: common_pb2.Predicate) -> None:
        text = predicate.SerializeToString(deterministic=True)
        self._reads[(source.table.table_id, source.version, text)] = NotedRead(source, predicate)

    def all(self) -> list[NotedRead]:
        return list(self._reads.values())

    def clear(self) -> None:
        """The rows are to be taken anew."""
        self._reads.clear()


_taking: list[tuple[Notes, int]] = []
_lock = threading.Lock()


def note(source: ReadSource | None, where: common_pb2.Predicate | None) -> None:
    """Tells those who take rows now that this is read; None: a constant, such as a version that somebody named."""
    if source is None or not _taking:
        return
    is_foreign = isinstance(threading.current_thread(), threading._DummyThread)  # noqa: SLF001 - Python has no other word
    with _lock:
        listening = [notes for notes, thread in _taking if is_foreign or thread == threading.get_ident()]
    for notes in listening:
        notes.add(source, EVERYTHING if where is None or not source.is_filtered else where)
