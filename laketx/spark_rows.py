"""Rows as users pass them, as DataFrames of Spark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from laketx.input_rows import AnyRows, arrow_table
from worker.base.errors import InputError


def of_rows(spark: SparkSession, rows: AnyRows) -> DataFrame:
    return rows if isinstance(rows, DataFrame) else of_arrow(spark, arrow_table(rows))


def of_arrow(spark: SparkSession, rows: pa.Table) -> DataFrame:
    try:
        rows = rows.cast(pa.schema([field.with_type(for_spark(field.type)) for field in rows.schema]))
        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)  # no zone leaves out a clock time
        if rows.num_rows == 0:  # Connect refuses an empty Arrow table
            return spark.createDataFrame([], schema)
        return spark.createDataFrame(rows.combine_chunks(), schema)
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
