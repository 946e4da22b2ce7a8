"""Columns of a table as Spark's types and back; column ids as Parquet field ids; values of partitions.

The wire has Spark's type names in canonical form: `bigint`, `decimal(10,2)`, `array<struct<k:string not null>>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from metaservice.shared import column_definitions, column_types
from metaservice.shared.column_definitions import BY_BYTES, COLLATED
from metaservice.shared.column_types import Array, Atomic, Decimal, Field, Map, Struct, Type, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.schema import check_name, path_below

FIELD_ID: Final = "parquet.field.id"  # where Spark looks for it in a field's metadata
CURRENT_DEFAULT: Final = "CURRENT_DEFAULT"  # where Spark keeps a field's default
ATOMIC: Final[Mapping[str, type[t.DataType]]] = {
    "boolean": t.BooleanType,
    "tinyint": t.ByteType,
    "smallint": t.ShortType,
    "int": t.IntegerType,
    "bigint": t.LongType,
    "float": t.FloatType,
    "double": t.DoubleType,
    "string": t.StringType,
    "binary": t.BinaryType,
    "date": t.DateType,
    "timestamp": t.TimestampType,
    "timestamp_ntz": t.TimestampNTZType,
}
INSTEAD: Final = {
    **dict.fromkeys(("CharType", "VarcharType"), column_definitions.INSTEAD["char"]),
    **dict.fromkeys(
        ("DayTimeIntervalType", "YearMonthIntervalType", "CalendarIntervalType"), column_definitions.INSTEAD["interval"]
    ),
    "TimeType": column_definitions.INSTEAD["time"],
    "VariantType": column_definitions.INSTEAD["variant"],
    **dict.fromkeys(("GeographyType", "GeometryType"), column_definitions.INSTEAD["geometry"]),
    "NullType": "NULL alone has no type: cast the column",
}
WORDS: Final = {kind: word for word, kind in ATOMIC.items()}


# -- Spark to wire -----------------------------------------------------------------------------------------------------


def type_text(kind: t.DataType) -> str:
    """The wire's text for a Spark type."""
    return column_types.type_text(_read_spark(kind))


def check_type(kind: t.DataType) -> None:
    """Checks the type of rows to be written as a column's type; NULL alone fits any type."""
    _read_spark(kind, WORDS | {t.NullType: "any"})


def _read_spark(kind: t.DataType, words: Mapping[type[t.DataType], str] = WORDS) -> Type:
    match kind:
        case t.DecimalType():
            return Decimal(kind.precision, kind.scale)
        case t.ArrayType():
            return Array(_read_spark(kind.elementType, words))
        case t.MapType():
            return Map(_read_spark(kind.keyType, words), _read_spark(kind.valueType, words))
        case t.StructType():
            fields = [Field(field.name, _read_spark(field.dataType, words), field.nullable) for field in kind.fields]
            return Struct(tuple(fields))
        case _:
            return Atomic(_word(kind, words))


def _word(kind: t.DataType, words: Mapping[type[t.DataType], str]) -> str:
    if type(kind) is t.StringType and kind.collation != BY_BYTES:
        raise InputError("TYPE_NOT_SUPPORTED", f"{kind.simpleString()}: {COLLATED}")
    word = words.get(type(kind))
    if word is None:
        instead = INSTEAD.get(type(kind).__name__, "cast the column to a type that tables have")
        raise InputError("TYPE_NOT_SUPPORTED", f"{kind.simpleString()} can't be a column's type: {instead}")
    return word


def wire_columns(schema: t.StructType, primary_key: list[str]) -> list[catalog_pb2.Column]:
    """The columns of a new table; key columns are NOT NULL whatever the schema says."""
    keys = {name.lower() for name in primary_key}
    columns = []
    for field in schema.fields:
        check_name(field.name)
        columns.append(
            catalog_pb2.Column(
                name=field.name,
                type=type_text(field.dataType),
                nullable=field.nullable and field.name.lower() not in keys,
                comment=str(field.metadata.get("comment", "")) if field.metadata else "",
                default_sql=str(field.metadata.get(CURRENT_DEFAULT, "")) if field.metadata else "",
            )
        )
    return columns


# -- wire to Spark -----------------------------------------------------------------------------------------------------


def table_schema(meta: catalog_pb2.Table, *, nullable: bool = False) -> t.StructType:
    """The table's columns with their ids as Parquet field ids; with `nullable` all are nullable, as in files."""
    return columns_schema(list(meta.columns), nullable=nullable)


def columns_schema(columns: list[catalog_pb2.Column], *, nullable: bool = False) -> t.StructType:
    fields = []
    for column in columns:
        nested = {field.path: field.field_id for field in column.nested}
        kind = parse_type(column.type, nested, nullable=nullable)
        fields.append(t.StructField(column.name, kind, nullable or column.nullable, {FIELD_ID: column.column_id}))
    return t.StructType(fields)


def with_comments(meta: catalog_pb2.Table) -> t.StructType:
    """The columns with their comments and defaults, for people."""
    fields = []
    for field, column in zip(table_schema(meta).fields, meta.columns, strict=True):
        metadata = {**(field.metadata or {}), **({"comment": column.comment} if column.comment else {})}
        if column.default_sql:
            metadata[CURRENT_DEFAULT] = column.default_sql
        fields.append(t.StructField(field.name, field.dataType, field.nullable, metadata))
    return t.StructType(fields)


def parse_type(text: str, nested: Mapping[str, int] | None = None, *, nullable: bool = False) -> t.DataType:
    """A wire type as a Spark type; `nested` gives the ids of fields by their path below the column."""
    return _spark_type(read_type(text), "", nested or {}, nullable=nullable)


def _spark_type(kind: Type, path: str, nested: Mapping[str, int], *, nullable: bool) -> t.DataType:
    def below(name: str, child: Type) -> t.DataType:
        return _spark_type(child, path_below(path, name), nested, nullable=nullable)

    match kind:
        case Atomic(name):
            return ATOMIC[name]()
        case Decimal(precision, scale):
            return t.DecimalType(precision, scale)
        case Array(element):
            return t.ArrayType(below("element", element))
        case Map(key, value):
            return t.MapType(below("key", key), below("value", value))
        case Struct(fields):
            spark_fields = []
            for field in fields:
                field_id = nested.get(path_below(path, field.name))
                metadata = {} if field_id is None else {FIELD_ID: field_id}
                spark_fields.append(
                    t.StructField(field.name, below(field.name, field.kind), nullable or field.nullable, metadata)
                )
            return t.StructType(spark_fields)


def literal_of(value: Any, type_name: str) -> Column:
    """A value of a column. Spark's own conversion from Python has no dates before the year 1000."""
    plain = value.isoformat() if type(value) is date else value
    return sf.lit(plain).cast(parse_type(type_name))


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
        case name:
            return sf.lit(getattr(value, name)).cast(kind)


def as_clock(micros: str) -> str:
    """A Spark expression for the UTC clock time so many microseconds after 1970, whatever the session's zone."""
    return f"timestampadd(MICROSECOND, {micros}, timestamp_ntz'1970-01-01 00:00:00')"
