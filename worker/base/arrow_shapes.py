"""A table's columns as Arrow types, and rows of older files in that shape: matched by column ids, not by names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from protos.laketx.v1 import catalog_pb2
from worker.base.schema import FIELD_ID, OP, ROW_ID, WORDS, columns_schema

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


def arrow_schema(meta: catalog_pb2.Table, *, with_op: bool = False, with_row_id: bool = False) -> pa.Schema:
    """The Arrow schema of the table's files: ids on columns and fields, everything nullable."""
    fields = [_field(one) for one in columns_schema(list(meta.columns), nullable=True).fields]
    if with_op:
        fields.append(pa.field(OP, pa.int8()))
    if with_row_id:
        fields.append(pa.field(ROW_ID, pa.int64()))
    return pa.schema(fields)


def _field(field: t.StructField) -> pa.Field:
    field_id = (field.metadata or {}).get(FIELD_ID)
    metadata = None if field_id is None else {ARROW_ID: str(field_id).encode()}
    return pa.field(field.name, _arrow_type(field.dataType), True, metadata)


def _arrow_type(kind: t.DataType) -> pa.DataType:
    match kind:
        case t.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case t.ArrayType():
            return pa.list_(pa.field("element", _arrow_type(kind.elementType)))
        case t.MapType():
            return pa.map_(_arrow_type(kind.keyType), _arrow_type(kind.valueType))
        case t.StructType():
            return pa.struct([_field(one) for one in kind.fields])
        case _:
            return ARROW[WORDS[type(kind)]]


def field_id(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(ARROW_ID)
    return None if found is None else int(found)


def in_shape(rows: pa.Table, wanted: pa.Schema, names: Mapping[int, str] | None = None) -> pa.Table:
    """The rows with the wanted columns, each found by its id; by the given names if the file has no ids."""
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
        columns.append(pa.nulls(len(rows), field.type) if at < 0 else _column(rows.column(at), field.type))
    return pa.table(columns, schema=wanted)


def _column(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_nested(wanted):
        return column if column.type == wanted else column.cast(wanted)
    return pa.chunked_array([_nested(chunk, wanted) for chunk in column.chunks], wanted)


def _nested(array: Any, wanted: pa.DataType) -> Any:
    """A dropped field is left out, and a new one is NULL; a type without ids is matched by name."""
    if pa.types.is_struct(wanted):
        return _struct(array, wanted)
    if pa.types.is_map(wanted):
        keys, items = _nested(array.keys, wanted.key_type), _nested(array.items, wanted.item_type)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, wanted)
    if pa.types.is_list(wanted):
        return pa.ListArray.from_arrays(_offsets(array), _nested(array.values, wanted.value_type), wanted)
    return array if array.type == wanted else array.cast(wanted)


def _offsets(array: Any) -> Any:
    """Offsets, NULL where the list is NULL."""
    if not array.null_count:
        return array.offsets
    gone = array.is_null().to_pylist()
    return pa.array(
        [None if is_gone else at for at, is_gone in zip(array.offsets.to_pylist(), [*gone, False], strict=True)],
        pa.int32(),
    )


def _struct(array: Any, wanted: pa.StructType) -> Any:
    have = [array.type.field(at) for at in range(array.type.num_fields)]
    by_id = {field_id(one): at for at, one in enumerate(have) if field_id(one) is not None}
    by_name = {one.name: at for at, one in enumerate(have)}
    children = []
    for at in range(wanted.num_fields):
        field = wanted.field(at)
        found = by_id.get(field_id(field)) if by_id else by_name.get(field.name)
        nulls = pa.nulls(len(array), field.type)
        children.append(nulls if found is None else _nested(array.field(found), field.type))
    fields = [wanted.field(at) for at in range(wanted.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
