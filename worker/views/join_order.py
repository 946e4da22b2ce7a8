"""Inner joins in an order in which each has an equation, with the conditions that their rows must meet.

    FROM orders o, days d, items i WHERE o.item = i.id AND i.day = d.day AND d.is_open

    (orders JOIN items ON o.item = i.id) JOIN (days that are open) ON i.day = d.day

A join without an equation pairs every row with every row, and has no key by which its difference could be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from worker.views.expressions import all_of, conjuncts, has_subquery
from worker.views.operators import Filter, Join, Operator, Project, columns_of, quoted

Text = Callable[[exp.Expr], str]


def joined_in_order(
    relations: Sequence[Operator], conditions: Sequence[exp.Expr], text: Text
) -> tuple[Operator, list[exp.Expr]]:
    """Return the joined rows of relations, and those of the conditions that were not used: about other columns."""
    waiting = [(each, _columns(each)) for each in conditions if not has_subquery(each)]
    every = {column for relation in relations for column in columns_of(relation)}
    waiting = [(each, columns) for each, columns in waiting if columns and columns <= every]
    used = {id(each) for each, _ in waiting}
    left = [each for each in conditions if id(each) not in used]
    waiting += [(more, _columns(more)) for each, _ in list(waiting) for more in _implied(each)]

    def taken(columns: set[str]) -> list[exp.Expr]:
        """The conditions that rows with these columns can meet; each is taken once."""
        met = [each for each, of in waiting if of <= columns]
        waiting[:] = [(each, of) for each, of in waiting if not of <= columns]
        return met

    parts = [_filtered(relation, taken(set(columns_of(relation))), text) for relation in relations]
    rows, rest = parts[0], parts[1:]
    while rest:
        own = set(columns_of(rows))
        equal = [each for each, _ in waiting]
        at = next((at for at, part in enumerate(rest) if any(_keys(equal, own, part, text))), 0)
        part = rest.pop(at)
        on = taken(own | set(columns_of(part)))
        keys = tuple(dict.fromkeys(_keys(on, own, part, text)))
        rows = Join("INNER", rows, part, text(all_of(on)) if on else "TRUE", keys)
    names = [name for relation in relations for name in columns_of(relation)]
    if list(columns_of(rows)) != names:  # the order of columns is the one in which windows take equal rows
        rows = Project(rows, tuple((quoted(name), name) for name in names))
    return rows, left


def equal_keys(
    conditions: Sequence[exp.Expr], left: set[str], right: set[str], text: Text
) -> Iterator[tuple[str, str]]:
    """The pairs of expressions that conditions make equal, one of each side."""
    for part in (each.unnest() for each in conditions):
        if not isinstance(part, exp.EQ):
            continue
        first, second = _columns(part.this), _columns(part.expression)
        if first and second and first <= left and second <= right:
            yield text(part.this), text(part.expression)
        elif first and second and first <= right and second <= left:
            yield text(part.expression), text(part.this)


def _keys(conditions: Sequence[exp.Expr], own: set[str], part: Operator, text: Text) -> Iterator[tuple[str, str]]:
    return equal_keys(conditions, own, set(columns_of(part)), text)


def _filtered(relation: Operator, conditions: Sequence[exp.Expr], text: Text) -> Operator:
    return Filter(relation, text(all_of(conditions))) if conditions else relation


def _implied(condition: exp.Expr) -> list[exp.Expr]:
    """The equations in every part of an OR."""
    plain = condition.unnest()
    if not isinstance(plain, exp.Or):
        return []
    first, *others = ([each.unnest() for each in conjuncts(part)] for part in plain.flatten())
    return [each for each in first if isinstance(each, exp.EQ) and all(each in other for other in others)]


def _columns(expression: exp.Expr) -> frozenset[str]:
    """The columns of relations; variables of lambdas have no table."""
    return frozenset(f"{column.table}.{column.name}" for column in expression.find_all(exp.Column) if column.table)
