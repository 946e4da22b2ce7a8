"""Parts of expressions in a qualified query: conditions, aggregates, subqueries, columns of the rows around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

AGGREGATES: Final = (exp.AggFunc, exp.Filter, exp.WithinGroup)


def has_subquery(expression: exp.Expr) -> bool:
    """Whether an expression has a query in it."""
    return expression.find(exp.Query) is not None


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that must all be true."""
    plain = condition.unnest()
    return [each for part in plain.flatten() for each in conjuncts(part)] if isinstance(plain, exp.And) else [condition]


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Return the condition that all of these are true."""
    return exp.and_(*conditions, copy=True) if len(conditions) > 1 else conditions[0]


def aggregates_of(expression: exp.Expr) -> list[exp.Expr]:
    """Return the outermost aggregates of an expression, without those of its subqueries."""
    if isinstance(expression, AGGREGATES):
        return [expression]
    if isinstance(expression, exp.Query):
        return []
    if isinstance(expression, exp.Window):  # its function is none; its arguments can be
        return aggregates_of_any(_window_parts(expression))
    return [call for child in expression.iter_expressions() for call in aggregates_of(child)]


def _window_parts(window: exp.Window) -> list[exp.Expr]:
    function, parts = window.this, []
    while isinstance(function, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        parts += [] if function.args.get("expression") is None else [function.expression]
        function = function.this
    order = window.args.get("order")
    partition = window.args.get("partition_by") or ()
    return [*parts, *function.iter_expressions(), *partition, *([] if order is None else [order])]


def aggregates_of_any(expressions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the outermost aggregates of several expressions."""
    return [call for expression in expressions for call in aggregates_of(expression)]


def free_columns(node: exp.Expr, query: exp.Expr) -> list[exp.Column]:
    """Return the columns in a part of a query that belong to the rows around the query."""
    return [column for column in node.find_all(exp.Column) if column.table and not _is_bound(column, query)]


def _is_bound(column: exp.Column, query: exp.Expr) -> bool:
    node: exp.Expr | None = column
    while node is not None:
        if isinstance(node, exp.Select):
            from_ = node.args.get("from_")
            relations = [
                *([] if from_ is None else [from_.this]),
                *(join.this for join in node.args.get("joins") or ()),
            ]
            if any(relation.alias_or_name == column.table for relation in relations):
                return True
        if node is query:
            return False
        node = node.parent
    return False


def outermost_subqueries(expression: exp.Expr) -> list[exp.Expr]:
    """Return the outermost subqueries of an expression, with the words before them."""
    is_in = isinstance(expression, exp.In) and expression.args.get("query") is not None
    if is_in or isinstance(expression, exp.SubqueryPredicate | exp.Query):
        return [expression]
    return [node for child in expression.iter_expressions() for node in outermost_subqueries(child)]
