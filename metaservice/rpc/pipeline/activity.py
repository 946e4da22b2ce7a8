"""The time without calls, for a server that stops by itself."""

from __future__ import annotations

import threading
import time
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError

FIRST_CALL_S: Final = 5.0  # the caller that started the server, or waits for it, needs time to call


class Activity:
    """Counts the calls under way, streams included. Once closed it refuses calls."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._calls = 0
        self._ended_s = time.monotonic() + FIRST_CALL_S
        self._closed = False

    def begin(self) -> None:
        with self._mutex:
            if self._closed:
                raise MetaError(ErrorKind.UNAVAILABLE, "STOPPING")
            self._calls += 1

    def end(self) -> None:
        with self._mutex:
            self._calls -= 1
            self._ended_s = time.monotonic()

    def close_if_idle(self, idle_s: float) -> float:
        """Closes and returns 0 if nothing was under way for this long; otherwise the seconds until that may be so."""
        with self._mutex:
            left_s = idle_s if self._calls else self._ended_s + idle_s - time.monotonic()
            self._closed = left_s <= 0
            return max(left_s, 0.0)
