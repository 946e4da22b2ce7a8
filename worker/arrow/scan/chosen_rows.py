"""Which rows of a table in memory fulfil a condition.

A condition that lists many numbers is looked up in a table of bits, by their last bits: Arrow's hash table takes about
five times as long. The few rows that it lets through are compared with the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from worker.arrow.expressions.conditions import ORS_MAX, Predicate, expression, value_of
from worker.files.position_blocks import Numbers

PLACE: Final = "_laketx_place"
PLACE_BITS: Final = 6  # 2 ** 6 places for each number: about one row of so many is let through in vain
INT: Final = 4  # bytes; less don't hold the mask of a place

Choice = Callable[[pa.Table], Numbers]


def choice(where: Predicate, schema: pa.Schema) -> Choice:
    """Return a function that finds the places of the rows for which the condition is true, in order.

    It is made once for all files, because a list of keys takes long. The rows have the columns of the condition.
    """
    return _listed(where, schema) or partial(_filtered, expression(where, schema))


def _filtered(condition: Any, rows: pa.Table) -> Numbers:
    placed = rows.append_column(PLACE, pa.array(np.arange(len(rows))))
    places: Numbers = placed.filter(condition).column(PLACE).to_numpy()
    return places


def _listed(where: Predicate, schema: pa.Schema) -> Choice | None:
    """Return the choice of rows whose column has one of many numbers, or is NULL if the condition includes that."""
    parts = where.any_of.operands if where.WhichOneof("kind") == "any_of" else [where]
    lists = [part.in_list for part in parts if part.WhichOneof("kind") == "in_list"]
    nulls = [part.is_null.column for part in parts if part.WhichOneof("kind") == "is_null"]
    if len(lists) != 1 or len(lists) + len(nulls) < len(parts) or {*nulls} - {lists[0].column}:
        return None
    kind = schema.field(lists[0].column).type
    if len(lists[0].values) <= ORS_MAX or not (pa.types.is_signed_integer(kind) or pa.types.is_date32(kind)):
        return None
    values = [value_of(value, kind) for value in lists[0].values]
    return _Numbers(lists[0].column, np.array([value for value in values if value is not None], np.int64), bool(nulls))


class _Numbers:
    """Finds rows whose column has one of some numbers."""

    def __init__(self, column: str, numbers: Numbers, with_null: bool) -> None:
        self._column = column
        self._numbers = np.unique(numbers)
        self._with_null = with_null
        self._mask = (1 << len(numbers).bit_length() + PLACE_BITS) - 1
        self._bits = np.zeros(self._mask + 1, bool)
        self._bits[self._numbers & self._mask] = True

    def __call__(self, rows: pa.Table) -> Numbers:
        parts, begin = [np.empty(0, np.int64)], 0
        for chunk in rows.column(self._column).chunks:
            if len(chunk):
                parts.append(self._places(chunk) + begin)
            begin += len(chunk)
        return np.concatenate(parts)

    def _places(self, chunk: pa.Array) -> Numbers:
        values = _plain(chunk)
        near = np.flatnonzero(self._bits.take(values & self._mask))
        some = values[near]
        places: Numbers = near[self._numbers[np.searchsorted(self._numbers[:-1], some)] == some]
        if chunk.null_count:
            is_null = chunk.is_null().to_numpy(zero_copy_only=False)
            places = places[~is_null[places]]
            places = np.union1d(places, np.flatnonzero(is_null)) if self._with_null else places
        return places


def _plain(chunk: pa.Array) -> Numbers:
    """Return the numbers of an array as they are stored; any number where it has NULL."""
    kind = np.dtype(f"i{chunk.type.bit_width // 8}")
    data = chunk.buffers()[1]
    numbers: Numbers = np.frombuffer(data, kind, len(chunk), chunk.offset * kind.itemsize)
    return numbers if kind.itemsize >= INT else numbers.astype(np.int64)
