"""A table's columns as Arrow types, and rows of older files in that shape: matched by column ids, not by names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa

from metaservice.shared.column_types import Array, Atomic, Decimal, Field, Map, Struct, Type, read_type, type_text
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.base.schema import FILE_IDS, OP, ROW_ID, SET, check_name, path_below

ARROW_ID: Final = b"PARQUET:field_id"  # where pyarrow keeps a Parquet field id
ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

Cast = Callable[[Any, pa.DataType], Any]
DIGITS_MAX: Final = 38
WORDS: Final[Sequence[tuple[Callable[[pa.DataType], bool], str]]] = (
    *((partial(pa.DataType.equals, kind), word) for word, kind in ARROW.items() if "timestamp" not in word),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date64, "date"),
)


def arrow_schema(
    meta: catalog_pb2.Table, *, with_op: bool = False, with_row_id: bool = False, with_set: bool = False
) -> pa.Schema:
    """Return the Arrow schema of the table's files: columns and fields have ids, and all are nullable."""
    return _arrow_schema(catalog_pb2.Table(columns=meta.columns).SerializeToString(), with_op, with_row_id, with_set)


@lru_cache(maxsize=1 << 7)  # a read or a small write needs it several times; wide tables make it slow
def _arrow_schema(columns: bytes, with_op: bool, with_row_id: bool, with_set: bool) -> pa.Schema:
    fields = [column_field(column) for column in catalog_pb2.Table.FromString(columns).columns]
    if with_op:
        fields.append(pa.field(OP, pa.int8()))
    if with_row_id:
        fields.append(pa.field(ROW_ID, pa.int64()))
    if with_set:
        fields.append(pa.field(SET, pa.binary()))
    return pa.schema(fields)


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of new files, whose extra columns have ids, too. Older files lack these ids."""
    return pa.schema(
        [_field(field.name, field.type, FILE_IDS[field.name]) if field.name in FILE_IDS else field for field in schema]
    )


def column_field(column: catalog_pb2.Column) -> pa.Field:
    """Return a column as files have it: with its id, nullable."""
    return _column_field(
        column.name,
        column.type,
        column.column_id,
        tuple((nested_field.path, nested_field.field_id) for nested_field in column.nested),
    )


@lru_cache(maxsize=1 << 14)  # a small write asks several times for the same columns
def _column_field(name: str, type_name: str, column_id: int, nested: tuple[tuple[str, int], ...]) -> pa.Field:
    return _field(name, _arrow_type(read_type(type_name), "", dict(nested)), column_id)


def _field(name: str, kind: pa.DataType, field_id: int | None) -> pa.Field:
    return pa.field(name, kind, True, None if field_id is None else {ARROW_ID: str(field_id).encode()})


def _arrow_type(kind: Type, path: str, nested: Mapping[str, int]) -> pa.DataType:
    def below(name: str, child: Type) -> pa.DataType:
        return _arrow_type(child, path_below(path, name), nested)

    def part(name: str, child: Type) -> pa.Field:
        return _field(name, below(name, child), nested.get(path_below(path, name)))

    match kind:
        case Atomic(name):
            return ARROW[name]
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Array(element):
            return pa.list_(part("element", element))
        case Map(key, value):
            return pa.map_(part("key", key).with_nullable(False), part("value", value))
        case Struct(fields):
            return pa.struct([part(field.name, field.kind) for field in fields])


def wire_columns(schema: pa.Schema, keys: Collection[str]) -> list[catalog_pb2.Column]:
    """Return the columns of a new table. Key columns are NOT NULL in any case."""
    lower = {name.lower() for name in keys}
    columns = []
    for field in schema:
        check_name(field.name)
        nullable = field.nullable and field.name.lower() not in lower
        columns.append(catalog_pb2.Column(name=field.name, type=type_text(_type_of(field.type)), nullable=nullable))
    return columns


def _type_of(kind: pa.DataType) -> Type:
    if pa.types.is_dictionary(kind):
        return _type_of(kind.value_type)
    if pa.types.is_decimal(kind) and kind.precision <= DIGITS_MAX:
        return Decimal(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return Map(_type_of(kind.key_type), _type_of(kind.item_type))
    if pa.types.is_struct(kind):
        return Struct(tuple(Field(field.name, _type_of(field.type), field.nullable) for field in kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return Array(_type_of(kind.value_type))
    if pa.types.is_timestamp(kind):
        return Atomic("timestamp_ntz" if kind.tz is None else "timestamp")
    for fits, word in WORDS:
        if fits(kind):
            return Atomic(word)
    raise InputError("TYPE_NOT_SUPPORTED", f"{kind} can't be a column's type: cast it to one that tables have")


def field_id(field: pa.Field) -> int | None:
    number = (field.metadata or {}).get(ARROW_ID)
    return None if number is None else int(number)


def in_shape(rows: pa.Table, target: pa.Schema, names: Mapping[int, str] | None = None) -> pa.Table:
    """Return the rows with the target's columns, matched by id, or by the given names if the file has no ids."""
    if names is None and rows.schema.equals(target, check_metadata=True):
        return rows
    by_id = {field_id(file_field): at for at, file_field in enumerate(rows.schema)}
    columns = []
    for field in target:
        column_id = field_id(field)
        if column_id is None:
            at = rows.schema.get_field_index(field.name)
        elif names is None:
            at = by_id.get(column_id, -1)
        else:
            at = rows.schema.get_field_index(names[column_id]) if column_id in names else -1
        column = None if at < 0 else _column(rows.column(at), field.type, by_name=names is not None)
        columns.append(pa.nulls(len(rows), field.type) if column is None else column)
    return pa.table(columns, schema=target)


def _column(column: pa.ChunkedArray, target: pa.DataType, *, by_name: bool) -> pa.ChunkedArray:
    if not pa.types.is_nested(target):
        return column if column.type == target else column.cast(target)
    return pa.chunked_array([nested(chunk, target, by_name=by_name) for chunk in column.chunks], target)


def nested(array: Any, target: pa.DataType, *, by_name: bool = False, cast: Cast | None = None) -> Any:
    """Return an array of the target type. Dropped fields are left out, new ones are NULL; without ids, names match.

    With `by_name` ids are ignored: they are not the table's. `cast` casts the values of simple types.
    """
    if pa.types.is_struct(target):
        return _struct(array, target, by_name, cast)
    if pa.types.is_map(target):
        keys = nested(array.keys, target.key_type, by_name=by_name, cast=cast)
        items = nested(array.items, target.item_type, by_name=by_name, cast=cast)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, target)
    if pa.types.is_list(target):
        values = nested(array.values, target.value_type, by_name=by_name, cast=cast)
        return pa.ListArray.from_arrays(_offsets(array), values, target)
    if array.type == target:
        return array
    return array.cast(target) if cast is None else cast(array, target)


def _offsets(array: Any) -> Any:
    """Return the offsets of lists, with NULL for a list that is NULL."""
    if not array.null_count:
        return array.offsets
    gone = array.is_null().to_pylist()
    return pa.array(
        [None if is_gone else at for at, is_gone in zip(array.offsets.to_pylist(), [*gone, False], strict=True)],
        pa.int32(),
    )


def _struct(array: Any, target: pa.StructType, by_name: bool, cast: Cast | None) -> Any:
    have = [array.type.field(at) for at in range(array.type.num_fields)]
    by_id = {field_id(array_field): at for at, array_field in enumerate(have) if field_id(array_field) is not None}
    names = {array_field.name.lower(): at for at, array_field in enumerate(have)}
    children = []
    for at in range(target.num_fields):
        field = target.field(at)
        position = by_id.get(field_id(field)) if by_id and not by_name else names.get(field.name.lower())
        nulls = pa.nulls(len(array), field.type)
        children.append(
            nulls if position is None else nested(array.field(position), field.type, by_name=by_name, cast=cast)
        )
    fields = [target.field(at) for at in range(target.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
