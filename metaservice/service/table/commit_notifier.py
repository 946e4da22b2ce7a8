"""Waits for a table's next commit without polling.

The decider rings once per group, whatever the number of waiters. A thread of its own finds the waiters with something
to see and wakes them. A waiter with nothing to see sleeps on a lock and costs nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from metaservice.service.decider.views import Views


class Waiter:
    """Sleeps until it is woken; an early wake is not lost."""

    __slots__ = ("_bell",)

    def __init__(self) -> None:
        self._bell = threading.Lock()
        self._bell.acquire()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was woken already
            self._bell.release()

    def sleep(self, timeout_s: float = -1) -> bool:
        """Sleep for at most this long, or without an end; tell whether it was woken."""
        return self._bell.acquire(timeout=timeout_s)


class CommitNotifier:
    """Waiters by table, each with the version that the table must pass."""

    def __init__(self, views: Callable[[], Views]) -> None:
        self._views = views
        self._waiting: dict[Waiter, tuple[str, int]] = {}
        self._mutex = threading.Lock()
        self._bell = Waiter()
        self._thread = threading.Thread(target=self._run, name="bells", daemon=True)
        self.stopping = False

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """Signals a possible change. Called on the decider's thread, which continues at once."""
        if self._waiting:
            self._bell.wake()

    def wait(self, waiter: Waiter, table_id: str, version: int) -> None:
        """Waits until the table passes the version or is dropped, the service stops, or the waiter is woken."""
        with self._mutex:
            self._waiting[waiter] = (table_id, version)
        try:
            if not self.is_due(table_id, version):
                waiter.sleep()
        finally:
            with self._mutex:
                del self._waiting[waiter]

    def stop(self) -> None:
        """Wakes all waiters; no one sleeps after this."""
        self.stopping = True
        self._bell.wake()

    def is_due(self, table_id: str, version: int) -> bool:
        """Whether there is something to see."""
        table = self._views().find(table_id)
        return self.stopping or table is None or table.head > version

    def _run(self) -> None:
        while True:
            self._bell.sleep()
            with self._mutex:
                waiting = list(self._waiting.items())
            for waiter, (table_id, version) in waiting:
                if self.is_due(table_id, version):
                    waiter.wake()
