"""What a Spark session with its JVM at hand can do cheaper than a Connect session, and tells of itself."""

# ruff: noqa: SLF001 - Python's Spark has no public way to either

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from worker.base.session import is_classic

_LOCAL: Final = re.compile(r"local(\[.*\])?\Z")


def parquet(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame | None:
    """A scan whose paths go to the JVM in one call, in the public way one for each; None where there is none."""
    session: Any = getattr(reader, "_spark", None)
    jvm = getattr(session, "_jvm", None) if hasattr(reader, "_jreader") else None
    if jvm is None or any("\n" in path for path in paths):
        return None
    listed = jvm.java.util.regex.Pattern.compile("\n").split("\n".join(paths))
    return reader._df(reader._jreader.parquet(listed))


def listed_bytes(scan: DataFrame) -> int | None:
    """The size of a scan's files together, as Spark found them; None where that isn't told."""
    frame: Any = getattr(scan, "_jdf", None)
    return None if frame is None else int(frame.queryExecution().analyzed().stats().sizeInBytes())


def own_cores(spark: SparkSession) -> int:
    """How many tasks a session runs at once in the driver itself; 0 where executors run them, or that isn't known."""
    if not is_classic(spark) or not _LOCAL.match(spark.sparkContext.master or ""):
        return 0
    return spark.sparkContext.defaultParallelism
