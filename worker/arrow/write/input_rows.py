"""Rows as Arrow, checked and cast to a table's shape.

Columns are matched by name, whatever their case. Casts lose nothing: a value that would change is refused.

    int -> bigint, float -> double, date -> timestamp_ntz, int -> decimal(20,0)    wider
    1.0 -> int, bigint 7 -> int, timestamp in ns -> in us                          if the value stays what it is
    2026-11-01 00:00 -> date, 0.1 -> float (the nearest, but not in a key)
    text -> int, a time without a zone -> timestamp                                refused
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from metaservice.shared.column_types import Array, Map, Struct, Type, read_type
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.base.schema import RESERVED, exact_names
from worker.base.values import python_value, wire_value
from worker.files.arrow_types import DIGITS_MAX, arrow_schema, column_field, nested

CONSTANT: Final = re.compile(r"([+-]?\d+(?:\.\d+)?|'[^'\\]*'|true|false)\Z", re.IGNORECASE)
NUMBERS: Final[Sequence[Callable[[pa.DataType], bool]]] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
)


def fitted(rows: pa.Table, meta: catalog_pb2.Table) -> pa.Table:
    """Return the rows in the table's order and types; a missing column gets its default, or NULL."""
    schema = arrow_schema(meta)
    if rows.schema.equals(schema) and (fit := _as_they_are(rows, meta, schema)) is not None:
        return fit
    names = rows.column_names
    check_names(names, meta)
    check_none_missing(names, meta)
    given = {name.lower(): at for at, name in enumerate(names)}
    exact = exact_names(meta)
    own_columns = rows.columns
    columns = []
    for column, field in zip(meta.columns, schema, strict=True):
        name, kind = field.name, field.type
        at = given.get(name.lower())
        if at is None:
            columns.append(pa.chunked_array([pa.repeat(default_of(column, kind), len(rows))]))
            continue
        values = own_columns[at]
        if not values.type.equals(kind, check_metadata=True):
            values = column_as(values, Target(kind, name, meta.name, is_exact=name in exact))
        check_not_null(values, _kind_of(column.type), column.nullable, name, meta.name)
        columns.append(values)
    return pa.table(columns, schema=schema)


def _as_they_are(rows: pa.Table, meta: catalog_pb2.Table, schema: pa.Schema) -> pa.Table | None:
    """Return rows that already have the table's names and types, with its column ids.

    None if parts of columns need ids, too. This is for tables with thousands of columns: one by one they take long.
    """
    if any(map(pa.types.is_nested, schema.types)):
        return None
    for at, column in enumerate(meta.columns):
        if not column.nullable:
            check_not_null(rows.column(at), _kind_of(column.type), False, column.name, meta.name)
    batches = rows.to_batches()
    return pa.Table.from_batches(batches, schema) if len(batches) == 1 else pa.table(rows.columns, schema=schema)


_kind_of: Final = lru_cache(maxsize=1 << 10)(read_type)  # small writes need the same types again and again


def check_names(names: Sequence[str], meta: catalog_pb2.Table) -> None:
    columns = {column.name.lower() for column in meta.columns}
    counts = Counter(name.lower() for name in names)
    for name in names:
        if name.lower() not in columns:
            hint = "" if name in RESERVED else "; add_columns() adds it"
            raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {name}{hint}")
        if counts[name.lower()] > 1:
            raise InputError("COLUMN_TWICE", f"the rows have {name} twice")


def check_none_missing(names: Sequence[str], meta: catalog_pb2.Table) -> None:
    lower = {name.lower() for name in names}
    for column in meta.columns:
        needs = column.name in meta.partition_columns or not (column.nullable or column.default_sql)
        if column.name.lower() not in lower and needs:
            raise InputError("COLUMN_MISSING", f"the rows lack {column.name}, which {meta.name} requires")


def default_of(column: catalog_pb2.Column, kind: pa.DataType) -> pa.Scalar:
    """Return the default of a column if it is a plain constant. Raises InputError if Spark has to compute it."""
    text = column.default_sql.strip()
    if not text or text.lower() == "null":
        return pa.scalar(None, kind)
    try:
        is_text = text.startswith("'")  # the text of a number or boolean is made by Spark
        if CONSTANT.match(text) is not None and (is_text or column.type != "string"):
            return pa.scalar(python_value(wire_value(text.strip("'"), column.type)), kind)
    except InputError:
        pass  # Spark would cast it
    raise InputError(
        "COLUMN_MISSING", f"the default of {column.name} is computed by Spark ({text}): give the column in the rows"
    )


def is_constant(column: catalog_pb2.Column) -> bool:
    """Return whether its default needs no Spark: there is none, or it is a plain constant of the column's type."""
    try:
        default_of(column, column_field(column).type)
    except (InputError, pa.ArrowException):
        return False
    return True


# -- casts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The type that values are cast to, the path of their column or of a part of it, and its table.

    With `is_exact`, values don't change at all; else they may become the nearest `float` or `double`, as 0.1 does.
    """

    type: pa.DataType
    path: str
    table: str
    is_exact: bool = False

    def below(self, name: str, kind: pa.DataType) -> Target:
        return replace(self, type=kind, path=f"{self.path}.{name}")

    def below_element(self) -> Target:
        return self.below("element", self.type.value_type)


def misfit(reason: str, target: Target, given: str, why: str = "") -> InputError:
    """Return the error for a value, or a column, that doesn't fit: the same sentence for all kinds of rows."""
    target_type = f"{target.type}, its type in {target.table}"
    messages = {
        "CAST_LOSSY": f"a value of {target.path} ({given}) would change as {target_type}",
        "SCHEMA_MISMATCH": f"the rows don't fit {target.table}: {target.path} is {target.type} there, "
        f"and {given} in the rows",
        "VALUE_INVALID": f"a value of {target.path} ({given}) can't be {target_type}",
    }
    return InputError(reason, messages[reason] + (f": {why}" if why else ""))


def column_as(column: pa.ChunkedArray, target: Target) -> pa.ChunkedArray:
    """Cast a column to the target's type. Raises InputError if a value would change."""
    if column.type.equals(target.type, check_metadata=True):  # with the table's ids of fields, not another's
        return column
    _check_type(column.type, target)
    try:
        chunks = [_cast(chunk.cast(plain_type(chunk.type)), target.type, target.is_exact) for chunk in column.chunks]
        return pa.chunked_array(chunks, target.type)
    except (pa.ArrowInvalid, ArithmeticError, ValueError) as error:
        raise misfit("CAST_LOSSY", target, str(column.type), str(error)) from error


def _cast(array: Any, kind: pa.DataType, is_exact: bool) -> Any:
    if pa.types.is_nested(kind):
        return nested(array, kind, cast=lambda part, part_kind: _cast(part, part_kind, is_exact))
    stored = _as(array, kind)
    if pa.types.is_floating(kind):
        _check_float(array, stored, is_exact)
    elif pa.types.is_date(kind) and pa.types.is_timestamp(array.type) and not stored.cast(array.type).equals(array):
        raise ValueError("a time of day would be lost")
    return stored


def _as(array: Any, kind: pa.DataType) -> Any:
    if array.type == kind:
        return array
    if pa.types.is_decimal(kind) and pa.types.is_floating(array.type):  # by its digits, as Spark does
        return pa.array([None if value is None else Decimal(repr(value)) for value in array.to_pylist()], kind)
    if pa.types.is_decimal(kind) and pa.types.is_integer(array.type):  # Arrow asks for room for every integer
        return array.cast(pa.decimal128(DIGITS_MAX, 0)).cast(kind)
    return array.cast(kind)


def _check_float(given: Any, stored: Any, is_exact: bool) -> None:
    """Check what Arrow doesn't: that no number became infinite, and none changed if `is_exact`."""
    if pa.types.is_decimal(given.type) and is_exact:
        if not _as(stored, given.type).equals(given):
            raise ValueError("it is not the same number there")
    elif pa.types.is_floating(given.type) and given.type != stored.type:
        before, after = (values.cast(pa.float64()).to_numpy(zero_copy_only=False) for values in (given, stored))
        if is_exact and not np.array_equal(before, after, equal_nan=True):
            raise ValueError("it is not the same number there")
        if (np.isinf(after) & ~np.isinf(before)).any():
            raise ValueError("it is out of range")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the plain form of a type: a dictionary, view, large or fixed-size type becomes the ordinary type."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if _is_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if _is_text(kind):
        return pa.string()
    if _is_bytes(kind):
        return pa.binary()
    return kind


def _check_type(given: pa.DataType, target: Target) -> None:
    given, kind = plain_type(given), target.type
    if pa.types.is_struct(kind) and pa.types.is_struct(given):
        fields = {field.name.lower(): field for field in kind}
        for field in given:
            if field.name.lower() not in fields:
                path = f"{target.path}.{field.name}"
                raise InputError("COLUMN_UNKNOWN", f"{target.table} has no field {path}; add_columns() adds it")
            _check_type(field.type, target.below(field.name, fields[field.name.lower()].type))
    elif pa.types.is_map(kind) and pa.types.is_map(given):
        _check_type(given.key_type, target.below("key", kind.key_type))
        _check_type(given.item_type, target.below("value", kind.item_type))
    elif pa.types.is_list(kind) and pa.types.is_list(given):
        _check_type(given.value_type, target.below_element())
    elif pa.types.is_date(kind) and pa.types.is_timestamp(given) and given.tz is not None:
        raise misfit("CAST_LOSSY", target, str(given), "the day depends on a time zone: cast it yourself")
    elif not storable(given, kind):
        raise misfit("SCHEMA_MISMATCH", target, str(given))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def storable(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether values of the given type may be stored as the other, if none of them changes."""
    if given == kind or pa.types.is_null(given):
        return True
    if any(fits(given) for fits in NUMBERS):
        return any(fits(kind) for fits in NUMBERS)
    if pa.types.is_timestamp(given) and pa.types.is_date(kind):
        return given.tz is None
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(kind):
        return (given.tz is None) == (kind.tz is None)
    if pa.types.is_date(given):
        return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))
    return (_is_text(given) and _is_text(kind)) or (_is_bytes(given) and _is_bytes(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(is_plain or pa.types.is_fixed_size_binary(kind))


# -- NOT NULL ----------------------------------------------------------------------------------------------------------


def check_not_null(values: pa.ChunkedArray, kind: Type, nullable: bool, path: str, table: str) -> None:
    if nullable and not isinstance(kind, Struct | Array | Map):
        return
    for chunk in values.chunks:
        for where in _missing(chunk, kind, nullable, path):
            raise InputError("NULL_NOT_ALLOWED", f"a row has NULL in {where}, which is NOT NULL in {table}")


def _missing(array: Any, kind: Type, nullable: bool, path: str) -> Iterator[str]:
    """Yield the paths that have NULL and must not."""
    if not nullable and array.null_count:
        yield path
    match kind:
        case Struct(fields):
            present = array.filter(array.is_valid()) if array.null_count else array
            for at, field in enumerate(fields):
                yield from _missing(present.field(at), field.kind, field.nullable, f"{path}.{field.name}")
        case Array(element):
            yield from _missing(array.flatten(), element, True, f"{path}.element")
        case Map(key, value):
            present = array.filter(array.is_valid()) if array.null_count else array
            yield from _missing(present.keys, key, False, f"{path}.key")
            yield from _missing(present.items, value, True, f"{path}.value")
        case _:
            return
