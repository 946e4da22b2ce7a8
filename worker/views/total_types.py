"""The aggregates to whose totals over all rows changed rows can be added: counts, exact sums, smallest and largest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlglot import exp

EXACT: Final = frozenset(
    getattr(exp.DataType.Type, name) for name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "DECIMAL")
)
ORDERED: Final = EXACT | {exp.DataType.Type.DATE, exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR}


def have_totals(calls: Iterable[exp.Expr]) -> bool:
    """Whether changed rows can be added to all of these aggregates, whose types are noted."""
    return all(map(_has_total, calls))


def _has_total(call: exp.Expr) -> bool:
    argument = call.this
    if isinstance(argument, exp.Distinct | exp.Order) or call.expressions:
        return False
    if isinstance(call, exp.Count):
        return True
    kind = argument.type.this if argument is not None and argument.type is not None else None
    if isinstance(call, exp.Sum):
        return kind in EXACT
    return isinstance(call, exp.Min | exp.Max) and kind in ORDERED
