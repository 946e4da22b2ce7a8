"""What a column holds in new rows that leave it out: a SQL expression, which Spark computes."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.spark.column_types import parse_type


def default_of(column: catalog_pb2.Column) -> Column:
    """As the column's type. The line ends before the parenthesis does: a comment at the end hides neither."""
    return sf.expr(f"({column.default_sql}\n)").cast(parse_type(column.type)) if column.default_sql else sf.lit(None)


def check_defaults(spark: SparkSession, columns: Iterable[catalog_pb2.Column]) -> None:
    """Refuse defaults that are no values of their columns."""
    for column in columns:
        try:
            row = spark.range(1).toDF("_laketx_row")  # a name that no column has; a sum or the like fails beside it
            row.select("_laketx_row", default_of(column).alias("value")).collect()
        except PySparkException as error:
            message = f"{column.name} can't have the default {column.default_sql}: {error.getMessage()}"
            raise InputError("DEFAULT_INVALID", message) from error
