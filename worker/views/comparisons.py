"""Comparisons with all or any of the rows of a subquery, and FILTER, in words that have rules.

    x > ALL (SELECT y …)        (SELECT CASE WHEN count(*) = 0 THEN TRUE WHEN NOT x > max(y) THEN FALSE … END …)
    sum(y) FILTER (WHERE c)     sum(CASE WHEN c THEN y END)

With a NULL among the rows, ALL is false or unknown, and ANY is true or unknown.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from worker.views.expressions import aggregates_of, aggregates_of_any, has_subquery
from worker.views.subqueries import CORRELATED
from worker.views.total_types import EXACT
from worker.views.windows import windows_of

COMPARISONS: Final = (exp.GT, exp.GTE, exp.LT, exp.LTE)
FILTERED: Final = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)


def with_extremes(tree: exp.Expr) -> None:
    """Write comparisons with ALL and ANY, in a qualified query whose types are noted, as ones with one value."""
    for node in list(tree.find_all(*COMPARISONS)):
        words, outer = node.expression, node.this
        if not isinstance(words, exp.Any | exp.All) or not isinstance(words.this, exp.Query):
            continue
        select = words.this.unnest()
        if not isinstance(select, exp.Select) or not _is_plain(select) or not _is_of_rows(node):
            continue
        own = {table.alias_or_name for table in select.find_all(exp.Table, exp.Subquery)}
        value = select.selects[0].unalias()
        if own.isdisjoint(column.table for column in outer.find_all(exp.Column)) and _are_ordered_alike(outer, value):
            copy = select.copy()
            copy.set("expressions", [exp.alias_(_compared(node, outer, value, is_all=isinstance(words, exp.All)), "v")])
            node.replace(exp.Paren(this=exp.Subquery(this=copy)))


def _is_of_rows(node: exp.Expr) -> bool:
    """Whether it compares something of each row, and nothing of groups or windows."""
    outer, place = node.this, node.find_ancestor(exp.Where, exp.Select)
    is_grouped = isinstance(place, exp.Select) and (
        place.args.get("group") is not None
        or place.args.get("having") is not None
        or bool(aggregates_of_any(place.selects))
    )
    return not is_grouped and not has_subquery(outer) and not windows_of(outer)


def _is_plain(select: exp.Select) -> bool:
    """Whether an aggregate of its column is one of all rows of its FROM and WHERE."""
    words = {name for name, value in select.args.items() if value}
    outputs = select.selects
    return words <= CORRELATED and len(outputs) == 1 and not aggregates_of(outputs[0]) and not windows_of(outputs[0])


def _are_ordered_alike(outer: exp.Expr, value: exp.Expr) -> bool:
    """Whether the order in which values are compared is the one of their largest and smallest."""
    kinds = [None if each.type is None else each.type.this for each in (outer, value)]
    if None in kinds or exp.DataType.Type.UNKNOWN in kinds:
        return False
    return kinds[0] == kinds[1] or all(kind in EXACT for kind in kinds)


def _compared(node: exp.Expr, outer: exp.Expr, value: exp.Expr, *, is_all: bool) -> exp.Expr:
    is_largest = isinstance(node, exp.GT | exp.GTE) is is_all
    extreme = (exp.Max if is_largest else exp.Min)(this=value.copy())
    meets = exp.Paren(this=type(node)(this=exp.Paren(this=outer.copy()), expression=extreme))
    rows, values = exp.Count(this=exp.Star(), big_int=True), exp.Count(this=value.copy(), big_int=True)
    case = exp.Case(default=meets.copy())
    case.when(exp.EQ(this=rows.copy(), expression=exp.Literal.number(0)), exp.Boolean(this=is_all), copy=False)
    case.when(exp.Not(this=meets) if is_all else meets, exp.Boolean(this=not is_all), copy=False)
    case.when(exp.GT(this=rows, expression=values), exp.cast(exp.Null(), "BOOLEAN"), copy=False)
    case.type = exp.DataType.build("BOOLEAN")
    return case


def with_cases(tree: exp.Expr) -> None:
    """Write aggregates with a FILTER as ones over a CASE, whose NULLs they leave out, too."""
    for node in list(tree.find_all(exp.Filter)):
        call = node.this
        if type(call) not in FILTERED or call.expressions or isinstance(node.parent, exp.Window):
            continue
        argument = call.this
        if isinstance(argument, exp.Distinct | exp.Order):
            continue
        value = exp.Literal.number(1) if isinstance(argument, exp.Star) else argument
        case = exp.Case().when(node.expression.this.copy(), value.copy(), copy=False)
        case.type = exp.DataType.build("INT") if value is not argument else argument.type
        plain = call.copy()
        plain.set("this", case)
        node.replace(plain)
