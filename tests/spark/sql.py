"""A lake's tables in Spark SQL, for tests of the catalog."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.reading import LabTable, shown, union
from worker.connection.lake_connection import Connection

_numbers = itertools.count()


def catalog_of(lake: Connection) -> str:
    """A name that the session knows the lake by, and nothing else."""
    return lake.as_catalog(f"sql{next(_numbers)}")


class SqlReads:
    """Reads of one lake by SQL."""

    def __init__(self, lake: Connection) -> None:
        self.spark: SparkSession = lake.spark
        self.name = catalog_of(lake)

    def __call__(self, statement: str) -> DataFrame:
        """`{lake}` is the catalog's name."""
        return self.spark.sql(statement.replace("{lake}", self.name))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return shown(self(statement))

    def text(self, statement: str) -> str:
        """The physical plan."""
        return str(self(statement)._jdf.queryExecution().executedPlan().toString())

    def tasks(self, statement: str) -> int:
        """Of the scan."""
        return int(self(statement).rdd.getNumPartitions())

    def read_bytes(self, statement: str) -> int:
        """Bytes that its tasks read. Of many stages Spark soon forgets those that it skipped."""
        context, group = self.spark.sparkContext, f"read-{next(_numbers)}"
        context.setJobGroup(group, statement)
        self(statement).collect()
        context.setLocalProperty("spark.jobGroup.id", "")
        context._jsc.sc().listenerBus().waitUntilEmpty()
        store, tracker = context._jsc.sc().statusStore(), context.statusTracker()
        jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
        stages = [stage for job in jobs if job is not None for stage in job.stageIds]
        known = [stage for stage in stages if tracker.getStageInfo(stage) is not None]
        assert known
        return sum(int(store.lastStageAttempt(stage).inputBytes()) for stage in known)

    def table(self, name: str, version: int | None = None) -> DataFrame:
        at = "" if version is None else f" VERSION AS OF {version}"
        return self(f"SELECT * FROM {{lake}}.{name}{at}")

    def check(self, table: LabTable, versions: Sequence[int] | None = None) -> None:
        """Every version, in one job."""
        wanted = list(table.at) if versions is None else versions
        frames = [self.table(table.meta.name, version).selectExpr(f"{version} as _v", "*") for version in wanted]
        found: dict[int, list[str]] = {version: [] for version in wanted}
        for one in union(frames).collect():
            found[one[0]].append(repr(tuple(one)[1:]))
        for version in wanted:
            names = [
                column.name for column in table.lake.client.get_table(table_id=table.table_id, version=version).columns
            ]
            expected = [repr(tuple(row[name] for name in names)) for row in table.at[version].values()]
            assert sorted(found[version]) == sorted(expected), version
