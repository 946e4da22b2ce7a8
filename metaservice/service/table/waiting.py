"""Waiting for a table's next commit, without asking again and again.

The decider rings once a group, whatever the number of waiters; a thread of its own looks who has something to see and
wakes those. A waiter that has nothing to see sleeps on a lock and costs nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from metaservice.service.decider.views import Views


class Waiter:
    """Sleeps until it is woken; a wake that comes early is not lost."""

    __slots__ = ("_bell",)

    def __init__(self) -> None:
        self._bell = threading.Lock()
        self._bell.acquire()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was woken already
            self._bell.release()

    def sleep(self, timeout_s: float = -1) -> None:
        self._bell.acquire(timeout=timeout_s)


class Bells:
    """Who waits for which table to go beyond which version."""

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
        """Something may have changed. Called on the decider's thread, which goes on at once."""
        if self._waiting:
            self._bell.wake()

    def wait(self, waiter: Waiter, table_id: str, version: int) -> None:
        """Until the table goes beyond the version or is gone, the service stops, or somebody wakes the waiter."""
        with self._mutex:
            self._waiting[waiter] = (table_id, version)
        try:
            if not self._due(table_id, version):
                waiter.sleep()
        finally:
            with self._mutex:
                del self._waiting[waiter]

    def stop(self) -> None:
        """Wake all, and let nobody sleep any more."""
        self.stopping = True
        self._bell.wake()

    def _due(self, table_id: str, version: int) -> bool:
        table = self._views().find(table_id)
        return self.stopping or table is None or table.head > version

    def _run(self) -> None:
        while True:
            self._bell.sleep()
            with self._mutex:
                waiting = list(self._waiting.items())
            for waiter, (table_id, version) in waiting:
                if self._due(table_id, version):
                    waiter.wake()
