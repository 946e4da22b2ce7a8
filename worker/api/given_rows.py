"""Rows as users pass them: a Spark DataFrame, or a table that supports Arrow (pandas, polars, pyarrow).

All become Spark's.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from worker.base.errors import InputError


class ArrowStream(Protocol):
    """A DataFrame of pandas or polars, an Arrow table or record batch."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Rows: TypeAlias = DataFrame | ArrowStream


def spark_rows(spark: SparkSession, rows: Rows) -> DataFrame:
    return rows if isinstance(rows, DataFrame) else of_arrow(spark, arrow_table(rows))


def arrow_table(rows: Any) -> pa.Table:
    """Rows that are not a Spark DataFrame, as Arrow; refused if they don't support it. A NaN of pandas becomes NULL."""
    if not hasattr(rows, "__arrow_c_stream__"):
        raise InputError(
            "ROWS_INVALID",
            f"rows are a DataFrame of Spark, pandas or polars, or an Arrow table, not {type(rows).__name__}: "
            "spark.createDataFrame makes a DataFrame of a list",
        )
    try:
        if type(rows).__module__.startswith("pandas."):
            return pa.Table.from_pandas(rows, preserve_index=False)
        return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError("ROWS_INVALID", f"these rows don't fit into an Arrow table: {error}") from error


def of_arrow(spark: SparkSession, rows: pa.Table) -> DataFrame:
    try:
        rows = rows.cast(pa.schema([field.with_type(for_spark(field.type)) for field in rows.schema]))
        if rows.num_rows == 0:  # Connect refuses an empty Arrow table
            return spark.createDataFrame([], from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
        return spark.createDataFrame(rows.combine_chunks())
    except (PySparkException, pa.ArrowException, TypeError, ValueError) as error:
        raise InputError("TYPE_NOT_SUPPORTED", f"Spark can't take these rows: {error}") from error


def for_spark(kind: pa.DataType) -> pa.DataType:
    """Replaces types that Spark's reader of Arrow lacks with types that it has."""
    if pa.types.is_dictionary(kind):
        return for_spark(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        return pa.timestamp("us", kind.tz)
    return kind
