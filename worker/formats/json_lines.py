"""Lines of JSON as values in Arrow, typed by the table's columns: the inverse of what `texts` writes. No Spark here.

Numbers keep their digits until a column says what they are. Text is never read as a number, nor a number as text.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from types import NoneType
from typing import Any, Final

import pyarrow as pa

from worker.base.schema import path_below
from worker.formats.rejects import UnfitError, shown
from worker.formats.text_parser import from_texts, word_of

PLAINLY: Final[Mapping[pa.DataType, type]] = {
    pa.bool_(): bool,
    pa.int8(): int,
    pa.int16(): int,
    pa.int32(): int,
    pa.int64(): int,
    pa.string(): str,
}
NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


class Pairs(list[tuple[str, Any]]):
    """An object: its names and values, in their order."""


class Number(str):
    """A number that is not a whole one, as it was written."""

    __slots__ = ()


class Moment(str):
    """A time in UTC with its Z, which also fits a column without a zone."""

    __slots__ = ()


decode: Final[Callable[[str], Any]] = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_float=Number, parse_constant=Number
).decode


def from_documents(values: Sequence[Any], kind: pa.DataType, column: str) -> Any:
    """Return the values as an array of the type; null is NULL. Refuse a value of another type."""
    if pa.types.is_list(kind):
        return _lists(values, kind, column)
    if pa.types.is_map(kind):
        return _maps(values, kind, column)
    if pa.types.is_struct(kind):
        return _structs(values, kind, column)
    if (quick := _plainly_typed(values, kind)) is not None:
        return quick
    if pa.types.is_boolean(kind):
        _check(values, kind, column, lambda value: value is True or value is False)
        return pa.array(values, kind)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        _check(values, kind, column, lambda value: type(value) is int or type(value) is Number)
        return _of_texts(values, kind, column)
    if pa.types.is_floating(kind):
        _check(
            values,
            kind,
            column,
            lambda value: type(value) is int or type(value) is Number or (type(value) is str and value in NOT_FINITE),
        )
        return _of_texts(values, kind, column)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        values = [value[:-1] if type(value) is Moment else value for value in values]
    _check(values, kind, column, lambda value: type(value) is str or type(value) is Moment)
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else _bytes(text, column) for text in values], kind)
    return _of_texts(values, kind, column)


def _plainly_typed(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Return the array if all values have the column's own Python type, or else None."""
    if set(map(type, values)) - {NoneType} != {PLAINLY.get(kind)}:
        return None
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):  # the long way says which value, and why
        return None


def _check(values: Sequence[Any], kind: pa.DataType, column: str, fits: Callable[[Any], bool]) -> None:
    for value in values:
        if value is not None and not fits(value):
            raise UnfitError("VALUE_INVALID", f"{_shown(value)} is no {word_of(kind)}", column)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "an object" if isinstance(value, Pairs) else "an array"
    return shown(value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False))


def _of_texts(values: Sequence[Any], kind: pa.DataType, column: str) -> Any:
    try:
        texts = pa.array([None if value is None else str(value) for value in values], pa.string())
    except UnicodeEncodeError as error:  # half of a pair of surrogates
        raise UnfitError("VALUE_INVALID", f"a text has what is no character: {error.reason}", column) from error
    return from_texts(texts, kind, column)


def _bytes(text: str, column: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnfitError("VALUE_INVALID", f"{shown(text)} is no base64", column) from error


# -- nested values -----------------------------------------------------------------------------------------------------


def _lists(values: Sequence[Any], kind: pa.DataType, column: str) -> Any:
    _check(values, kind, column, lambda value: type(value) is list)
    elements = [element for value in values if value is not None for element in value]
    child = from_documents(elements, kind.value_type, path_below(column, "element"))
    return pa.ListArray.from_arrays(_offsets(values), child, kind)


def _maps(values: Sequence[Any], kind: pa.DataType, column: str) -> Any:
    """Return maps. A JSON object has the keys as texts."""
    _check(values, kind, column, lambda value: type(value) is Pairs)
    pairs = [pair for value in values if value is not None for pair in value]
    for value in values:
        if value is not None and len({key for key, _ in value}) < len(value):
            raise UnfitError("VALUE_INVALID", "a map has a key twice", column)
    keys = _keys([key for key, _ in pairs], kind.key_type, path_below(column, "key"))
    items = from_documents([item for _, item in pairs], kind.item_type, path_below(column, "value"))
    return pa.MapArray.from_arrays(_offsets(values), keys, items, kind)


def _keys(texts: list[str], kind: pa.DataType, column: str) -> Any:
    if not pa.types.is_nested(kind):
        return _of_texts(texts, kind, column)
    try:
        documents = [decode(text) for text in texts]
    except (ValueError, RecursionError) as error:
        raise UnfitError("VALUE_INVALID", f"a key is no {word_of(kind)}: {error}", column) from error
    return from_documents(documents, kind, column)


def _structs(values: Sequence[Any], kind: pa.DataType, column: str) -> Any:
    """Return structs. Fields are matched by name in any case; a missing field is NULL."""
    _check(values, kind, column, lambda value: type(value) is Pairs)
    fields = [kind.field(at) for at in range(kind.num_fields)]
    places = {field.name.lower(): at for at, field in enumerate(fields)}
    children: list[list[Any]] = [[None] * len(values) for _ in fields]
    for row, value in enumerate(values):
        taken = set()
        for name, field_value in value or ():
            at = places.get(name.lower())
            if at is None:
                raise UnfitError("COLUMN_UNKNOWN", f"there is no field {name}", column)
            if at in taken:
                raise UnfitError("COLUMN_TWICE", f"the field {name} is there twice", column)
            taken.add(at)
            children[at][row] = field_value
    arrays = [
        from_documents(child, field.type, path_below(column, field.name))
        for child, field in zip(children, fields, strict=True)
    ]
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _offsets(values: Sequence[Any]) -> Any:
    """Return the position of each value's first element; NULL if the value is NULL."""
    ends = [0, *accumulate(0 if value is None else len(value) for value in values)]
    gone = [*(value is None for value in values), False]
    return pa.array([None if is_gone else end for end, is_gone in zip(ends, gone, strict=True)], pa.int32())
