"""Rows of Python's own values as Arrow, by the rules for Arrow columns: the values of one Python type are one column.

    [1, 2]             bigint    as they are
    [1, 2.0, None]     bigint    the integers and the floats are a column each, and each is cast as such
    [1.5]              bigint    refused, as a column of doubles with 1.5 is

pyarrow itself would make 1 of 1.5, and a date of a datetime: nothing here is left to its own conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias

import pyarrow as pa

from protos.laketx.v1 import catalog_pb2
from worker.arrow.write.input_rows import Target, check_names, column_as, default_of, misfit
from worker.base.errors import InputError
from worker.base.schema import exact_names
from worker.files.arrow_types import arrow_schema

Values: TypeAlias = Sequence[Any]
NONE: Final = type(None)
PLAIN: Final[Sequence[tuple[Callable[[pa.DataType], bool], type]]] = (
    (pa.types.is_integer, int),
    (pa.types.is_float64, float),
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_binary, bytes),
    (pa.types.is_date32, date),
    (pa.types.is_decimal, Decimal),
)
NOT_A_VALUE: Final = frozenset({"NaTType", "NAType"})  # the types of NULL in pandas


def of_dicts(rows: Sequence[Mapping[str, Any]], meta: catalog_pb2.Table) -> pa.Table:
    """Convert a list of dicts to the types of the table's columns; without rows the result has every column.

    A row that lacks a column has its default, as if all rows lacked it.
    """
    if not rows:
        return arrow_schema(meta).empty_table()
    names = dict.fromkeys(name for row in rows for name in row)
    check_names(list(names), meta)
    fields = {field.name.lower(): field for field in arrow_schema(meta)}
    table_columns = {column.name.lower(): column for column in meta.columns}
    exact = exact_names(meta)
    columns = []
    for name in names:
        column, field = table_columns[name.lower()], fields[name.lower()]
        lacks = bool(column.default_sql) and not all(name in row for row in rows)
        default = default_of(column, field.type).as_py() if lacks else None
        target = Target(field.type, column.name, meta.name, is_exact=column.name in exact)
        columns.append(_array([row.get(name, default) for row in rows], target))
    return pa.table(dict(zip(names, columns, strict=True)))


def _array(values: Values, target: Target) -> Any:
    target_type = target.type
    kinds = set(map(type, values)) - {NONE}
    if any(value_type.__name__ in NOT_A_VALUE for value_type in kinds):
        values = [None if type(value).__name__ in NOT_A_VALUE else value for value in values]
        kinds = set(map(type, values)) - {NONE}
    if any(kinds == {kind} for fits, kind in PLAIN if fits(target_type)):
        return _built(lambda: pa.array(values, target_type), values, target, "CAST_LOSSY")
    if pa.types.is_timestamp(target_type) and kinds == {datetime}:
        is_zoned = target_type.tz is not None
        if all(value is None or (value.tzinfo is not None) == is_zoned for value in values):
            return _built(lambda: pa.array(values, target_type), values, target, "VALUE_INVALID")
    if pa.types.is_struct(target_type):
        return _structs(values, target)
    if pa.types.is_map(target_type):
        return _maps(values, target)
    if pa.types.is_list(target_type):
        return _lists(values, target)
    return _mixed(values, target)


def _mixed(values: Values, target: Target) -> Any:
    """Cast the values of each Python type as a column, and put them in their order again."""
    groups: dict[tuple[type, bool], list[int]] = {}
    for at, value in enumerate(values):
        if value is not None:
            groups.setdefault((type(value), _has_zone(value)), []).append(at)
    parts: list[Any] = [pa.nulls(1, target.type)]
    places = [0] * len(values)
    filled = 1
    for indices in groups.values():
        column = _of_one_type([values[at] for at in indices], target)
        parts.append(column_as(pa.chunked_array([column]), target).combine_chunks())
        for at in indices:
            places[at] = filled
            filled += 1
    return pa.chunked_array(parts, target.type).combine_chunks().take(pa.array(places, pa.int64()))


def _has_zone(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _of_one_type(values: Values, target: Target) -> Any:
    """Return values of one Python type as a column, without loss."""
    first = values[0]
    if isinstance(first, datetime):
        zone = "UTC" if first.tzinfo is not None else None
        if any(getattr(value, "nanosecond", 0) for value in values):  # pandas has nanoseconds, which pyarrow drops
            raise misfit("CAST_LOSSY", target, "a time in nanoseconds", "it has no whole microseconds")
        return _built(lambda: pa.array(values, pa.timestamp("us", zone)), values, target, "VALUE_INVALID")
    if isinstance(first, int) and not isinstance(first, bool):
        if pa.types.is_floating(target.type):  # exact, or refused
            return _built(lambda: pa.array(values, target.type), values, target, "CAST_LOSSY")
        is_long = any(not -(1 << 63) <= value < 1 << 63 for value in values)
        kind = "CAST_LOSSY" if is_long else "VALUE_INVALID"
        return _built(lambda: pa.array(map(Decimal, values) if is_long else values), values, target, kind)
    return _built(lambda: pa.array(values), values, target, "VALUE_INVALID")


def _built(make: Callable[[], Any], values: Values, target: Target, reason: str) -> Any:
    try:
        return make()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kind = next(type(value).__name__ for value in values if value is not None)
        raise misfit(reason, target, kind, str(error)) from error


# -- nested values -----------------------------------------------------------------------------------------------------


def _structs(values: Values, target: Target) -> Any:
    fields = [target.type.field(at) for at in range(target.type.num_fields)]
    values = [_named(value, fields) if isinstance(value, tuple) else value for value in values]
    _check_kinds(values, target, lambda kind: issubclass(kind, Mapping))
    given = {str(name).lower(): name for name in dict.fromkeys(name for value in values if value for name in value)}
    for name in dict.fromkeys(name for value in values if value for name in value):
        if given[str(name).lower()] != name:
            raise InputError("COLUMN_TWICE", f"the values of {target.path} have the field {name} twice")
    unknown = given.keys() - {field.name.lower() for field in fields}
    if unknown:
        path = f"{target.path}.{given[min(unknown)]}"
        raise InputError("COLUMN_UNKNOWN", f"{target.table} has no field {path}; add_columns() adds it")
    children = []
    for field in fields:
        name = given.get(field.name.lower(), field.name)
        parts = [None if value is None else value.get(name) for value in values]
        children.append(_array(parts, target.below(field.name, field.type)))
    return pa.StructArray.from_arrays(
        children, fields=fields, mask=pa.array([value is None for value in values], pa.bool_())
    )


def _named(value: tuple[Any, ...], fields: Sequence[pa.Field]) -> Any:
    """Return the values of a tuple by field: they have the order of the fields, as in a Row of Spark."""
    return {field.name: part for field, part in zip(fields, value, strict=True)} if len(value) == len(fields) else value


def _check_kinds(values: Values, target: Target, fits: Callable[[type], bool]) -> None:
    for kind in set(map(type, values)) - {NONE}:
        if not fits(kind):
            raise misfit("SCHEMA_MISMATCH", target, kind.__name__)


def _is_sequence(kind: type) -> bool:
    return hasattr(kind, "__iter__") and not issubclass(kind, (str, bytes, Mapping))


def _lists(values: Values, target: Target) -> Any:
    _check_kinds(values, target, _is_sequence)
    held = [value if value is None or type(value) is list else list(value) for value in values]
    elements = _array(list(chain.from_iterable(filter(None, held))), target.below_element())
    return pa.ListArray.from_arrays(_offsets(held), elements, target.type)


def _maps(values: Values, target: Target) -> Any:
    _check_kinds(values, target, lambda kind: _is_sequence(kind) or issubclass(kind, Mapping))
    held = [None if value is None else _pairs(value, target) for value in values]
    pairs = [pair for value in held if value is not None for pair in value]
    if any(key is None for key, _ in pairs):
        raise InputError(
            "NULL_NOT_ALLOWED", f"a row has NULL in {target.path}.key, which is NOT NULL in {target.table}"
        )
    keys = _array([key for key, _ in pairs], target.below("key", target.type.key_type))
    items = _array([item for _, item in pairs], target.below("value", target.type.item_type))
    return pa.MapArray.from_arrays(_offsets(held), keys, items, target.type)


def _pairs(value: Any, target: Target) -> list[tuple[Any, Any]]:
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    _check_kinds(pairs, target, lambda kind: issubclass(kind, (tuple, list)))
    if any(len(pair) != 2 for pair in pairs):
        raise misfit("SCHEMA_MISMATCH", target, "a list without pairs")
    return [(key, item) for key, item in pairs]


def _offsets(held: Sequence[list[Any] | None]) -> Any:
    """Return the begin of each list; NULL for a list that is NULL."""
    ends = accumulate((0 if elements is None else len(elements) for elements in held), initial=0)
    return pa.array(
        [None if elements is None else at for elements, at in zip([*held, ()], ends, strict=True)], pa.int32()
    )
