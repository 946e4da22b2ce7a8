"""Conditions on rows and their three-valued truth on partitions.

Only what speaks of partition columns alone can be judged here: `partition_part` keeps those top-level conjuncts and
turns every other one into TRUE as a whole (never a part of it: under NOT that would be FALSE).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

SqlValue = bool | int | float | str | bytes | Decimal | None


@dataclass(frozen=True, slots=True)
class Literal:
    truth: bool


@dataclass(frozen=True, slots=True)
class Compare:
    column: str
    comparison: str
    value: SqlValue


@dataclass(frozen=True, slots=True)
class InList:
    column: str
    values: tuple[SqlValue, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class AllOf:
    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    operand: Predicate


Predicate = Literal | Compare | InList | IsNull | StartsWith | AllOf | AnyOf | Not

TRUE: Final = Literal(truth=True)

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def columns_of(predicate: Predicate) -> frozenset[str]:
    match predicate:
        case Literal():
            return frozenset()
        case Compare(column=column) | InList(column=column) | IsNull(column=column) | StartsWith(column=column):
            return frozenset({column})
        case AllOf(operands=operands) | AnyOf(operands=operands):
            return frozenset().union(*(columns_of(operand) for operand in operands))
        case Not(operand=operand):
            return columns_of(operand)


def partition_part(predicate: Predicate, partition_columns: Collection[str]) -> Predicate:
    """The conjuncts that partition columns alone decide."""
    if isinstance(predicate, AllOf):
        parts = tuple(partition_part(operand, partition_columns) for operand in predicate.operands)
        kept = tuple(part for part in parts if part != TRUE)
        return AllOf(kept) if kept else TRUE
    return predicate if columns_of(predicate) <= set(partition_columns) else TRUE


def truth(predicate: Predicate, row: Mapping[str, SqlValue]) -> bool | None:
    """The truth in SQL: true, false or null."""
    match predicate:
        case Literal(truth=answer):
            return answer
        case Compare(column=column, comparison=comparison, value=value):
            return _compared(row[column], comparison, value)
        case InList(column=column, values=values):
            return _any([_compared(row[column], "=", value) for value in values])
        case IsNull(column=column):
            return row[column] is None
        case StartsWith(column=column, prefix=prefix):
            text = row[column]
            return text.startswith(prefix) if isinstance(text, str) else None
        case AllOf(operands=operands):
            return _all([truth(operand, row) for operand in operands])
        case AnyOf(operands=operands):
            return _any([truth(operand, row) for operand in operands])
        case Not(operand=operand):
            answer_inside = truth(operand, row)
            return None if answer_inside is None else not answer_inside


def _compared(left: SqlValue, comparison: str, right: SqlValue) -> bool | None:
    if left is None or right is None:
        return None
    return COMPARISONS[comparison](left, right)


def _all(answers: list[bool | None]) -> bool | None:
    if False in answers:
        return False
    return None if None in answers else True


def _any(answers: list[bool | None]) -> bool | None:
    if True in answers:
        return True
    return None if None in answers else False
