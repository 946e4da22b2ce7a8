"""Rows in the table's shape, for changes of rows by DataFrames of Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from worker.base.errors import InputError
from worker.base.schema import OP, UPSERT, quoted
from worker.commit import casts
from worker.dataframes.frame_writes import unknown_fields


def upserts(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", f"{UPSERT}Y as {OP}")


def fitted(df: DataFrame, schema: t.StructType, exact: Collection[str] = ()) -> DataFrame:
    """The rows in this shape, with field ids; the `exact` columns must not lose anything in a cast.

    The names come first, because `to` alone loses the ids of columns that fit.
    """
    for path in unknown_fields(df.schema, schema):
        raise InputError(
            "COLUMN_UNKNOWN", f"there is no field {path}; merge_schema=True adds it"
        )  # `to` alone leaves its values out
    if [_shape(field) for field in df.schema.fields] == [_shape(field) for field in schema.fields]:
        return df
    shape = {field.name.lower(): field for field in schema.fields}
    known = []
    for field in df.schema.fields:
        wanted = shape.get(field.name.lower(), field)
        is_exact = wanted.name in exact and not casts.never_loses(field.dataType, wanted.dataType)
        value = casts.exactly(field, wanted) if is_exact else sf.expr(quoted(field.name))
        as_is = (field.metadata or {}) == (wanted.metadata or {}) and not is_exact
        known.append(value if as_is else value.alias(field.name, metadata=wanted.metadata or {}))
    found = df.select(*known).to(schema)
    _ = found.select("*").schema  # a Connect session reports errors only here; `to` itself asks no server
    return found


def _shape(field: t.StructField) -> tuple[str, t.DataType, Mapping[str, Any]]:
    return field.name, field.dataType, field.metadata or {}
