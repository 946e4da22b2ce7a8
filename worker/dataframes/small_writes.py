"""Few rows of a primary-key table, written by the driver: a Spark job that writes them would cost more.

They arrive as Arrow, with the bucket that Spark computed for each, and go into files as Spark would have staged them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from protos.laketx.v1 import common_pb2

ROWS_MAX: Final = 20_000
BYTES_MAX: Final = 8 << 20  # as the table's files have them, which are compressed


def few_of(files: Collection[common_pb2.DataFile]) -> int:
    """The number of rows, like those of these files, that the driver writes itself."""
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    return min(ROWS_MAX, BYTES_MAX * rows // size) if size else ROWS_MAX


def collected(placed: DataFrame, few: int) -> pa.Table | None:
    """The rows; None if there are too many for the driver. Spark's own write then reports any other error."""
    try:
        found = placed.limit(few + 1).toArrow()
    except PySparkException:
        return None
    return found if len(found) <= few else None
