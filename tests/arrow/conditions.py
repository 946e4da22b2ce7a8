"""Random conditions, and what they mean for rows that are dicts."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

from tests.spark.reading import Row

Holds = Callable[[Row], bool | None]
COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def some_condition(chance: random.Random, depth: int = 0) -> tuple[str, Holds]:
    """A condition as text, and its meaning for a row: True, False, or None for NULL."""
    kind = chance.choice(["compare"] * 4 + ["in", "null", "prefix"] + (["AND", "OR", "not"] if depth < 3 else []))
    if kind in ("AND", "OR"):
        (one, first), (other, second) = some_condition(chance, depth + 1), some_condition(chance, depth + 1)
        return f"({one} {kind} {other})", lambda row: joined(first(row), second(row), decisive=kind == "OR")
    if kind == "not":
        text, holds = some_condition(chance, depth + 1)
        return f"NOT ({text})", lambda row: negated(holds(row))
    values: dict[str, list[Any]] = {"id": [0, 3, 7, 99], "day": ["1", "2"], "amount": [0.0, 1.0, -5.5], "status": ["a"]}
    column = chance.choice(sorted(values))
    value = chance.choice(values[column])
    if kind == "null":
        return f"{column} IS NULL", lambda row: row[column] is None
    if kind == "prefix" and isinstance(value, str):
        return f"{column} LIKE '{value}%'", lambda row: if_known(row[column], lambda mine: mine.startswith(value))
    if kind == "in":
        listed = [*chance.sample(values[column], 1), *chance.sample([None, value], 1)]
        text = f"{column} IN ({', '.join(map(literal, listed))})"
        return text, lambda row: if_known(
            row[column], lambda mine: mine in listed or (None if None in listed else False)
        )
    op = chance.choice(list(COMPARED))
    text = f"{column} {op} {literal(value)}"
    return text, lambda row: if_known(row[column], lambda mine: COMPARED[op](order(mine), order(value)))


def joined(one: bool | None, other: bool | None, *, decisive: bool) -> bool | None:
    if decisive in (one, other):
        return decisive
    return None if None in (one, other) else not decisive


def negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def if_known(value: Any, holds: Callable[[Any], bool | None]) -> bool | None:
    return None if value is None else holds(value)


def literal(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else repr(value)


def order(value: Any) -> tuple[bool, Any]:
    """NaN is above every number, and equal to itself."""
    is_nan = value != value
    return is_nan, 0 if is_nan else value
