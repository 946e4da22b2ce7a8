"""NOT NULL where footers can't show it: for structs, arrays and maps, and fields inside them. The write's own job
checks it.

A footer counts all NULLs of a leaf, including those under a NULL parent, which are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.spark.column_types import table_schema

MARK: Final = "LAKETX_NULL "
_NEVER: Final = -1


def guarded(rows: DataFrame, meta: catalog_pb2.Table) -> DataFrame:
    """The same rows; the job fails if one violates NOT NULL. `explain_null` turns that into an error."""
    for at, field in enumerate(table_schema(meta).fields):
        if not isinstance(field.dataType, (t.StructType, t.ArrayType, t.MapType)):
            continue
        column = sf.col(f"`{field.name.replace('`', '``')}`")
        missing = list(_missing(column, field.dataType))
        if not field.nullable:
            missing.append(column.isNull())
        if missing:
            error = sf.raise_error(sf.lit(f"{MARK}{at};")).cast("boolean")
            # Spark moves no condition with a task's number: it sees the rows that are written, and no others.
            holds = _any(missing) & (sf.spark_partition_id() != _NEVER)
            rows = rows.where(sf.when(holds, error).otherwise(sf.lit(True)))
    return rows


def explain_null(error: Exception, meta: catalog_pb2.Table) -> InputError | None:
    """The error of a failed write, if NOT NULL was the cause."""
    before, mark, rest = str(error).partition(MARK)
    del before
    if not mark:
        return None
    name = meta.columns[int(rest.partition(";")[0])].name
    return InputError("NULL_NOT_ALLOWED", f"a row has NULL in {name}, which is NOT NULL in {meta.name}")


def _missing(value: Column, kind: t.DataType) -> Iterator[Column]:
    """Conditions under which a value lacks a NOT NULL field."""
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            inner = value.getField(field.name)
            found = list(_missing(inner, field.dataType))
            if not field.nullable:
                found.append(inner.isNull())
            if found:
                yield value.isNotNull() & _any(found)
    elif isinstance(kind, t.ArrayType):
        yield from _within(value, kind.elementType)
    elif isinstance(kind, t.MapType):
        yield from _within(sf.map_keys(value), kind.keyType)
        yield from _within(sf.map_values(value), kind.valueType)


def _within(values: Column, kind: t.DataType) -> Iterator[Column]:
    if any(True for _ in _missing(sf.lit(None), kind)):
        yield sf.coalesce(sf.exists(values, lambda one: _any(list(_missing(one, kind)))), sf.lit(False))


def _any(conditions: list[Column]) -> Column:
    found = sf.coalesce(conditions[0], sf.lit(False))
    for one in conditions[1:]:
        found = found | sf.coalesce(one, sf.lit(False))
    return found
