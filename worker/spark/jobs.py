"""The jobs that a thread starts in a session: their tags, their end, their failures, and a bar for progress.

The bar is for terminals and notebooks, unless Spark shows one of its own in the terminal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from metaservice.client import uuid7
from protos.laketx.v1 import catalog_pb2
from worker.base import progress_bars
from worker.base.errors import InputError
from worker.spark.session import OWN_BAR, await_tasks, is_classic, job_ids

Counts = tuple[int, int]  # of tasks: done, and known so far
GROUP_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
TASKS_END_MS: Final = 60_000  # a failed export waits for its tasks as long
# SQL's class of states for values: an overflow, a division by zero, a text that is no number
DATA_EXCEPTION: Final = "22"
RAISED: Final = "P0001"  # by raise_error


@contextmanager
def job_tag(spark: SparkSession, tag: str) -> Iterator[str]:
    """Tags the jobs that this thread starts. In classic Spark a session's own tags cancel nothing."""
    context = spark.sparkContext if is_classic(spark) else None
    add, remove = (context.addJobTag, context.removeJobTag) if context else (spark.addTag, spark.removeTag)
    add(tag)
    try:
        yield tag
    finally:
        remove(tag)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    if is_classic(spark):
        spark.sparkContext.cancelJobsWithTag(tag)
    else:
        spark.interruptTag(tag)


@contextmanager
def failed_tasks_awaited(spark: SparkSession, tag: str) -> Iterator[None]:
    """Around jobs: if they fail, waits until none of their tasks runs, since the others go on until they notice."""
    with job_tag(spark, tag):
        try:
            yield
        except BaseException:
            await_tasks(spark, tag, TASKS_END_MS)
            raise


@contextmanager
def job_group(spark: SparkSession, group: str, description: str) -> Iterator[None]:
    """Names the jobs that this thread starts, for Spark's UI; Spark Connect has no such names."""
    if not is_classic(spark):
        yield
        return
    context: Any = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in GROUP_PROPERTIES}
    context.setJobGroup(group, description, interruptOnCancel=False)
    try:
        yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)


# -- progress ----------------------------------------------------------------------------------------------------------


def is_shown(spark: SparkSession) -> bool:
    return progress_bars.is_wanted(not (is_classic(spark) and spark.conf.get(OWN_BAR, "false") == "true"))


@contextmanager
def progress(spark: SparkSession, title: str) -> Iterator[None]:
    """Shows the progress of the jobs that this thread starts in the block."""
    if not is_shown(spark):
        yield
        return
    with counting(spark) as count, progress_bars.line(title, count):
        yield


@contextmanager
def counting(spark: SparkSession) -> Iterator[Callable[[], Counts]]:
    """Counts the tasks of the jobs that this thread starts in the block."""
    if not is_classic(spark):
        with _by_handler(spark) as count:
            yield count
        return
    with job_tag(spark, f"laketx-progress-{uuid7()}") as tag:
        yield lambda: tagged_counts(spark, tag)


def tagged_counts(spark: SparkSession, tag: str) -> Counts:
    """Counts the tasks of the jobs with the tag; Spark Connect doesn't report them."""
    done = total = 0
    if is_classic(spark):
        tracker = spark.sparkContext.statusTracker()
        for job_id in job_ids(spark, tag):
            job = tracker.getJobInfo(job_id)
            for stage_id in job.stageIds if job is not None else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    done, total = done + stage.numCompletedTasks, total + stage.numTasks
    return done, total


@contextmanager
def _by_handler(spark: SparkSession) -> Iterator[Callable[[], Counts]]:
    """Spark Connect reports progress to the thread that waits for an operation."""
    me = threading.get_ident()
    seen: dict[str, Counts] = {}

    def hear(stages: Any, operation_id: str | None, **_: object) -> None:
        if threading.get_ident() == me:
            listed = list(stages or ())
            counts = sum(stage.num_completed_tasks for stage in listed), sum(stage.num_tasks for stage in listed)
            seen[operation_id or ""] = counts

    def count() -> Counts:
        counts = list(seen.values())
        return sum(done for done, _ in counts), sum(total for _, total in counts)

    handler: Any = hear
    spark.registerProgressHandler(handler)
    try:
        yield count
    finally:
        spark.removeProgressHandler(handler)


def explain(error: Exception, meta: catalog_pb2.Table) -> InputError | None:
    """Return the InputError for a failure that the caller's rows or expressions caused; None for any other."""
    if not isinstance(error, PySparkException):
        return None
    state = error.getSqlState() or ""
    if state.startswith(DATA_EXCEPTION) or state == RAISED:
        message = (error.getMessage() or str(error)).strip()
        return InputError("VALUE_INVALID", f"a value can't be computed or doesn't fit {meta.name}: {message}")
    return None
