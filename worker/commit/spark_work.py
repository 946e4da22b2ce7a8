"""A transaction's work in Spark: with progress, cancelled when it can no longer commit, its failures explained."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from metaservice.client import ConflictError, Transaction
from worker.commit.spark_failures import explain
from worker.commit.stages import Stage, Staged
from worker.connection.lake_connection import Connection
from worker.spark.progress import progress
from worker.spark.session import cancel_jobs, job_tag

LOOK_EVERY_S: Final = 0.2


@contextmanager
def watched(lake: Connection, txn: Transaction, writes: Sequence[str], *, stops: bool) -> Iterator[None]:
    """Runs while Spark works on the writes: shows progress, and cancels its jobs when they can no longer commit."""
    with told_when_doomed(lake.spark, txn, stops=stops), progress(lake.spark, ", ".join(writes)):
        yield


def staged(work: Callable[[Stage], Staged], stage: Stage) -> Staged:
    try:
        return work(stage)
    except PySparkException as error:
        raise explain(error, stage.meta) or error from error


@contextmanager
def told_when_doomed(spark: SparkSession, txn: Transaction, *, stops: bool) -> Iterator[None]:
    """Cancels the Spark jobs of this thread when their transaction can no longer commit."""
    over = threading.Event()
    failure: Exception | None = None

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            if txn.lost is not None or (stops and txn.doomed is not None):
                cancel_jobs(spark, tag)

    watcher = threading.Thread(target=look, name="laketx-doom", daemon=True)
    with job_tag(spark, f"laketx-{txn.txn_id}") as tag:
        watcher.start()
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below, unless there is a reason behind it
            failure = error
        finally:
            over.set()
            watcher.join()
    if txn.lost is not None:
        raise txn.lost from failure
    if stops and txn.doomed is not None:
        raise ConflictError(txn.doomed) from failure
    if failure is not None:
        raise failure
