"""A compaction's chunks while they run: how much of them is done, and how they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from metaservice.client import LakeTXError
from worker.services.compaction.chunks import Chunk, Result, Settings


class CompactionStoppedError(LakeTXError):
    """The work was stopped from outside: its task was cancelled, or its transaction can no longer commit."""


class ProcessKilledError(LakeTXError):
    """A process that worked on a compaction ended without an answer. Nothing was committed."""


class Job:
    """Threads may share it: one works, others look at its progress or cancel it."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self._bytes = self._bytes_done = 0

    def cancel(self) -> None:
        """Stops what runs, and lets nothing begin. Calling it again does no harm."""
        self._cancelled.set()
        with self._lock:
            stops = list(self._stops)
        for stop in stops:
            stop()

    def check(self) -> None:
        """Raises an error if the job was cancelled."""
        if self._cancelled.is_set():
            raise CompactionStoppedError("the compaction was stopped")

    @contextmanager
    def stopped_by(self, stop: Callable[[], None]) -> Iterator[None]:
        """Registers what stops a part of the work while the block runs."""
        with self._lock:
            self._stops.append(stop)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)

    def begins(self, chunks: Sequence[Chunk]) -> None:
        with self._lock:
            self._bytes += sum(map(bytes_of, chunks))

    def did(self, chunk: Chunk) -> None:
        with self._lock:
            self._bytes_done += bytes_of(chunk)

    @property
    def progress(self) -> float:
        """The fraction of the input's bytes that is done."""
        with self._lock:
            return self._bytes_done / self._bytes if self._bytes else 0.0


class Runner(Protocol):
    """Runs chunks: in processes of this machine, or on Spark's executors."""

    def run(self, settings: Settings, chunks: Sequence[Chunk], job: Job) -> list[Result]:
        """The results in the order of the chunks."""


def bytes_of(chunk: Chunk) -> int:
    return sum(file.bytes for file in chunk.files)
