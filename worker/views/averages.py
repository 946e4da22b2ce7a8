"""Averages of integers and decimals as exact sums and counts, so that changed rows can be added to them.

    avg(quantity)    (CAST(SUM(quantity) AS DOUBLE) / NULLIF(COUNT(quantity), 0))
    avg(price)       (CAST(CAST(SUM(price) * 100 AS HUGEINT) AS DOUBLE) / (NULLIF(COUNT(price), 0) * 100))

The quotient is rounded once. DuckDB's own average rounds twice, by a type that other machines don't have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from worker.views.dialect import DIALECT
from worker.views.operators import LAKE

INTEGERS: Final = frozenset(
    getattr(exp.DataType.Type, name) for name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128")
)
DIGITS_MAX: Final = 38
DIGITS_OF_ROWS: Final = 10  # more rows than a group has


def split_averages(tree: exp.Expr, schemas: Mapping[str, Mapping[str, str]]) -> None:
    """Write the averages of a qualified query, whose types are noted, as sums and counts."""
    for node in list(tree.find_all(exp.Avg)):
        argument = node.this
        if isinstance(argument, exp.Distinct | exp.Order) or isinstance(node.parent, exp.Filter | exp.Window):
            continue
        scale = _scale(argument, schemas)
        if scale is None:
            continue
        total: exp.Expr = exp.Sum(this=argument.copy())
        count: exp.Expr = exp.Nullif(
            this=exp.Count(this=argument.copy(), big_int=True), expression=exp.Literal.number(0)
        )
        if scale:
            factor = exp.Literal.number(10**scale)
            total = exp.cast(exp.Mul(this=total, expression=factor.copy()), "INT128", dialect=DIALECT)
            count = exp.Paren(this=exp.Mul(this=count, expression=factor))
        quotient = exp.Div(this=exp.cast(total, "DOUBLE", dialect=DIALECT), expression=count)
        node.replace(exp.Paren(this=quotient))


def _scale(argument: exp.Expr, schemas: Mapping[str, Mapping[str, str]]) -> int | None:
    """The digits after the point; None of other types, and if only an engine can tell."""
    kind = argument.type
    if kind is not None and kind.this in INTEGERS:
        return 0
    if isinstance(argument, exp.Cast):
        kind = argument.to
    elif isinstance(argument, exp.Column):
        kind = _stored_type(argument, schemas)
    else:
        return None
    if kind is None or kind.this is not exp.DataType.Type.DECIMAL or len(kind.expressions) != 2:
        return None
    precision, scale = (int(each.name) for each in kind.expressions)
    return scale if precision + scale + DIGITS_OF_ROWS <= DIGITS_MAX else None


def _stored_type(column: exp.Column, schemas: Mapping[str, Mapping[str, str]]) -> exp.DataType | None:
    """The type of a column of a table of the lake; None of columns of subqueries."""
    select = column.find_ancestor(exp.Select)
    if select is None:
        return None
    from_ = select.args.get("from_")
    relations = [from_.this] if from_ is not None else []
    for relation in [*relations, *(join.this for join in select.args.get("joins") or ())]:
        if isinstance(relation, exp.Table) and relation.alias_or_name == column.table:
            types = schemas.get(relation.name.removeprefix(LAKE), {})
            text = {name.lower(): kind for name, kind in types.items()}.get(column.name)
            return None if text is None else exp.DataType.build(text, dialect=DIALECT)
    return None
