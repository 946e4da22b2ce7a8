"""INSERT and OVERWRITE of a Spark DataFrame, as writes of the catalog. Here the rows get the columns of the table."""

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
    """Adds the values of a single named partition to rows that lack its columns."""
    there = {name.lower() for name in df.columns}
    types = {column.name: column.type for column in meta.columns}
    for one in named.values:
        if one.column.lower() not in there:
            df = df.withColumn(one.column, partition_literal(one.value, parse_type(types[one.column])))
    return df


# -- columns -----------------------------------------------------------------------------------------------------------


def with_columns_of(meta: catalog_pb2.Table, rows: DataFrame) -> DataFrame:
    """The rows under the table's names; fields of structs that they lack are NULL.

    What the table has no column or type for is refused before a job runs.
    """
    check_names(rows, meta)
    for column in rows.schema.fields:
        check_type(column.dataType)
    schema = table_schema(meta, nullable=True)
    for path in unknown_fields(rows.schema, schema):
        raise InputError("COLUMN_UNKNOWN", f"there is no field {path}; merge_schema=True adds it")
    known = {column.name.lower(): column for column in schema.fields}
    wanted = [
        t.StructField(known[one.name.lower()].name, _filled(one.dataType, known[one.name.lower()].dataType))
        for one in rows.schema.fields
    ]
    if [one.name for one in wanted] != rows.columns:
        rows = rows.toDF(*[one.name for one in wanted])
    if all(one.dataType == given.dataType for one, given in zip(wanted, rows.schema.fields, strict=True)):
        return rows
    return rows.to(t.StructType(wanted))


def _filled(given: t.DataType, wanted: t.DataType) -> t.DataType:
    """The type with the fields of structs that only the wanted one has."""
    match given, wanted:
        case t.StructType(), t.StructType():
            there = {one.name.lower(): one for one in given.fields}
            if there.keys() == {one.name.lower() for one in wanted.fields}:
                kinds = {one.name.lower(): one.dataType for one in wanted.fields}
                fields = [
                    t.StructField(one.name, _filled(one.dataType, kinds[one.name.lower()]), one.nullable)
                    for one in given.fields
                ]
                return t.StructType(fields)
            whole = []
            for one in wanted.fields:
                mine = there.get(one.name.lower())
                kind = one.dataType if mine is None else _filled(mine.dataType, one.dataType)
                whole.append(t.StructField(one.name, kind))
            return t.StructType(whole)
        case t.ArrayType(), t.ArrayType():
            return t.ArrayType(_filled(given.elementType, wanted.elementType), given.containsNull)
        case t.MapType(), t.MapType():
            kind = _filled(given.valueType, wanted.valueType)
            return t.MapType(_filled(given.keyType, wanted.keyType), kind, given.valueContainsNull)
        case _:
            return given


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
        lacks = column.name.lower() not in names
        if lacks and not column.default_sql and (not column.nullable or column.name in meta.partition_columns):
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
    check_fit(with_columns_of(wanted, df), wanted)  # what is wrong is said before anything is done
    table.client.alter_columns(table.table_id, *changes, commit_message="columns of an insert")
    return table.refreshed()


def check_fit(rows: DataFrame, meta: catalog_pb2.Table) -> None:
    """Refuses rows whose types the table doesn't take."""
    try:
        _ = rows.to(table_schema(meta, nullable=True)).select("*").schema  # over Connect only this looks
    except AnalysisException as error:
        raise InputError("SCHEMA_MISMATCH", f"the rows don't fit {meta.name}: {error.getMessage()}") from error


# -- order -------------------------------------------------------------------------------------------------------------


def _ordered(rows: DataFrame, meta: catalog_pb2.Table, order_by: OrderBy | None) -> tuple[DataFrame, dict[str, str]]:
    """The rows, and the option by which the catalog orders them. It knows columns; by anything else they are here."""
    if order_by is None:
        return rows, {}
    many: list[str | Column] = [order_by] if isinstance(order_by, (str, Column)) else list(order_by)
    known = {name.lower(): name for name in rows.columns}
    if all(isinstance(one, str) and one.lower() in known for one in many):
        return rows, {ORDER_BY: ", ".join(quoted(str(one)) for one in many)}
    columns = [sf.col(quoted(one) if one.lower() in known else one) if isinstance(one, str) else one for one in many]
    try:
        found = _newest_of_each_key(rows, meta, columns) if meta.primary_key else _sorted(rows, meta, columns)
        _ = found.schema  # a Connect session says only now what is wrong
    except AnalysisException as error:
        raise InputError("COLUMN_UNKNOWN", error.getMessage() or ORDER_BY) from error
    return found, {}


def _newest_of_each_key(rows: DataFrame, meta: catalog_pb2.Table, columns: Iterable[Column]) -> DataFrame:
    """The last row of each key, where NULL sorts first."""
    rank = "_laketx_rank"
    partitions = [] if key_spans_partitions(meta) else meta.partition_columns
    whole = [quoted(name) for name in [*partitions, *meta.primary_key]]
    newest = [column.desc_nulls_last() for column in columns]
    ranked = rows.withColumn(rank, sf.row_number().over(Window.partitionBy(*whole).orderBy(*newest)))
    return ranked.where(sf.col(rank) == 1).drop(rank)


def _sorted(rows: DataFrame, meta: catalog_pb2.Table, columns: Iterable[Column]) -> DataFrame:
    """The rows in order. The catalog sorts them by partition, unless they are."""
    place = "_laketx_at"
    ordered = rows.orderBy(*columns)
    if not meta.partition_columns:
        return ordered
    placed = ordered.withColumn(place, sf.monotonically_increasing_id())
    return placed.sortWithinPartitions(*map(quoted, meta.partition_columns), place).drop(place)
