"""The source rows of a MERGE without Spark, in the types of tables, whatever form they had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from protos.laketx.v1 import catalog_pb2
from worker.arrow.write.input_rows import plain_type
from worker.arrow.write.python_rows import of_dicts
from worker.base.errors import InputError

SMALLER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def plain_source(rows: pa.Table) -> pa.Table:
    """Return the rows in types that tables have. Refuse a time without whole microseconds."""
    lower = [name.lower() for name in rows.column_names]
    for name in lower:
        if lower.count(name) > 1:
            raise InputError("COLUMN_TWICE", f"the rows have {name} twice")
    fields = [pa.field(field.name, _kind(field.type)) for field in rows.schema]
    columns = []
    for column, field in zip(rows.columns, fields, strict=True):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise InputError("CAST_LOSSY", f"a value of {field.name} would change as {field.type}: {error}") from error
    return pa.table(columns, schema=pa.schema(fields))


def _kind(given: pa.DataType) -> pa.DataType:
    kind = plain_type(given)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_date64(kind):
        return pa.date32()
    return pa.float32() if kind == pa.float16() else SMALLER.get(kind, kind)


def source_of_dicts(rows: Sequence[Mapping[str, Any]], meta: catalog_pb2.Table) -> pa.Table:
    """Convert a list of dicts: the table's columns to its types, each other column to the single type of its values."""
    if not rows:
        return of_dicts([], meta)
    names = list(rows[0])
    if any(list(row) != names and set(row) != set(names) for row in rows):
        raise InputError("ROWS_INVALID", "the rows of a merge have the same columns: name each in all of them")
    return columns_of_dicts(rows, meta)


def columns_of_dicts(rows: Sequence[Mapping[str, Any]], meta: catalog_pb2.Table) -> pa.Table:
    """Convert a list of dicts that need not have the same columns: a missing value is the default, or NULL."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    own_names = {column.name.lower() for column in meta.columns}
    own = [name for name in names if name.lower() in own_names]
    own_rows = (
        of_dicts([{name: row[name] for name in own if name in row} for row in rows], meta) if own else pa.table({})
    )
    columns = dict(zip(own_rows.column_names, own_rows.columns, strict=True))
    others = {name: _other(name, [row.get(name) for row in rows]) for name in names if name not in columns}
    return pa.table({name: columns[name] if name in columns else others[name] for name in names})


def _other(name: str, values: Sequence[Any]) -> Any:
    """Return a column that the table doesn't have, in the type of its values."""
    kinds = {type(value).__name__ for value in values if value is not None}
    if len(kinds) > 1:
        raise InputError("ROWS_INVALID", f"{name} has values of several types ({', '.join(sorted(kinds))})")
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError("ROWS_INVALID", f"the values of {name} are no column: {error}") from error
