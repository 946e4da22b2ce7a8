"""How the files of a table are read: the schema given to Spark, and its mapping to the table's columns.

The schema is always given, with column ids as Parquet field ids, so that files of older schemas are read correctly: by
id, not by name.

But Spark pushes filters down by name, and a file may have another column of that name. Files whose names disagree with
the schema are therefore read under their own names, and renamed above the scan.

Partition columns are stored in the files and read from there. External files are the exception: they have no ids, are
read by name, and missing partition columns come from their entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.field_paths import split_path
from worker.base.schema import quoted
from worker.base.spark_types import FIELD_ID, columns_schema
from worker.base.table_view import TableView
from worker.base.values import partition_key
from worker.read.written_schemas import Columns, WrittenSchemas


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How files are read: the schema given to Spark, and what makes the table's columns of it unless it is theirs."""

    schema: t.StructType
    columns: tuple[Column, ...]
    tag: object
    is_target: bool = False


class FileLayouts:
    """The layouts of one table's files, all under one of its schemas."""

    def __init__(self, table: TableView) -> None:
        self._meta = table.meta
        self.written = WrittenSchemas(table)
        self._layouts: dict[object, FileLayout] = {}
        self.target = columns_schema(list(table.meta.columns), nullable=True)

    def layout_of(self, file: common_pb2.DataFile) -> FileLayout:
        if file.inlined:  # put into the table's shape before Spark sees them
            return FileLayout(self.target, (), "inlined", is_target=True)
        tag: object = file.schema_version
        if file.external:
            tag = (file.schema_version, partition_key(file.partition))
        found = self._layouts.get(tag)
        if found is None:
            columns = self.written.columns_of(file)
            if file.external:
                found = self._by_name(columns, file.partition, tag)
            elif self._names_agree(columns):
                found = FileLayout(self.target, (), "as it is", is_target=True)
            else:
                found = self._by_id(columns)
            self._layouts[tag] = found
        return found

    def _names_agree(self, columns: Columns) -> bool:
        """Whether every name means the same column in the file and in the schema."""
        by_id = {column.column_id: column for column in columns}
        by_name = {column.name.lower(): column.column_id for column in columns}
        for column in self._meta.columns:
            then = by_id.get(column.column_id)
            if by_name.get(column.name.lower(), column.column_id) != column.column_id:
                return False
            if then is not None and (then.name != column.name or not _nested_agree(then, column)):
                return False
        return True

    def _by_id(self, columns: Columns) -> FileLayout:
        """The file's names with the schema's types, and the mapping to the schema's names."""
        by_id = {column.column_id: column for column in columns}
        fields, shown = [], []
        for column, wanted in zip(self._meta.columns, self.target.fields, strict=True):
            then = by_id.get(column.column_id)
            if then is None:
                shown.append(sf.lit(None).cast(plain(wanted.dataType)).alias(wanted.name))
                continue
            paths = {one.field_id: one.path for one in then.nested}
            kind = _with_names(wanted.dataType, paths)
            fields.append(t.StructField(then.name, kind, True, wanted.metadata))
            value = sf.col(quoted(then.name))
            same = _nested_agree(then, column)
            shown.append((value if same else value.cast(plain(wanted.dataType))).alias(wanted.name))
        tag = (tuple(one.json() for one in fields), tuple(column.column_id in by_id for column in self._meta.columns))
        return FileLayout(t.StructType(fields), tuple(shown), tag)

    def _by_name(self, columns: Columns, partition: common_pb2.Partition, tag: object) -> FileLayout:
        by_id = {column.column_id: column for column in columns}
        values = {one.column: one.value for one in partition.values}
        fields, shown = [], []
        for column, wanted in zip(self._meta.columns, self.target.fields, strict=True):
            then = by_id.get(column.column_id)
            if column.name in values:
                shown.append(partition_literal(values[column.name], wanted.dataType).alias(wanted.name))
            elif then is None:
                shown.append(sf.lit(None).cast(plain(wanted.dataType)).alias(wanted.name))
            else:
                fields.append(t.StructField(then.name, plain(wanted.dataType)))
                shown.append(sf.col(quoted(then.name)).alias(wanted.name))
        return FileLayout(t.StructType(fields), tuple(shown), ("external", tag))


def plain(kind: t.DataType) -> t.DataType:
    """The type without ids."""
    match kind:
        case t.StructType():
            return t.StructType([t.StructField(one.name, plain(one.dataType), True) for one in kind.fields])
        case t.ArrayType():
            return t.ArrayType(plain(kind.elementType))
        case t.MapType():
            return t.MapType(plain(kind.keyType), plain(kind.valueType))
        case _:
            return kind


def _nested_agree(then: catalog_pb2.Column, now: catalog_pb2.Column) -> bool:
    by_path = {one.path.lower(): one.field_id for one in then.nested}
    by_id = {one.field_id: one.path for one in then.nested}
    return all(
        by_path.get(one.path.lower(), one.field_id) == one.field_id and by_id.get(one.field_id, one.path) == one.path
        for one in now.nested
    )


def _with_names(kind: t.DataType, paths: Mapping[int, str]) -> t.DataType:
    """The type with the file's names for the same ids; a missing field gets an unused name."""
    match kind:
        case t.StructType():
            fields = []
            for one in kind.fields:
                field_id = one.metadata.get(FIELD_ID, 0)
                name = split_path(paths[field_id])[-1] if field_id in paths else f"_laketx_{field_id}"
                fields.append(t.StructField(name, _with_names(one.dataType, paths), True, one.metadata))
            return t.StructType(fields)
        case t.ArrayType():
            return t.ArrayType(_with_names(kind.elementType, paths))
        case t.MapType():
            return t.MapType(_with_names(kind.keyType, paths), _with_names(kind.valueType, paths))
        case _:
            return kind


def partition_literal(value: common_pb2.Value, kind: t.DataType) -> Column:
    """A partition's value as Spark has it, whatever the session's time zone."""
    match value.WhichOneof("kind"):
        case "null" | None:
            return sf.lit(None).cast(kind)
        case "date":
            return sf.date_from_unix_date(sf.lit(value.date)).cast(kind)
        case "timestamp_us" if isinstance(kind, t.TimestampNTZType):
            return sf.expr(f"{as_clock(f'{value.timestamp_us}L')}")
        case "timestamp_us":
            return sf.timestamp_micros(sf.lit(value.timestamp_us))
        case found:
            return sf.lit(getattr(value, found)).cast(kind)


def as_clock(micros: str) -> str:
    """A Spark expression for the UTC clock time so many microseconds after 1970, whatever the session's zone."""
    return f"timestampadd(MICROSECOND, {micros}, timestamp_ntz'1970-01-01 00:00:00')"
