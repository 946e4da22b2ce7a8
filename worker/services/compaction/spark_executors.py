"""Chunks as tasks of one Spark job: each in one of Spark's long-lived Python processes, by the same code."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from metaservice.client import uuid7
from worker.services.compaction.chunks import Chunk, Result, Settings, run_chunk
from worker.services.compaction.jobs import Job
from worker.spark.jobs import cancel_jobs, job_group, job_tag
from worker.spark.session import is_classic

RESULTS_DDL: Final = "result binary"


class SparkExecutors:
    """The runner of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, settings: Settings, chunks: Sequence[Chunk], job: Job) -> list[Result]:
        job.begins(chunks)
        spark, tag = self._spark, f"laketx-compact-{uuid7()}"
        work = pa.table(
            {
                "at": pa.array(range(len(chunks)), pa.int32()),
                "work": pa.array([pickle.dumps((at, settings, chunk)) for at, chunk in enumerate(chunks)], pa.binary()),
            }
        )
        name = f"compaction of {settings.table.name}"
        with job_group(spark, tag, name), job_tag(spark, tag), job.stopped_by(lambda: cancel_jobs(spark, tag)):
            try:
                spread = spark.createDataFrame(work).repartitionById(len(chunks), "at").select("work")
                answer = spread.mapInArrow(_run_in_batches, RESULTS_DDL).toArrow()
            except Exception:
                job.check()
                raise
        results = dict(pickle.loads(result.as_py()) for result in answer.column(0))  # noqa: S301 - made by this job's tasks
        for chunk in chunks:
            job.did(chunk)
        return [results[at] for at in range(len(chunks))]


def _run_in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    for batch in batches:
        for pickled in batch.column(0):
            at, settings, chunk = pickle.loads(pickled.as_py())  # noqa: S301 - made by the driver of this job
            result = pickle.dumps((at, run_chunk(settings, chunk, attempt)))
            yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])


def are_elsewhere(spark: SparkSession) -> bool:
    """Whether the session's executors are other machines than this one, which may alone reach the files."""
    return not is_classic(spark) or not (spark.sparkContext.master or "").startswith("local")
