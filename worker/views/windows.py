"""Window functions: which a view can have, and in which order rows come that are equal under ORDER BY.

    row_number() OVER (PARTITION BY day ORDER BY amount)

numbers orders of one amount in any order. A view's rows are definite: equal rows are taken in the order of all columns
that the query uses. Rows that are equal in all of them are the same row twice, so it doesn't matter which comes first.
Ranks, and sums over frames of RANGE and GROUPS, don't depend on that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from worker.views.dialect import DIALECT
from worker.views.functions import refused
from worker.views.operators import Operator, Window, columns_of

BY_PLACE: Final = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)


def inline_windows(tree: exp.Expr) -> None:
    """Write the windows of WINDOW clauses where their names are."""
    for select in list(tree.find_all(exp.Select)):
        named = {window.name: window for window in select.args.get("windows") or ()}
        for window in list(select.find_all(exp.Window)):
            used = named.get(window.text("alias"))
            if used is None or window.parent_select is not select or window in named.values():
                continue
            for part in ("partition_by", "order", "spec"):
                given = window.args.get(part) or used.args.get(part)
                window.set(part, [each.copy() for each in given] if isinstance(given, list) else given and given.copy())
            window.set("alias", used.args.get("alias"))
        select.set("windows", None)


def windows_of(expression: exp.Expr) -> list[exp.Expr]:
    """Return the window functions of an expression, without those of its subqueries."""
    if isinstance(expression, exp.Window):
        return [expression]
    if isinstance(expression, exp.Query):
        return []
    return [window for child in expression.iter_expressions() for window in windows_of(child)]


def check_windows_in_order(tree: exp.Expr, reason: str) -> None:
    """Refuse window functions for which the order of equal rows counts, in a query that is computed as written."""
    for window in tree.find_all(exp.Window):
        if _depends_on_order(window):
            raise refused(
                f"{_function(window).sql(dialect=DIALECT)} takes equal rows in any order in a query that has no rule"
                f" ({reason}): put it into a view of its own"
            )


def windowed(
    rows: Operator, windows: Sequence[exp.Expr], text: Callable[[exp.Expr], str], prefix: str
) -> tuple[Operator, Mapping[exp.Expr, str]]:
    """Return the rows with a column for each of the windows, and the names of these columns.

    Windows of one partition are computed together, one after the other: a window sees what the ones before it gave to
    rows that are otherwise the same.
    """
    names: dict[exp.Expr, str] = {}
    parts: dict[tuple[str, ...], list[exp.Expr]] = {}
    for window in dict.fromkeys(windows):
        partition = dict.fromkeys(text(key) for key in window.args.get("partition_by") or ())
        parts.setdefault(tuple(partition), []).append(window)
    for keys, of_keys in parts.items():
        columns = list(columns_of(rows))
        calls = []
        for window in of_keys:
            names[window] = f"{prefix}.w{len(names)}"
            calls.append((text(_in_order(window, columns)), names[window]))
            columns.append(names[window])
        rows = Window(rows, keys, tuple(calls))
    return rows, names


def with_names(expression: exp.Expr, names: Mapping[exp.Expr, str]) -> exp.Expr:
    """Return the expression over the columns of its windows."""

    def named(node: exp.Expr) -> exp.Expr:
        return exp.Column(this=exp.to_identifier(names[node], quoted=True)) if node in names else node

    return expression.copy().transform(named, copy=False) if names else expression


def _in_order(window: exp.Expr, columns: Sequence[str]) -> exp.Expr:
    """The window with all columns at the end of its order, if the order of equal rows counts."""
    if not _depends_on_order(window):
        return window
    copy = window.copy()
    order = copy.args.get("order")
    terms = [] if order is None else list(order.expressions)
    terms += [exp.Ordered(this=exp.Column(this=exp.to_identifier(name, quoted=True))) for name in columns]
    copy.set("order", exp.Order(expressions=terms))
    return copy


def _depends_on_order(window: exp.Expr) -> bool:
    spec = window.args.get("spec")
    return isinstance(_function(window), BY_PLACE) or (spec is not None and spec.text("kind").upper() == "ROWS")


def _function(window: exp.Expr) -> exp.Expr:
    node: exp.Expr = window.this
    while isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        node = node.this
    return node
