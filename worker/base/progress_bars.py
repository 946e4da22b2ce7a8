"""Bars of work that takes a while: on a terminal or in a notebook, nothing elsewhere.

The environment variable LAKETX_PROGRESS decides: "off" never, "on" always. A bar appears after a second and disappears
when the work is done. Work in several threads gets a line each.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from metaservice.shared.terminal import printable

SWITCH: Final = "LAKETX_PROGRESS"
AFTER_S: Final = 1.0
LOOK_EVERY_S: Final = 0.25
Counts = tuple[int, int]  # done, and known so far

_log = logging.getLogger("laketx.worker")


def is_wanted(on_terminal: bool = True) -> bool:
    """`on_terminal`: whether a terminal shows the bar, or something else there does."""
    chosen = os.environ.get(SWITCH, "").lower()
    if chosen in ("on", "off"):
        return chosen == "on"
    return Console(stderr=True).is_jupyter or (sys.stderr.isatty() and on_terminal)


class Bars:
    """The lines of all threads, in one place on the screen; visible while one of them has something to show."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._bars: Progress | None = None
        self._lines = 0

    def show(self, line: TaskID | None, title: str, counts: Counts) -> TaskID:
        with self._lock:
            if self._bars is None:
                always = os.environ.get(SWITCH, "").lower() == "on"
                console = self._console or Console(stderr=True, force_terminal=always or None)
                columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
                self._bars = Progress(*columns, console=console, transient=True)
                self._bars.start()
            if line is None:
                line = self._bars.add_task(escape(printable(title)), total=None)
                self._lines += 1
            self._bars.update(line, completed=counts[0], total=counts[1] or None)
            return line

    def end(self, line: TaskID) -> None:
        with self._lock:
            if self._bars is not None:
                self._bars.remove_task(line)
                self._lines -= 1
                if not self._lines:
                    self._bars.stop()
                    self._bars = None


_bars = Bars()


@contextmanager
def line(title: str, count: Callable[[], Counts]) -> Iterator[None]:
    """A line in which the counts of the block's work are shown."""
    over = threading.Event()

    def follow() -> None:
        task, wait_s = None, AFTER_S
        try:
            while not over.wait(wait_s):
                task, wait_s = _bars.show(task, title, count()), LOOK_EVERY_S
        except Exception:  # noqa: BLE001 - the work goes on without a bar
            _log.debug("no progress can be shown", exc_info=True)
        finally:
            if task is not None:
                _bars.end(task)

    follower = threading.Thread(target=follow, name="laketx-progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()
