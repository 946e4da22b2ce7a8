"""Work in the background of a worker: a thread looks what is due, pass by pass; each run has a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from metaservice.client import LakeTXError

POLL_S: Final = 1.0
IDLE_S: Final = 5.0  # between passes that find nothing to look after

log = logging.getLogger("laketx.worker")


class BackgroundRuns(ABC):
    """Runs what is due: `start`, later `stop`; or `run_once`. `what` is in the log and in the names of threads."""

    def __init__(self, what: str, poll_s: float) -> None:
        self._what = what
        self._poll_s = poll_s
        self._running: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"laketx-{what}", daemon=True)

    @abstractmethod
    def run_once(self) -> list[str]:
        """Looks once, and begins the runs that are due; returns their names."""

    @abstractmethod
    def _rest_s(self) -> float:
        """How long to rest after a pass."""

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Begins no run any more."""
        self._stopping.set()
        self._wake.set()

    def stop(self, wait_s: float) -> None:
        """Ends after the runs that are under way, if that is soon enough."""
        self.ask_to_stop()
        deadline = time.monotonic() + wait_s
        with self._lock:
            threads = [self._thread, *self._running.values()]
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def wait(self) -> None:
        """Until the runs that are under way have ended."""
        with self._lock:
            threads = list(self._running.values())
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self.run_once()
            except LakeTXError as error:
                log.warning("%s are not looked at: %s", self._what, error)
            except Exception:
                log.exception("a look at %s failed; it continues", self._what)
            self._wake.wait(self._rest_s())
            self._wake.clear()

    def _begin_run(self, run_id: str, work: Callable[[], None]) -> None:
        """Begins a run in a thread; the next pass comes at its end."""

        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    del self._running[run_id]
                self._wake.set()

        thread = threading.Thread(target=run, name=f"laketx-{self._what}-run", daemon=True)
        with self._lock:
            self._running[run_id] = thread
        thread.start()
