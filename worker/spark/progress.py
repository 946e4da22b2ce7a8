"""Progress of Spark's jobs: a bar in terminals and notebooks, unless Spark shows one of its own in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from worker.base import progress_bars
from worker.spark.session import OWN_BAR, counting, is_classic


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
