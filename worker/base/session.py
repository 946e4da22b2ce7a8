"""Spark jobs of a thread: marked, so that they can be found and cancelled. Classic Spark and Spark Connect differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


def is_classic(spark: SparkSession) -> bool:
    """Not Spark Connect, which has no `sparkContext`."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def job_tag(spark: SparkSession, tag: str) -> Iterator[str]:
    """Marks the jobs that this thread starts. A session's own tags cancel nothing in classic Spark."""
    if is_classic(spark):
        spark.sparkContext.addJobTag(tag)
        try:
            yield tag
        finally:
            spark.sparkContext.removeJobTag(tag)
    else:
        spark.addTag(tag)
        try:
            yield tag
        finally:
            spark.removeTag(tag)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    if is_classic(spark):
        spark.sparkContext.cancelJobsWithTag(tag)
    else:
        spark.interruptTag(tag)
