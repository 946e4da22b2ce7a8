"""INSERT and OVERWRITE of a Spark DataFrame, as writes of the catalog. The rows get the columns of the table first."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameWriterV2, Window
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from metaservice.client import add_column, key_spans_partitions
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.schema import RESERVED, check_name, quoted
from worker.commit.scopes import Partitions, scope_of
from worker.connection.table_view import TableView
from worker.dataframes.catalog_writes import INSERT, OVERWRITE, CatalogWrite, Run
from worker.dataframes.plan_reads import plan_reads, plan_reads_elsewhere
from worker.spark.column_types import check_type, parse_type, partition_literal, table_schema, type_text
from worker.spark.field_paths import missing_fields
from worker.spark.session import is_classic

OrderBy = str | Column | Sequence[str | Column]
ORDER_BY: Final = "order_by"


def plan_insert(table: TableView, rows: DataFrame, order_by: OrderBy | None = None) -> CatalogWrite:
    rows, options = _ordered(rows, table.meta, order_by)
    shaped = with_columns_of(table.meta, rows)
    return _write(table, INSERT, rows, _written(shaped, lambda writer: writer.append()), options)


def plan_overwrite(
    table: TableView, rows: DataFrame, where: Partitions, order_by: OrderBy | None = None
) -> CatalogWrite:
    scope = scope_of(table, where)
    if isinstance(where, Mapping):
        rows = with_fixed_partition(rows, table.meta, scope.named.partitions[0])
    rows, options = _ordered(rows, table.meta, order_by)
    shaped = with_columns_of(table.meta, rows)
    if scope.written:
        dynamic = _written(shaped, lambda writer: writer.overwritePartitions())
        return _write(table, OVERWRITE, rows, dynamic, options)
    if scope.HasField("named"):
        options = options | {"partitions": b64encode(scope.named.SerializeToString()).decode()}
    run = _written(shaped, lambda writer: writer.overwrite(sf.lit(True)))
    return _write(table, OVERWRITE, rows, run, options)


def _write(table: TableView, operation: str, rows: DataFrame, run: Run, options: Mapping[str, str]) -> CatalogWrite:
    """The write. Over Spark Connect the catalog doesn't know the frames of `table.read()`: their names say it."""
    write = CatalogWrite(table, operation, run, options)
    if is_classic(table.spark):
        return write
    return write.reading(plan_reads(table, rows), plan_reads_elsewhere(table, rows))


def _written(rows: DataFrame, write: Callable[[DataFrameWriterV2], None]) -> Run:
    def run(target: str, options: Mapping[str, str]) -> None:
        writer = rows.writeTo(target)
        for name, value in options.items():
            writer = writer.option(name, value)
        write(writer)

    return run


def with_fixed_partition(df: DataFrame, meta: catalog_pb2.Table, named: common_pb2.Partition) -> DataFrame:
    """Add the values of a single named partition to rows that lack its columns."""
    present = {name.lower() for name in df.columns}
    types = {column.name: column.type for column in meta.columns}
    for partition_value in named.values:
        if partition_value.column.lower() not in present:
            df = df.withColumn(
                partition_value.column,
                partition_literal(partition_value.value, parse_type(types[partition_value.column])),
            )
    return df


# -- columns -----------------------------------------------------------------------------------------------------------


def with_columns_of(meta: catalog_pb2.Table, rows: DataFrame) -> DataFrame:
    """Return the rows under the table's names. Fields of structs that they lack become NULL.

    Refuse what the table has no column or type for, before a job runs.
    """
    check_names(rows, meta)
    for column in rows.schema.fields:
        check_type(column.dataType)
    schema = table_schema(meta, nullable=True)
    for path in unknown_fields(rows.schema, schema):
        raise InputError("COLUMN_UNKNOWN", f"there is no field {path}; merge_schema=True adds it")
    columns = {column.name.lower(): column for column in schema.fields}
    fields = [
        t.StructField(columns[field.name.lower()].name, _filled(field.dataType, columns[field.name.lower()].dataType))
        for field in rows.schema.fields
    ]
    if [field.name for field in fields] != rows.columns:
        rows = rows.toDF(*[field.name for field in fields])
    if all(
        field.dataType == given_field.dataType for field, given_field in zip(fields, rows.schema.fields, strict=True)
    ):
        return rows
    return rows.to(t.StructType(fields))


def _filled(given: t.DataType, target: t.DataType) -> t.DataType:
    """Return a type with the struct fields that only the target type has."""
    match given, target:
        case t.StructType(), t.StructType():
            given_fields = {field.name.lower(): field for field in given.fields}
            if given_fields.keys() == {field.name.lower() for field in target.fields}:
                kinds = {field.name.lower(): field.dataType for field in target.fields}
                fields = [
                    t.StructField(field.name, _filled(field.dataType, kinds[field.name.lower()]), field.nullable)
                    for field in given.fields
                ]
                return t.StructType(fields)
            whole = []
            for field in target.fields:
                given_field = given_fields.get(field.name.lower())
                kind = field.dataType if given_field is None else _filled(given_field.dataType, field.dataType)
                whole.append(t.StructField(field.name, kind))
            return t.StructType(whole)
        case t.ArrayType(), t.ArrayType():
            return t.ArrayType(_filled(given.elementType, target.elementType), given.containsNull)
        case t.MapType(), t.MapType():
            kind = _filled(given.valueType, target.valueType)
            return t.MapType(_filled(given.keyType, target.keyType), kind, given.valueContainsNull)
        case _:
            return given


def unknown_fields(given: t.DataType, target: t.DataType, path: str = "") -> Iterator[str]:
    """Yield the paths of struct fields that the target type lacks."""
    match given, target:
        case t.StructType(), t.StructType():
            target_types = {field.name.lower(): field.dataType for field in target.fields}
            for field in given.fields:
                below = f"{path}.{field.name}".lstrip(".")
                if field.name.lower() in target_types:
                    yield from unknown_fields(field.dataType, target_types[field.name.lower()], below)
                else:
                    yield below
        case t.ArrayType(), t.ArrayType():
            yield from unknown_fields(given.elementType, target.elementType, f"{path}.element")
        case t.MapType(), t.MapType():
            yield from unknown_fields(given.keyType, target.keyType, f"{path}.key")
            yield from unknown_fields(given.valueType, target.valueType, f"{path}.value")
        case _:
            return


def check_names(df: DataFrame, meta: catalog_pb2.Table) -> None:
    names = [name.lower() for name in df.columns]
    columns = {column.name.lower() for column in meta.columns}
    for name in df.columns:
        if name.lower() not in columns:
            hint = "" if name in RESERVED else "; merge_schema=True adds it"
            raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {name}{hint}")
        if names.count(name.lower()) > 1:
            raise InputError("COLUMN_TWICE", f"the rows have {name} twice")
    for column in meta.columns:
        lacks = column.name.lower() not in names
        if lacks and not column.default_sql and (not column.nullable or column.name in meta.partition_columns):
            raise InputError("COLUMN_MISSING", f"the rows lack {column.name}, which {meta.name} requires")


def with_missing_columns(table: TableView, df: DataFrame) -> TableView:
    """Return the table with the columns and struct fields that only the rows have, added in a separate commit."""
    columns = {column.name.lower() for column in table.meta.columns}
    for field in df.schema.fields:
        if field.name.lower() not in columns:
            check_name(field.name)
    missing = missing_fields(df.schema, table_schema(table.meta))
    changes = [add_column(path, type_text(kind)) for path, kind in missing]
    if not changes:
        return table
    alteration = common_pb2.Alteration(schema_changes=changes)
    altered = table.client.alter_table(table.table_id, alteration, validate_only=True).table
    check_fit(with_columns_of(altered, df), altered)  # what is wrong is said before anything is done
    table.client.alter_columns(table.table_id, *changes, commit_message="columns of an insert")
    return table.refreshed()


def check_fit(rows: DataFrame, meta: catalog_pb2.Table) -> None:
    """Refuse rows whose types don't fit the table."""
    try:
        _ = rows.to(table_schema(meta, nullable=True)).select("*").schema  # over Connect only this looks
    except AnalysisException as error:
        raise InputError("SCHEMA_MISMATCH", f"the rows don't fit {meta.name}: {error.getMessage()}") from error


# -- order -------------------------------------------------------------------------------------------------------------


def _ordered(rows: DataFrame, meta: catalog_pb2.Table, order_by: OrderBy | None) -> tuple[DataFrame, dict[str, str]]:
    """Return the rows, and the option by which the catalog orders them. Expressions sort the rows here."""
    if order_by is None:
        return rows, {}
    many: list[str | Column] = [order_by] if isinstance(order_by, (str, Column)) else list(order_by)
    column_names = {name.lower(): name for name in rows.columns}
    if all(isinstance(order, str) and order.lower() in column_names for order in many):
        return rows, {ORDER_BY: ", ".join(quoted(str(order)) for order in many)}
    columns = [
        sf.col(quoted(order) if order.lower() in column_names else order) if isinstance(order, str) else order
        for order in many
    ]
    try:
        ordered = _newest_of_each_key(rows, meta, columns) if meta.primary_key else _sorted(rows, meta, columns)
        _ = ordered.schema  # a Connect session says only now what is wrong
    except AnalysisException as error:
        raise InputError("COLUMN_UNKNOWN", error.getMessage() or ORDER_BY) from error
    return ordered, {}


def _newest_of_each_key(rows: DataFrame, meta: catalog_pb2.Table, columns: Iterable[Column]) -> DataFrame:
    """Return the last row of each key; NULL sorts first."""
    rank = "_laketx_rank"
    partitions = [] if key_spans_partitions(meta) else meta.partition_columns
    whole = [quoted(name) for name in [*partitions, *meta.primary_key]]
    newest = [column.desc_nulls_last() for column in columns]
    ranked = rows.withColumn(rank, sf.row_number().over(Window.partitionBy(*whole).orderBy(*newest)))
    return ranked.where(sf.col(rank) == 1).drop(rank)


def _sorted(rows: DataFrame, meta: catalog_pb2.Table, columns: Iterable[Column]) -> DataFrame:
    """Return the rows in order. The catalog sorts by partition, unless the rows are sorted so."""
    place = "_laketx_at"
    ordered = rows.orderBy(*columns)
    if not meta.partition_columns:
        return ordered
    placed = ordered.withColumn(place, sf.monotonically_increasing_id())
    return placed.sortWithinPartitions(*map(quoted, meta.partition_columns), place).drop(place)
