"""Progress of Spark's jobs: a bar in terminals and notebooks, nothing elsewhere.

The environment variable LAKETX_PROGRESS decides: "off" never, "on" always. Otherwise the bar appears in notebooks, and
on standard error if that is a terminal in which Spark shows no bar of its own. It appears after a second and disappears
when the work is done. Writers in several threads get a line each.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from metaservice.terminal import printable
from worker.base.session import OWN_BAR, Counts, counting, is_classic

SWITCH: Final = "LAKETX_PROGRESS"
AFTER_S: Final = 1.0
LOOK_EVERY_S: Final = 0.25

_log = logging.getLogger("laketx.worker")


def _chosen() -> str:
    return os.environ.get(SWITCH, "").lower()


def is_shown(spark: SparkSession) -> bool:
    chosen = _chosen()
    if chosen in ("on", "off"):
        return chosen == "on"
    if Console(stderr=True).is_jupyter:
        return True
    return sys.stderr.isatty() and not (is_classic(spark) and spark.conf.get(OWN_BAR, "false") == "true")


@contextmanager
def progress(spark: SparkSession, title: str) -> Iterator[None]:
    """Shows the progress of the jobs that this thread starts in the block."""
    if not is_shown(spark):
        yield
        return
    with counting(spark) as count, _line(title, count):
        yield


# -- what is shown -----------------------------------------------------------------------------------------------------


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
                console = self._console or Console(stderr=True, force_terminal=_chosen() == "on" or None)
                columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
                self._bars = Progress(*columns, console=console, transient=True)
                self._bars.start()
            if line is None:
                line = self._bars.add_task(escape(printable(title)))
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
def _line(title: str, count: Callable[[], Counts]) -> Iterator[None]:
    over = threading.Event()

    def follow() -> None:
        line, wait_s = None, AFTER_S
        try:
            while not over.wait(wait_s):
                line, wait_s = _bars.show(line, title, count()), LOOK_EVERY_S
        except Exception:  # noqa: BLE001 - the work goes on without a bar
            _log.debug("no progress can be shown", exc_info=True)
        finally:
            if line is not None:
                _bars.end(line)

    follower = threading.Thread(target=follow, name="laketx-progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()
