"""Writes of rows that read nothing: INSERT and OVERWRITE. Each is planned from the table's newest metadata."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from metaservice.client import add_column
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.defaults import with_defaults
from worker.base.errors import InputError
from worker.base.field_paths import missing_fields
from worker.base.schema import OP, RESERVED, UPSERT, check_name, exact_names, quoted
from worker.base.spark_types import parse_type, table_schema, type_text
from worker.base.table_view import TableView
from worker.base.values import partition_key
from worker.read.file_layouts import partition_literal
from worker.write import casts
from worker.write.plan_reads import plan_reads, plan_reads_elsewhere
from worker.write.scopes import Partitions, scope_of
from worker.write.stages import Stage, Staged
from worker.write.staging import write_append, write_keyed
from worker.write.transaction import Write

OrderBy = str | Column | Sequence[str | Column]


def upserts(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", f"{UPSERT}Y as {OP}")


def plan_insert(table: TableView, df: DataFrame, order_by: OrderBy | None = None) -> Write:
    meta = table.meta
    found, elsewhere = plan_reads(table, df), plan_reads_elsewhere(table, df)
    df = with_defaults(df, meta)
    if meta.primary_key:
        rows = upserts(aligned(latest_of_each_key(df, meta, order_by), meta))
    else:
        ordered = df if order_by is None else in_order(df, order_by)
        rows = aligned(ordered, meta)

    def stage(stage: Stage) -> Staged:
        if meta.primary_key:
            return write_keyed(stage, rows)
        return write_append(stage, rows, in_order=order_by is not None)

    return Write(
        table,
        common_pb2.OPERATION_INSERT,
        stage,
        rows_read=found.reads,
        rows_version=found.version,
        elsewhere=elsewhere,
    )


def plan_overwrite(table: TableView, df: DataFrame, where: Partitions, order_by: OrderBy | None = None) -> Write:
    meta = table.meta
    found, elsewhere = plan_reads(table, df), plan_reads_elsewhere(table, df)
    scope = scope_of(table, where)
    named = {partition_key(one) for one in scope.named.partitions}
    if isinstance(where, Mapping):
        df = with_fixed_partition(df, meta, scope.named.partitions[0])
    df = with_defaults(df, meta)
    if meta.primary_key:
        df = latest_of_each_key(df, meta, order_by)
    elif order_by is not None:
        df = in_order(df, order_by)
    rows = aligned(df, meta)

    def stage(stage: Stage) -> Staged:
        if meta.primary_key:
            staged = write_keyed(stage, rows, is_base=True)
        else:
            staged = write_append(stage, rows, in_order=order_by is not None)
        if scope.HasField("named"):
            for file in staged.files:
                if partition_key(file.partition) not in named:
                    raise InputError("ROW_OUTSIDE_PARTITION", "rows belong to partitions that are not named")
        return staged

    return Write(
        table,
        common_pb2.OPERATION_OVERWRITE,
        stage,
        scope=scope,
        rows_read=found.reads,
        rows_version=found.version,
        elsewhere=elsewhere,
    )


def with_fixed_partition(df: DataFrame, meta: catalog_pb2.Table, named: common_pb2.Partition) -> DataFrame:
    """Adds the values of a single named partition to rows that lack its columns."""
    there = {name.lower() for name in df.columns}
    types = {column.name: column.type for column in meta.columns}
    for one in named.values:
        if one.column.lower() not in there:
            df = df.withColumn(one.column, partition_literal(one.value, parse_type(types[one.column])))
    return df


# -- rows in the table's shape -----------------------------------------------------------------------------------------


def aligned(df: DataFrame, meta: catalog_pb2.Table) -> DataFrame:
    """The rows matched by name, in the table's order and types; missing columns are NULL.

    Errors are raised before a job runs.
    """
    check_names(df, meta)
    casts.check_types(df.schema)
    try:
        found = fitted(df, table_schema(meta, nullable=True), exact_names(meta))
    except AnalysisException as error:
        raise InputError("SCHEMA_MISMATCH", f"the rows don't fit {meta.name}: {error.getMessage()}") from error
    return found


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


def unknown_fields(given: t.DataType, wanted: t.DataType, path: str = "") -> Iterator[str]:
    """Fields of structs that the wanted type lacks."""
    match given, wanted:
        case t.StructType(), t.StructType():
            known = {field.name.lower(): field.dataType for field in wanted.fields}
            for field in given.fields:
                below = f"{path}.{field.name}".lstrip(".")
                if field.name.lower() in known:
                    yield from unknown_fields(field.dataType, known[field.name.lower()], below)
                else:
                    yield below
        case t.ArrayType(), t.ArrayType():
            yield from unknown_fields(given.elementType, wanted.elementType, f"{path}.element")
        case t.MapType(), t.MapType():
            yield from unknown_fields(given.keyType, wanted.keyType, f"{path}.key")
            yield from unknown_fields(given.valueType, wanted.valueType, f"{path}.value")
        case _:
            return


def check_names(df: DataFrame, meta: catalog_pb2.Table) -> None:
    names = [name.lower() for name in df.columns]
    known = {column.name.lower() for column in meta.columns}
    for name in df.columns:
        if name.lower() not in known:
            hint = "" if name in RESERVED else "; merge_schema=True adds it"
            raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {name}{hint}")
        if names.count(name.lower()) > 1:
            raise InputError("COLUMN_TWICE", f"the rows have {name} twice")
    for column in meta.columns:
        if column.name.lower() not in names and (not column.nullable or column.name in meta.partition_columns):
            raise InputError("COLUMN_MISSING", f"the rows lack {column.name}, which {meta.name} requires")


def with_missing_columns(table: TableView, df: DataFrame) -> TableView:
    """The table with the columns and struct fields that only the rows have, added in one commit of its own."""
    known = {column.name.lower() for column in table.meta.columns}
    for field in df.schema.fields:
        if field.name.lower() not in known:
            check_name(field.name)
    missing = missing_fields(df.schema, table_schema(table.meta))
    changes = [add_column(path, type_text(kind)) for path, kind in missing]
    if not changes:
        return table
    alteration = common_pb2.Alteration(schema_changes=changes)
    wanted = table.client.alter_table(table.table_id, alteration, validate_only=True).table
    aligned(df, wanted)  # what is wrong is said before anything is done
    table.client.alter_columns(table.table_id, *changes, commit_message="columns of an insert")
    return table.refreshed()


def columns_of(df: DataFrame, order_by: OrderBy) -> list[Column]:
    many: Iterable[str | Column] = [order_by] if isinstance(order_by, (str, Column)) else order_by
    known = {name.lower() for name in df.columns}
    named = [quoted(one) if isinstance(one, str) and one.lower() in known else one for one in many]
    return [sf.col(one) if isinstance(one, str) else one for one in named]


def in_order(df: DataFrame, order_by: OrderBy) -> DataFrame:
    try:
        ordered = df.orderBy(*columns_of(df, order_by))
        _ = ordered.schema  # a Connect session says only now what is wrong
    except AnalysisException as error:
        raise InputError("COLUMN_UNKNOWN", error.getMessage() or "order_by") from error
    return ordered


def latest_of_each_key(df: DataFrame, meta: catalog_pb2.Table, order_by: OrderBy | None) -> DataFrame:
    """With an order the last row of each key, where NULL sorts first; without one all rows."""
    if order_by is None:
        return df
    rank = "_laketx_rank"
    whole = [quoted(name) for name in [*meta.partition_columns, *meta.primary_key]]
    newest = [column.desc_nulls_last() for column in columns_of(df, order_by)]
    try:
        ranked = df.withColumn(rank, sf.row_number().over(Window.partitionBy(*whole).orderBy(*newest)))
        return ranked.where(sf.col(rank) == 1).drop(rank)
    except AnalysisException as error:
        raise InputError("COLUMN_UNKNOWN", error.getMessage() or "order_by") from error
