"""How far Spark's jobs are: a bar in terminals and notebooks, nothing elsewhere.

The environment's LAKETX_PROGRESS decides: "off" never, "on" always, anything else in notebooks, and where standard
error is a terminal in which Spark shows no bar of its own. A bar appears after a second and is gone when the work is
done. Writers in several threads have a line each.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from metaservice.client import uuid7
from metaservice.terminal import printable
from worker.base.session import is_classic, job_tag

SWITCH: Final = "LAKETX_PROGRESS"
OWN_BAR: Final = "spark.ui.showConsoleProgress"
AFTER_S: Final = 1.0
LOOK_EVERY_S: Final = 0.25

_log = logging.getLogger("laketx.worker")

Counts = tuple[int, int]  # of tasks: done, and known so far


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
    """Shows how far the jobs are that this thread starts in the block."""
    if not is_shown(spark):
        yield
        return
    with counting(spark) as count, _line(title, count):
        yield


# -- what is counted ---------------------------------------------------------------------------------------------------


@contextmanager
def counting(spark: SparkSession) -> Iterator[Callable[[], Counts]]:
    """Counts the tasks of the jobs that this thread starts in the block."""
    if not is_classic(spark):
        with _by_handler(spark) as count:
            yield count
        return
    with job_tag(spark, f"laketx-progress-{uuid7()}") as tag:
        yield _by_tag(spark, tag)


def _by_tag(spark: SparkSession, tag: str) -> Callable[[], Counts]:
    tracker = spark.sparkContext.statusTracker()
    by_tag: Any = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - Python's own knows groups alone

    def count() -> Counts:
        done = known = 0
        for job_id in by_tag.getJobIdsForTag(tag):
            job = tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job is not None else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    done, known = done + stage.numCompletedTasks, known + stage.numTasks
        return done, known

    return count


@contextmanager
def _by_handler(spark: SparkSession) -> Iterator[Callable[[], Counts]]:
    """Spark Connect tells the thread that waits for an operation."""
    me = threading.get_ident()
    seen: dict[str, Counts] = {}

    def hear(stages: Any, operation_id: str | None, **_: object) -> None:
        if threading.get_ident() == me:
            listed = list(stages or ())
            counts = sum(one.num_completed_tasks for one in listed), sum(one.num_tasks for one in listed)
            seen[operation_id or ""] = counts

    def count() -> Counts:
        counts = list(seen.values())
        return sum(done for done, _ in counts), sum(known for _, known in counts)

    handler: Any = hear
    spark.registerProgressHandler(handler)
    try:
        yield count
    finally:
        spark.removeProgressHandler(handler)


# -- what is shown -----------------------------------------------------------------------------------------------------


class Bars:
    """The lines of all threads, in one place on the screen; there while one of them has something to show."""

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
