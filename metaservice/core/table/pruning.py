"""Which files of a plan can hold no matching row: three-valued logic over what column statistics leave possible.

A condition on a file has not one truth but those its rows may have: any of TRUE, FALSE and NULL. A file can be left out
where TRUE is not among them. Whatever is not known (no statistics, of another type, NaN) leaves all three.

Leaving a file out must not show rows that it hides. In an append table files hide nothing. In a primary-key table an
image hides older images of its key in the same bucket, so, in the order of data versions:

    a file whose KEY and partition columns rule it out may go: every image of its keys is ruled out with it
    a file that other columns rule out may go where no file of a lower data version, kept, may share a key with it

Where images set single columns (merge.engine=partial) only the first holds: the row that matches may be in no file.

Why the second is enough: take a key whose newest image lies in a file that went. It has no matching row; and no older
image shows instead, since a file that holds one, kept, would have kept the newer one too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from metaservice.core.table.partitions import wire_kind
from metaservice.core.table.predicates import (
    TRUE,
    AllOf,
    AnyOf,
    Compare,
    InList,
    IsNull,
    Literal,
    Not,
    Predicate,
    SqlValue,
    StartsWith,
    columns_of,
)

# Smallest and largest value, None where not known; whether there may be NULLs; whether there may be values.
Bounds = tuple[Any, Any, bool, bool]
Row = tuple[Bounds, ...]
Judge = Callable[[Row], int]  # the truths that are possible

MAY_BE_TRUE: Final = 1
MAY_BE_FALSE: Final = 2
MAY_BE_NULL: Final = 4
UNKNOWN: Final[Bounds] = (None, None, True, True)
HIDERS_COMPARED_MAX: Final = 256


def exactly(value: SqlValue) -> Bounds:
    """The bounds of a column that is the same in every row."""
    return (value, value, value is None, value is not None)


def bounds(low: SqlValue, high: SqlValue, nulls: int | None, rows: int) -> Bounds:
    """Return the bounds of a column in a file, from its statistics."""
    has_bounds = low is not None and high is not None
    if low != low or high != high or (has_bounds and low > high):  # type: ignore[operator]  # NaN, nonsense
        low = high = None
    has_values = nulls is None or nulls < rows or low is not None or high is not None
    return (low, high, nulls is None or nulls > 0, has_values)


def joined(rows: Sequence[Row]) -> Row:
    """The bounds of all files together: a test that these fail, each of the files fails."""
    return tuple(map(_joined, zip(*rows, strict=True)))


def _joined(parts: Sequence[Bounds]) -> Bounds:
    with_values = [part for part in parts if part[3]]
    lows, highs = [part[0] for part in with_values], [part[1] for part in with_values]
    low = None if not lows or any(value is None for value in lows) else min(lows)
    high = None if not highs or any(value is None for value in highs) else max(highs)
    return (low, high, any(part[2] for part in parts), bool(with_values))


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    if isinstance(predicate, AllOf):
        return tuple(part for operand in predicate.operands for part in conjuncts(operand))
    return () if predicate == TRUE else (predicate,)


# -- judges ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """The positions of columns' bounds in a row, and the columns that may contain NaN whatever their bounds say."""

    slots: Mapping[str, int]
    real: frozenset[str]


def compile_judge(predicate: Predicate, columns: Columns) -> Judge:
    match predicate:
        case Literal(truth=answer):
            fixed = MAY_BE_TRUE if answer else MAY_BE_FALSE
            return lambda _: fixed
        case Compare(column=column, comparison=comparison, value=value):
            if value is None:
                return lambda _: MAY_BE_NULL
            with_nan = _NAN[comparison] if column in columns.real else 0
            return _on_values(columns.slots[column], _COMPARED[comparison], value, with_nan)
        case InList(column=column, values=values):
            with_nan = MAY_BE_FALSE if column in columns.real else 0
            return _in_list(columns.slots[column], values, with_nan)
        case IsNull(column=column):
            slot = columns.slots[column]
            return lambda row: MAY_BE_TRUE * row[slot][2] | MAY_BE_FALSE * row[slot][3]
        case StartsWith(column=column, prefix=prefix):
            return _on_values(columns.slots[column], _starting, prefix, 0)
        case AllOf(operands=operands):
            return _all_of([compile_judge(operand, columns) for operand in operands])
        case AnyOf(operands=operands):
            opposite = _all_of([_opposite(compile_judge(operand, columns)) for operand in operands])
            return _opposite(opposite)
        case Not(operand=operand):
            return _opposite(compile_judge(operand, columns))


def _on_values(slot: int, possible: Callable[[Any, Any, Any], int], value: SqlValue, with_nan: int) -> Judge:
    def judge(row: Row) -> int:
        low, high, nulls, values = row[slot]
        verdict = MAY_BE_NULL if nulls else 0
        return verdict | possible(low, high, value) | with_nan if values else verdict

    return judge


def _less(low: Any, high: Any, value: Any) -> int:
    return (low is None or low < value) | (high is None or high >= value) << 1


def _less_or_equal(low: Any, high: Any, value: Any) -> int:
    return (low is None or low <= value) | (high is None or high > value) << 1


def _greater(low: Any, high: Any, value: Any) -> int:
    return (high is None or high > value) | (low is None or low <= value) << 1


def _greater_or_equal(low: Any, high: Any, value: Any) -> int:
    return (high is None or high >= value) | (low is None or low < value) << 1


def _equal(low: Any, high: Any, value: Any) -> int:
    return ((low is None or low <= value) and (high is None or high >= value)) | (not low == value == high) << 1


def _not_equal(low: Any, high: Any, value: Any) -> int:
    return (not low == value == high) | ((low is None or low <= value) and (high is None or high >= value)) << 1


def _starting(low: Any, high: Any, prefix: str) -> int:
    may = (high is None or high >= prefix) and (low is None or low[: len(prefix)] <= prefix)
    must = low is not None and high is not None and low.startswith(prefix) and high.startswith(prefix)
    return may | (not must) << 1


_COMPARED: Final[Mapping[str, Callable[[Any, Any, Any], int]]] = {
    "=": _equal,
    "<>": _not_equal,
    "<": _less,
    "<=": _less_or_equal,
    ">": _greater,
    ">=": _greater_or_equal,
}
# NaN is the largest value to some engines and comparable to nothing for others: both must find their rows.
_NAN: Final = {
    "=": MAY_BE_FALSE,
    "<>": MAY_BE_TRUE,
    "<": MAY_BE_FALSE,
    "<=": MAY_BE_FALSE,
    ">": MAY_BE_TRUE | MAY_BE_FALSE,
    ">=": MAY_BE_TRUE | MAY_BE_FALSE,
}


def _in_list(slot: int, values: tuple[SqlValue, ...], with_nan: int) -> Judge:
    listed: list[Any] = sorted({value for value in values if value is not None})
    otherwise = MAY_BE_FALSE if len(values) and None not in values else MAY_BE_NULL
    if with_nan:
        with_nan = otherwise

    def judge(row: Row) -> int:
        low, high, nulls, has_values = row[slot]
        verdict = MAY_BE_NULL if nulls else 0
        if not has_values:
            return verdict
        first = 0 if low is None else bisect_left(listed, low)
        if first < len(listed) and (high is None or listed[first] <= high):
            verdict |= MAY_BE_TRUE
            if low is not None and low == high:
                return verdict | with_nan
        return verdict | otherwise | with_nan

    return judge


def _opposite(judge: Judge) -> Judge:
    def opposite(row: Row) -> int:
        verdict = judge(row)
        return verdict & MAY_BE_NULL | (verdict & MAY_BE_TRUE) << 1 | (verdict & MAY_BE_FALSE) >> 1

    return opposite


def _all_of(judges: Sequence[Judge]) -> Judge:
    def judge(row: Row) -> int:
        may_be_true, not_false, verdict = MAY_BE_TRUE, True, 0
        for part in judges:
            possible = part(row)
            verdict |= possible & (MAY_BE_FALSE | MAY_BE_NULL)
            may_be_true &= possible
            not_false = not_false and bool(possible & (MAY_BE_TRUE | MAY_BE_NULL))
        return may_be_true | verdict if not_false else MAY_BE_FALSE

    return judge


# -- files of a bucket -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Test:
    """A top-level conjunct that partitions alone don't decide."""

    conjunct: Predicate
    judge: Judge
    of_key: bool


@dataclass(frozen=True, slots=True)
class Pruning:
    """How files are tested: a row has the bounds of `columns`, then, if used, those of the partition columns."""

    columns: tuple[str, ...] = ()
    tests: tuple[Test, ...] = ()
    key_slots: tuple[int | None, ...] = ()
    uses_partition: bool = False

    def failed(self, row: Row) -> Test | None:
        """Return the first test that no row of the file can pass, preferably a test on keys."""
        failed_test = None
        for test in self.tests:
            if not test.judge(row) & MAY_BE_TRUE:
                if test.of_key:
                    return test
                failed_test = failed_test or test
        return failed_test

    def of_keys(self) -> Pruning:
        """Without the tests on columns other than key and partition."""
        return replace(self, tests=tuple(test for test in self.tests if test.of_key))

    def may_share_keys(self, row: Row, other: Row) -> bool:
        return all(slot is None or _meet(row[slot], other[slot]) for slot in self.key_slots)


def _meet(own: Bounds, other: Bounds) -> bool:
    low, high, other_low, other_high = own[0], own[1], other[0], other[1]
    apart = (high is not None and other_low is not None and high < other_low) or (
        low is not None and other_high is not None and other_high < low
    )
    return not apart


NO_PRUNING: Final = Pruning()


def new_pruning(
    predicate: Predicate, types: Mapping[str, str], partition_columns: Sequence[str], primary_key: Collection[str]
) -> Pruning:
    """Return the pruning by conjuncts on data columns; conjuncts on only partition columns are judged elsewhere."""
    parts = [part for part in conjuncts(predicate) if not columns_of(part) <= set(partition_columns)]
    used = frozenset[str]().union(*(columns_of(part) for part in parts)) if parts else frozenset[str]()
    hides_by_key = bool(primary_key) and any(
        not columns_of(part) <= {*primary_key, *partition_columns} for part in parts
    )
    needed = used | frozenset(primary_key) if hides_by_key else used
    columns = tuple(sorted(needed - set(partition_columns)))
    slots = {column: slot for slot, column in enumerate([*columns, *partition_columns])}
    real = frozenset(column for column in columns if wire_kind(types[column]) == "real")
    column_slots = Columns(slots, real)
    keys = {*primary_key, *partition_columns} if primary_key else set[str]()
    tests = tuple(Test(part, compile_judge(part, column_slots), columns_of(part) <= keys) for part in parts)
    key_slots = tuple(None if key in real else slots[key] for key in primary_key) if hides_by_key else ()
    return Pruning(columns, tests, key_slots, not needed.isdisjoint(partition_columns))


def choose(pruning: Pruning, files: Iterable[tuple[int, Row]]) -> list[Test | None]:
    """For each file of a bucket of a primary-key table, by data version and bounds: the test that rules it out."""
    listed = list(files)
    answers: list[Test | None] = [None] * len(listed)
    kept: list[Row] = []
    waiting: list[Row] = []
    at = -1
    for place in sorted(range(len(listed)), key=lambda place: listed[place][0]):
        data_version, row = listed[place]
        if data_version != at:
            kept += waiting
            waiting, at = [], data_version
        failed = pruning.failed(row)
        if failed is not None and not failed.of_key and _hides(pruning, row, kept):
            failed = None
        answers[place] = failed
        if failed is None:
            waiting.append(row)
    return answers


def _hides(pruning: Pruning, row: Row, kept: Sequence[Row]) -> bool:
    if len(kept) > HIDERS_COMPARED_MAX:
        return True
    return any(pruning.may_share_keys(row, older) for older in kept)


# -- partitions by key -------------------------------------------------------------------------------------------------


def leading_values(predicate: Predicate, partition_columns: Sequence[str], most: int) -> list[tuple[SqlValue, ...]]:
    """Return the values that equality allows in the first partition columns, as many as it fixes; () means any."""
    prefixes: list[tuple[SqlValue, ...]] = [()]
    fixed = [fixed_values(part) for part in conjuncts(predicate)]
    for column in partition_columns:
        choices = [values for name, values in filter(None, fixed) if name == column]
        values = min(choices, key=len, default=None)
        if values is None or len(prefixes) * len(values) > most:
            break
        prefixes = [(*before, value) for before in prefixes for value in values]
    return prefixes


def fixed_values(part: Predicate) -> tuple[str, tuple[SqlValue, ...]] | None:
    """The column whose values an equality, IN or IS NULL fixes, and those values."""
    match part:
        case Compare(column=column, comparison="=", value=value):
            return column, (() if value is None else (value,))
        case InList(column=column, values=values):
            return column, tuple(dict.fromkeys(value for value in values if value is not None))
        case IsNull(column=column):
            return column, (None,)
        case _:
            return None


# -- for people --------------------------------------------------------------------------------------------------------


def show(predicate: Predicate) -> str:
    """A condition as text."""
    match predicate:
        case Literal(truth=answer):
            return "TRUE" if answer else "FALSE"
        case Compare(column=column, comparison=comparison, value=value):
            return f"{column} {comparison} {_show_value(value)}"
        case InList(column=column, values=values):
            listed = ", ".join(_show_value(value) for value in values[:10])
            return f"{column} IN ({listed}{', …' if len(values) > 10 else ''})"
        case IsNull(column=column):
            return f"{column} IS NULL"
        case StartsWith(column=column, prefix=prefix):
            return f"{column} LIKE {_show_value(prefix + '%')}"
        case AllOf(operands=operands):
            return "(" + " AND ".join(show(operand) for operand in operands) + ")"
        case AnyOf(operands=operands):
            return "(" + " OR ".join(show(operand) for operand in operands) + ")"
        case Not(operand=operand):
            return f"NOT {show(operand)}"


def _show_value(value: SqlValue) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value[:100].replace("'", "''") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return f"X'{value[:50].hex()}'" if isinstance(value, bytes) else str(value)
