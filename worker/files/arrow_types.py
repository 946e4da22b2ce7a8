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
    """The Arrow schema of the table's files: ids on columns and fields, everything nullable."""
    return _arrow_schema(catalog_pb2.Table(columns=meta.columns).SerializeToString(), with_op, with_row_id, with_set)


@lru_cache(maxsize=1 << 7)  # a read or a small write needs it several times; wide tables make it slow
def _arrow_schema(columns: bytes, with_op: bool, with_row_id: bool, with_set: bool) -> pa.Schema:
    fields = [column_field(one) for one in catalog_pb2.Table.FromString(columns).columns]
    if with_op:
        fields.append(pa.field(OP, pa.int8()))
    if with_row_id:
        fields.append(pa.field(ROW_ID, pa.int64()))
    if with_set:
        fields.append(pa.field(SET, pa.binary()))
    return pa.schema(fields)


def file_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as new files have it: columns beside the table's have ids, too. Older files are without them."""
    return pa.schema(
        [_field(one.name, one.type, FILE_IDS[one.name]) if one.name in FILE_IDS else one for one in schema]
    )


def column_field(column: catalog_pb2.Column) -> pa.Field:
    """A column as its files have it: with its id, nullable."""
    return _column_field(
        column.name, column.type, column.column_id, tuple((one.path, one.field_id) for one in column.nested)
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
            return pa.struct([part(one.name, one.kind) for one in fields])


def wire_columns(schema: pa.Schema, keys: Collection[str]) -> list[catalog_pb2.Column]:
    """The columns of a new table; key columns are NOT NULL whatever the schema says."""
    lower = {name.lower() for name in keys}
    found = []
    for one in schema:
        check_name(one.name)
        nullable = one.nullable and one.name.lower() not in lower
        found.append(catalog_pb2.Column(name=one.name, type=type_text(_type_of(one.type)), nullable=nullable))
    return found


def _type_of(kind: pa.DataType) -> Type:
    if pa.types.is_dictionary(kind):
        return _type_of(kind.value_type)
    if pa.types.is_decimal(kind) and kind.precision <= DIGITS_MAX:
        return Decimal(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return Map(_type_of(kind.key_type), _type_of(kind.item_type))
    if pa.types.is_struct(kind):
        return Struct(tuple(Field(one.name, _type_of(one.type), one.nullable) for one in kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return Array(_type_of(kind.value_type))
    if pa.types.is_timestamp(kind):
        return Atomic("timestamp_ntz" if kind.tz is None else "timestamp")
    for fits, word in WORDS:
        if fits(kind):
            return Atomic(word)
    raise InputError("TYPE_NOT_SUPPORTED", f"{kind} can't be a column's type: cast it to one that tables have")


def field_id(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(ARROW_ID)
    return None if found is None else int(found)


def in_shape(rows: pa.Table, wanted: pa.Schema, names: Mapping[int, str] | None = None) -> pa.Table:
    """The rows with the wanted columns, each found by its id; by the given names if the file has no ids."""
    if names is None and rows.schema.equals(wanted, check_metadata=True):
        return rows
    by_id = {field_id(one): at for at, one in enumerate(rows.schema)}
    columns = []
    for field in wanted:
        column_id = field_id(field)
        if column_id is None:
            at = rows.schema.get_field_index(field.name)
        elif names is None:
            at = by_id.get(column_id, -1)
        else:
            at = rows.schema.get_field_index(names[column_id]) if column_id in names else -1
        found = None if at < 0 else _column(rows.column(at), field.type, by_name=names is not None)
        columns.append(pa.nulls(len(rows), field.type) if found is None else found)
    return pa.table(columns, schema=wanted)


def _column(column: pa.ChunkedArray, wanted: pa.DataType, *, by_name: bool) -> pa.ChunkedArray:
    if not pa.types.is_nested(wanted):
        return column if column.type == wanted else column.cast(wanted)
    return pa.chunked_array([nested(chunk, wanted, by_name=by_name) for chunk in column.chunks], wanted)


def nested(array: Any, wanted: pa.DataType, *, by_name: bool = False, cast: Cast | None = None) -> Any:
    """A dropped field is left out, and a new one is NULL; a type without ids is matched by name.

    With `by_name` ids count for nothing: they are not the table's. `cast` casts the values of simple types.
    """
    if pa.types.is_struct(wanted):
        return _struct(array, wanted, by_name, cast)
    if pa.types.is_map(wanted):
        keys = nested(array.keys, wanted.key_type, by_name=by_name, cast=cast)
        items = nested(array.items, wanted.item_type, by_name=by_name, cast=cast)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, wanted)
    if pa.types.is_list(wanted):
        values = nested(array.values, wanted.value_type, by_name=by_name, cast=cast)
        return pa.ListArray.from_arrays(_offsets(array), values, wanted)
    if array.type == wanted:
        return array
    return array.cast(wanted) if cast is None else cast(array, wanted)


def _offsets(array: Any) -> Any:
    """Offsets, NULL where the list is NULL."""
    if not array.null_count:
        return array.offsets
    gone = array.is_null().to_pylist()
    return pa.array(
        [None if is_gone else at for at, is_gone in zip(array.offsets.to_pylist(), [*gone, False], strict=True)],
        pa.int32(),
    )


def _struct(array: Any, wanted: pa.StructType, by_name: bool, cast: Cast | None) -> Any:
    have = [array.type.field(at) for at in range(array.type.num_fields)]
    by_id = {field_id(one): at for at, one in enumerate(have) if field_id(one) is not None}
    names = {one.name.lower(): at for at, one in enumerate(have)}
    children = []
    for at in range(wanted.num_fields):
        field = wanted.field(at)
        found = by_id.get(field_id(field)) if by_id and not by_name else names.get(field.name.lower())
        nulls = pa.nulls(len(array), field.type)
        children.append(nulls if found is None else nested(array.field(found), field.type, by_name=by_name, cast=cast))
    fields = [wanted.field(at) for at in range(wanted.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
