"""What a Spark session with its JVM at hand can do cheaper than a Connect session; both answer None where it can't."""

# ruff: noqa: SLF001 - Python's Spark has no public way to either

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader


def parquet(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame | None:
    """A scan whose paths go to the JVM in one call; in the public way it is one for each."""
    session: Any = getattr(reader, "_spark", None)
    jvm = getattr(session, "_jvm", None) if hasattr(reader, "_jreader") else None
    if jvm is None or any("\n" in path for path in paths):
        return None
    listed = jvm.java.util.regex.Pattern.compile("\n").split("\n".join(paths))
    return reader._df(reader._jreader.parquet(listed))


def listed_bytes(scan: DataFrame) -> int | None:
    """The size of a scan's files together, as Spark found them."""
    frame: Any = getattr(scan, "_jdf", None)
    return None if frame is None else int(frame.queryExecution().analyzed().stats().sizeInBytes())
