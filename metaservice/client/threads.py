"""Threads of a client, which end before the interpreter does.

An interpreter that ends unwinds the threads that are left, through the C++ of gRPC and Arrow too, which aborts the
process: python/cpython#87135, until Python 3.14. So a program that ends without `close` stops them here first.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

END_S: Final = 2.0  # a thread that hangs in a call to a service that is away holds nobody up for longer

_running: dict[threading.Thread, Callable[[], None]] = {}


def start_thread(work: Callable[[], None], name: str, stop: Callable[[], None]) -> threading.Thread:
    """Starts a daemon thread. `stop` makes it end soon, and may be called at any time, and twice."""

    def run() -> None:
        try:
            work()
        finally:
            _running.pop(thread, None)

    thread = threading.Thread(target=run, name=name, daemon=True)
    _running[thread] = stop
    thread.start()
    return thread


@atexit.register
def stop_threads() -> None:
    """Stops the threads that are left, the newest first: it may use an older one, and begin another."""
    until_s = time.monotonic() + END_S
    while _running:
        with suppress(KeyError):  # the last one has just ended
            thread, stop = _running.popitem()
            stop()
            thread.join(max(until_s - time.monotonic(), 0.0))


os.register_at_fork(after_in_child=_running.clear)  # a forked process has none of them
