"""Progress of Spark's jobs: a bar in terminals and notebooks, unless Spark shows one of its own in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from worker.base import bars
from worker.base.session import OWN_BAR, counting, is_classic


def is_shown(spark: SparkSession) -> bool:
    return bars.is_wanted(not (is_classic(spark) and spark.conf.get(OWN_BAR, "false") == "true"))


@contextmanager
def progress(spark: SparkSession, title: str) -> Iterator[None]:
    """Shows the progress of the jobs that this thread starts in the block."""
    if not is_shown(spark):
        yield
        return
    with counting(spark) as count, bars.line(title, count):
        yield
