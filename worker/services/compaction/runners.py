"""Which runner does a lake's compactions, unless another one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.base.lazy_modules import LazyModule
from worker.connection.lake_connection import Connection
from worker.services.compaction.jobs import Runner
from worker.services.compaction.processes import Processes

if TYPE_CHECKING:
    from worker.services.compaction import spark_executors
else:
    spark_executors = LazyModule("worker.services.compaction.spark_executors")


def runner_of(lake: Connection) -> Runner:
    """Processes of this machine; the executors of a Spark session that has them elsewhere."""
    if lake.uses_spark and spark_executors.are_elsewhere(lake.spark):
        return on_spark(lake)
    return Processes()


def on_spark(lake: Connection) -> Runner:
    """The executors of the lake's session, which is started if there is none."""
    return spark_executors.SparkExecutors(lake.spark)
