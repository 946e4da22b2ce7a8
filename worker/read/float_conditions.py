"""Keeps conditions on floats away from Parquet's reader, which would skip rows that match.

Spark pushes conditions down, and Parquet's reader skips what footers and dictionaries rule out. For Parquet -0.0
differs from 0.0; and many writers ignore NaN, which Spark orders above every number, in a footer's bounds. So float
columns of a scan are wrapped in a function that changes no value and is not pushed down. The service still prunes
files.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from worker.base.schema import quoted


def dressed(rows: DataFrame, schema: t.StructType) -> DataFrame:
    """The rows of a scan of that schema, with wrapped floats."""
    columns = {
        one.name: _dressed(sf.col(quoted(one.name)), one.dataType)
        for one in schema.fields
        if is_pushed_down(one.dataType)
    }
    return rows.withColumns(columns) if columns else rows


def is_pushed_down(kind: t.DataType) -> bool:
    """Whether Spark would push conditions on floats in the type: it does for structs, not for arrays and maps."""
    if isinstance(kind, t.StructType):
        return any(is_pushed_down(one.dataType) for one in kind.fields)
    return isinstance(kind, (t.FloatType, t.DoubleType))


def _dressed(column: Column, kind: t.DataType) -> Column:
    if not isinstance(kind, t.StructType):
        return sf.nanvl(column, sf.lit("NaN").cast(kind))
    for one in kind.fields:
        if is_pushed_down(one.dataType):
            column = column.withField(quoted(one.name), _dressed(column.getField(one.name), one.dataType))
    return column
