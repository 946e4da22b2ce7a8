"""Subqueries in conditions and expressions, as joins with the rows around them.

    WHERE EXISTS (SELECT … WHERE b.k = a.k)      a SEMI JOIN b ON a.k = b.k
    WHERE a.x IN (SELECT b.y …)                  a SEMI JOIN b ON a.x = b.y
    WHERE a.x NOT IN (SELECT b.y …)              no row of b has this y, or NULL; if x is NULL, there is no row at all
    … OR EXISTS (…), SELECT a.x IN (…)           a LEFT JOIN the distinct keys of b, which mark the rows
    SELECT (SELECT sum(b.y) … WHERE b.k = a.k)   a LEFT JOIN the groups of b by k; a COUNT of no row is 0
    , LATERAL (SELECT … WHERE b.k = a.k LIMIT 2) a JOIN the first two rows of b by k, by row_number

A subquery may be correlated by conditions in its WHERE, of which one must be an equation, so that there is a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from sqlglot import exp

from worker.views.expressions import (
    aggregates_of,
    aggregates_of_any,
    all_of,
    conjuncts,
    free_columns,
    has_subquery,
    outermost_subqueries,
)
from worker.views.operators import Aggregate, Filter, Join, NoRule, Operator, Project, columns_of, quoted
from worker.views.total_types import have_totals
from worker.views.windows import windowed

CORRELATED: Final = frozenset(["expressions", "from_", "joins", "where"])
FIRST: Final = frozenset(["limit", "order"])
Ctes = Mapping[str, exp.Query]


class Builder(Protocol):
    """What builds the operators of a query."""

    def query(self, node: exp.Expr, ctes: Ctes) -> Operator: ...

    def relations(
        self, select: exp.Select, ctes: Ctes, conditions: Sequence[exp.Expr]
    ) -> tuple[Operator, Sequence[exp.Expr]]: ...

    def text(self, expression: exp.Expr) -> str: ...

    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Inner:
    """The rows of a subquery. `keys` are expressions of the outer rows, and the columns of `rows` that they equal."""

    rows: Operator
    keys: tuple[tuple[exp.Expr, str], ...]
    conditions: tuple[str, ...]  # more of them, over both
    values: tuple[str, ...]
    are_alike: bool  # whether the keys of both sides have one type


def with_in(query: exp.Query) -> exp.Query:
    """Return a query with IN for `= ANY (…)` and NOT IN for `<> ALL (…)`, which mean the same."""
    for node in list(query.find_all(exp.EQ, exp.NEQ)):
        is_in = isinstance(node, exp.EQ)
        words = node.expression
        if isinstance(words, exp.Any if is_in else exp.All) and isinstance(words.this, exp.Query):
            is_among = exp.In(this=node.this.copy(), query=_as_subquery(words.this))
            node.replace(is_among if is_in else exp.Not(this=is_among))
    return query


def _as_subquery(query: exp.Query) -> exp.Query:
    return query.copy() if isinstance(query, exp.Subquery) else exp.Subquery(this=query.copy())


def filtered(builder: Builder, rows: Operator, conditions: Sequence[exp.Expr], ctes: Ctes) -> Operator:
    """Return the rows for which all of these are true."""
    plain = [each for each in conditions if not has_subquery(each)]
    if plain:
        rows = Filter(rows, builder.text(all_of(plain)))
    for each in conditions:
        if has_subquery(each):
            rows = _matched(builder, rows, each.unnest(), ctes)
    return rows


def marked(builder: Builder, rows: Operator, expression: exp.Expr, ctes: Ctes) -> tuple[Operator, exp.Expr]:
    """Return the rows with columns for the subqueries of an expression, and the expression over these columns."""
    copy = exp.Paren(this=expression.copy())
    for node, place in zip(outermost_subqueries(expression), outermost_subqueries(copy), strict=True):
        if isinstance(node, exp.Exists):
            rows, instead = _exists_mark(builder, rows, node, ctes)
        elif isinstance(node, exp.In):
            rows, instead = _in_mark(builder, rows, node, ctes)
        elif isinstance(node, exp.Subquery):
            rows, instead = _value(builder, rows, node, ctes)
        else:
            raise NoRule(f"{node.key.upper()} of a subquery has no rule yet")
        place.replace(exp.Paren(this=instead))
    return rows, copy


# -- conditions that rows meet or don't --------------------------------------------------------------------------------


def _matched(builder: Builder, rows: Operator, condition: exp.Expr, ctes: Ctes) -> Operator:
    is_not = isinstance(condition, exp.Not)
    plain = condition.this.unnest() if is_not else condition
    if isinstance(plain, exp.Exists):
        inner = _inner(builder, plain.this, ctes, is_exists=True)
        return _joined(builder, "ANTI" if is_not else "SEMI", rows, inner, inner.keys, inner.conditions)
    if isinstance(plain, exp.In) and plain.args.get("query") is not None:
        inner = _inner(builder, plain.args["query"], ctes)
        items = plain.this.unnest()
        if isinstance(items, exp.Tuple) and not is_not and len(items.expressions) == len(inner.values):
            pairs = zip(items.expressions, inner.values, strict=True)
            return _joined(builder, "SEMI", rows, inner, (*inner.keys, *pairs), inner.conditions)
        value = _only_value(plain, inner)
        keys = (*inner.keys, (plain.this, value))
        if not is_not:
            return _joined(builder, "SEMI", rows, inner, keys, inner.conditions)
        return _not_in(builder, rows, plain.this, inner, keys)
    rows, instead = marked(builder, rows, condition, ctes)
    return Filter(rows, builder.text(instead))


def _not_in(
    builder: Builder, rows: Operator, item: exp.Expr, inner: _Inner, keys: Sequence[tuple[exp.Expr, str]]
) -> Operator:
    """The rows for which NOT IN is true, and neither false nor unknown."""
    if inner.conditions:
        raise NoRule("NOT IN of a subquery that is correlated by more than equations has no rule yet")
    value = inner.values[0]
    rows = _joined(builder, "ANTI", rows, inner, keys)
    nulls = _distinct_keys(builder, inner, f"{quoted(value)} IS NULL")
    rows = _joined(builder, "ANTI", rows, nulls, nulls.keys)
    some = _distinct_keys(builder, inner)
    is_null = (exp.Is(this=item.copy(), expression=exp.Null()), _truth(some))
    return _joined(builder, "ANTI", rows, some, (*some.keys, is_null))


def _joined(
    builder: Builder,
    kind: str,
    rows: Operator,
    inner: _Inner,
    keys: Sequence[tuple[exp.Expr, str]],
    conditions: Sequence[str] = (),
) -> Operator:
    if not keys and conditions:
        raise NoRule("a correlated subquery without equal columns has no key to restrict by")
    if not keys:
        inner = _distinct_keys(builder, inner)
        keys = inner.keys
    pairs = tuple((builder.text(outer), quoted(column)) for outer, column in keys)
    equal = [f"{outer} = {column}" for outer, column in pairs]
    return Join(kind, rows, inner.rows, " AND ".join([*equal, *(f"({each})" for each in conditions)]), pairs)


# -- marks and values --------------------------------------------------------------------------------------------------


def _exists_mark(builder: Builder, rows: Operator, node: exp.Exists, ctes: Ctes) -> tuple[Operator, exp.Expr]:
    inner = _distinct_keys(builder, _equal_only(_inner(builder, node.this, ctes, is_exists=True)))
    return _joined(builder, "LEFT", rows, inner, inner.keys), _is_there(inner)


def _in_mark(builder: Builder, rows: Operator, node: exp.In, ctes: Ctes) -> tuple[Operator, exp.Expr]:
    """Whether a value is in a subquery: true, false or NULL."""
    inner = _equal_only(_inner(builder, node.args["query"], ctes))
    value = _only_value(node, inner)
    if not _alike(node.this, node.args["query"].unnest().selects[0]):
        raise NoRule("IN in an expression, of another type than its subquery, has no rule yet")
    with_value = _Inner(inner.rows, (*inner.keys, (node.this, value)), (), (), are_alike=True)
    equal = _distinct_keys(builder, with_value)
    nulls = _distinct_keys(builder, inner, f"{quoted(value)} IS NULL")
    some = _distinct_keys(builder, inner)
    for each in (equal, nulls, some):
        rows = _joined(builder, "LEFT", rows, each, each.keys)
    unknown = exp.or_(_is_there(nulls), exp.and_(_is_there(some), exp.Is(this=node.this.copy(), expression=exp.Null())))
    return rows, (
        exp.Case(default=exp.false())
        .when(_is_there(equal), exp.true(), copy=False)
        .when(unknown, exp.Cast(this=exp.Null(), to=exp.DataType.build("BOOLEAN")), copy=False)
    )


def _value(builder: Builder, rows: Operator, node: exp.Subquery, ctes: Ctes) -> tuple[Operator, exp.Expr]:
    """The value of a subquery that aggregates the rows with the keys of an outer row."""
    select = node.unnest()
    if not isinstance(select, exp.Select) or {name for name, value in select.args.items() if value} - CORRELATED:
        raise NoRule("a subquery with one value, and more than FROM and WHERE, has no rule yet")
    rows, [value] = _values(builder, rows, select, ctes)
    return rows, value


def correlated_rows(
    builder: Builder, rows: Operator, node: exp.Expr, ctes: Ctes, *, is_left: bool
) -> tuple[Operator, list[exp.Expr]]:
    """Return the rows, each with the rows of a subquery for it, and the subquery's columns over both."""
    select = node.unnest()
    words = {name for name, value in select.args.items() if value}
    more = words - CORRELATED - (FIRST if "limit" in words else frozenset())
    if not isinstance(select, exp.Select) or more:
        raise NoRule(f"LATERAL with {', '.join(sorted(more)).upper()} has no rule yet")
    outputs = [output.unalias() for output in select.selects]
    if "limit" in words and ("from_" not in words or aggregates_of_any(outputs)):
        raise NoRule("LATERAL with LIMIT and no rows to choose from has no rule yet")
    if "from_" not in words and "where" not in words and not aggregates_of_any(outputs):
        return rows, outputs
    if "from_" in words and aggregates_of_any(outputs):
        return _values(builder, rows, select, ctes)
    if "from_" not in words or any(free_columns(output, select) for output in outputs):
        raise NoRule("LATERAL with columns of both sides in its SELECT has no rule yet")
    inner = _first(builder, select, ctes, outputs) if "limit" in words else _correlated(builder, select, ctes, outputs)
    if not inner.keys:
        raise NoRule("LATERAL without equal columns has no key to restrict by")
    rows = _joined(builder, "LEFT" if is_left else "INNER", rows, inner, inner.keys, inner.conditions)
    return rows, list(map(_named, inner.values))


def _first(builder: Builder, select: exp.Select, ctes: Ctes, outputs: Sequence[exp.Expr]) -> _Inner:
    """The first rows with each key, in the order of a subquery with LIMIT, which ends with its columns."""
    limit = select.args["limit"]
    count = limit.args.get("expression")
    terms = select.args["order"].expressions
    by_name = {output.alias_or_name: output.unalias() for output in select.selects}
    sorted_by = [by_name.get(term.this.name, term.this) if _is_name(term.this) else term.this for term in terms]
    is_count = isinstance(count, exp.Literal) and count.is_int and limit.args.get("limit_options") is None  # no percent
    if not is_count or any(free_columns(each, select) or has_subquery(each) for each in sorted_by):
        raise NoRule("LATERAL with such a LIMIT or ORDER BY has no rule yet")
    inner = _equal_only(_correlated(builder, select, ctes, [*outputs, *sorted_by]))
    order = [term.copy() for term in terms]
    for term, value in zip(order, inner.values[len(outputs) :], strict=True):
        term.set("this", _named(value))
    place = exp.Window(
        this=exp.RowNumber(),
        partition_by=[_named(column) for _, column in inner.keys],
        order=exp.Order(expressions=order),
    )
    rows, names = windowed(inner.rows, [place], builder.text, builder.name())
    rows = Filter(rows, f"{quoted(names[place])} <= {count.name}")
    return replace(inner, rows=rows, values=inner.values[: len(outputs)])


def _is_name(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and not node.table


def _values(builder: Builder, rows: Operator, select: exp.Select, ctes: Ctes) -> tuple[Operator, list[exp.Expr]]:
    """The values of aggregates over the rows with the keys of an outer row."""
    outputs = [output.unalias() for output in select.selects]
    calls = list(dict.fromkeys(aggregates_of_any(outputs)))
    if not all(map(aggregates_of, outputs)):
        raise NoRule("a subquery with one value and no aggregate can have several rows")
    if any(call.find(exp.CountIf) is not None or free_columns(call, select) for call in calls):
        raise NoRule(f"{calls[0].sql()} of a subquery has no rule yet")
    if any(
        {id(column) for column in output.find_all(exp.Column)}
        - {id(column) for part in (*calls, *_all_calls(output, calls)) for column in part.find_all(exp.Column)}
        - {id(column) for column in free_columns(output, select)}
        for output in outputs
    ):
        raise NoRule("a column of a subquery is neither grouped nor aggregated")
    inner = _equal_only(_correlated(builder, select, ctes, [], arguments=True))
    prefix = builder.name()
    names = {call: f"{prefix}.{at}" for at, call in enumerate(calls)}

    def over_rows(part: exp.Expr) -> exp.Expr:
        return _named(names[part]) if part in names else part

    def over_groups(part: exp.Expr) -> exp.Expr:
        if part not in names:
            return part
        value = _named(names[part])
        is_count = isinstance(part.this if isinstance(part, exp.Filter) else part, exp.Count)
        return exp.Coalesce(this=value, expressions=[exp.Literal.number(0)]) if is_count else value

    if not inner.keys:
        texts = tuple((builder.text(call), names[call]) for call in calls)
        total = Aggregate(inner.rows, (), texts, has_totals=have_totals(calls))
        joined = Join("INNER", rows, total, "TRUE", ())
        return joined, [output.copy().transform(over_rows, copy=False) for output in outputs]
    keys = tuple((outer, f"{prefix}.k{at}") for at, (outer, _) in enumerate(inner.keys))
    groups = Aggregate(
        inner.rows,
        tuple((quoted(column), name) for (_, column), (_, name) in zip(inner.keys, keys, strict=True)),
        tuple((builder.text(call), names[call]) for call in calls),
    )
    rows = _joined(builder, "LEFT", rows, _Inner(groups, keys, (), (), are_alike=True), keys)
    return rows, [output.copy().transform(over_groups, copy=False) for output in outputs]


def _equal_only(inner: _Inner) -> _Inner:
    if inner.conditions:
        raise NoRule("a subquery in an expression that is correlated by more than equations has no rule yet")
    if not inner.are_alike:
        raise NoRule("a subquery in an expression, correlated by columns of different types, has no rule yet")
    return inner


def _distinct_keys(builder: Builder, inner: _Inner, condition: str = "TRUE") -> _Inner:
    """The distinct keys of the rows for which a condition is true, and a column that is true in each row."""
    prefix = builder.name()
    keys = tuple((outer, f"{prefix}.k{at}") for at, (outer, _) in enumerate(inner.keys))
    columns = [(quoted(column), name) for (_, column), (_, name) in zip(inner.keys, keys, strict=True)]
    rows = inner.rows if condition == "TRUE" else Filter(inner.rows, condition)
    plain = Project(rows, (*((text, f"{name}d") for text, name in columns), ("TRUE", f"{prefix}.td")))
    distinct = Aggregate(plain, tuple((quoted(name), name.removesuffix("d")) for name in columns_of(plain)), ())
    truth = f"{prefix}.t"
    return _Inner(distinct, keys or ((exp.true(), truth),), (), (truth,), are_alike=inner.are_alike)


def _truth(inner: _Inner) -> str:
    return inner.values[0]


def _is_there(inner: _Inner) -> exp.Expr:
    return exp.Not(this=exp.Is(this=_named(_truth(inner)), expression=exp.Null()))


# -- the rows of a subquery --------------------------------------------------------------------------------------------


def _inner(builder: Builder, node: exp.Expr, ctes: Ctes, *, is_exists: bool = False) -> _Inner:
    query = node.unnest()
    if is_exists and isinstance(query, exp.Select):
        query = _only_exists(query)
    if not free_columns(query, query):
        rows = builder.query(query, ctes)
        names = [f"{builder.name()}.{at}" for at, _ in enumerate(columns_of(rows))]
        named = tuple((quoted(column), name) for column, name in zip(columns_of(rows), names, strict=True))
        return _Inner(Project(rows, named), (), (), tuple(names), are_alike=True)
    if not isinstance(query, exp.Select):
        raise NoRule(f"{query.key.upper()} in a correlated subquery has no rule yet")
    outputs = [] if is_exists else [output.unalias() for output in query.selects]
    more = {name for name, value in query.args.items() if value} - CORRELATED - {"distinct"}
    if more or any(aggregates_of(output) or free_columns(output, query) for output in query.selects):
        what = ", ".join(sorted(more)).upper() or "such columns"
        raise NoRule(f"a correlated subquery with {what} has no rule yet")
    return _correlated(builder, query, ctes, outputs)


def _only_exists(select: exp.Select) -> exp.Select:
    """The subquery without what doesn't change whether it has rows."""
    limit = select.args.get("limit")
    if aggregates_of_any(select.selects) and select.args.get("group") is None:
        raise NoRule("EXISTS of an aggregate over all rows has no rule")
    if select.args.get("offset") is None and (limit is None or limit.expression.name not in ("", "0")):
        select = select.copy()
        select.set("limit", None)
        select.set("order", None)
    if select.args.get("group") is None and select.args.get("qualify") is None:
        select.set("distinct", None)
    return select


def _correlated(
    builder: Builder, select: exp.Select, ctes: Ctes, outputs: Sequence[exp.Expr], *, arguments: bool = False
) -> _Inner:
    """The rows of FROM and WHERE without what is correlated. With `arguments` they keep the columns that they had."""
    where = select.args.get("where")
    conditions = [] if where is None else conjuncts(where.this)
    parts = [select.args["from_"], *(select.args.get("joins") or ())]
    if any(free_columns(part, select) for part in parts):
        raise NoRule("a subquery that is correlated in FROM has no rule yet")
    bound: Sequence[exp.Expr] = [each for each in conditions if not free_columns(each, select)]
    rows, bound = builder.relations(select, ctes, bound)
    rows = filtered(builder, rows, bound, ctes)
    prefix = builder.name()
    columns = [(quoted(name), name) for name in columns_of(rows)] if arguments else []
    keys: list[tuple[exp.Expr, str]] = []
    more: list[str] = []
    are_alike = True
    for each in [each for each in conditions if free_columns(each, select)]:
        if has_subquery(each):
            raise NoRule("a subquery in a subquery that uses columns of both queries around it has no rule yet")
        pair = _equation(each, select)
        name = f"{prefix}.k{len(keys)}"
        if pair is not None:
            outer, own = pair
            are_alike &= _alike(outer, own)
            keys.append((outer, name))
            columns.append((builder.text(own), name))
            continue
        copy = exp.Paren(this=each.copy())
        free = {id(column) for column in free_columns(each, select)}
        places = list(copy.find_all(exp.Column))
        for column, place in zip(list(each.find_all(exp.Column)), places, strict=True):
            if id(column) not in free:
                name = f"{prefix}.c{len(columns)}"
                columns.append((builder.text(column), name))
                place.replace(_named(name))
        more.append(builder.text(copy))
    values = tuple(f"{prefix}.v{at}" for at, _ in enumerate(outputs))
    columns += [(builder.text(output), name) for output, name in zip(outputs, values, strict=True)]
    return _Inner(Project(rows, tuple(columns)), tuple(keys), tuple(more), values, are_alike)


def _equation(condition: exp.Expr, select: exp.Select) -> tuple[exp.Expr, exp.Expr] | None:
    """The side of the outer rows, and that of the select's own."""
    plain = condition.unnest()
    if not isinstance(plain, exp.EQ):
        return None
    for outer, own in ((plain.this, plain.expression), (plain.expression, plain.this)):
        named = list(outer.find_all(exp.Column))
        is_outer = named and len(free_columns(outer, select)) == len(named)
        if is_outer and own.find(exp.Column) is not None and not free_columns(own, select):
            return outer, own
    return None


def _only_value(node: exp.In, inner: _Inner) -> str:
    if isinstance(node.this, exp.Tuple) or len(inner.values) != 1 or has_subquery(node.this):
        raise NoRule("IN of several columns has no rule yet")
    return inner.values[0]


def _all_calls(output: exp.Expr, calls: Sequence[exp.Expr]) -> list[exp.Expr]:
    return [call for call in aggregates_of(output) if call in calls]


def _alike(left: exp.Expr, right: exp.Expr) -> bool:
    """Whether values of two expressions are equal only if they are the same."""
    kinds = [None if each.type is None else each.type.this for each in (left, right)]
    if None in kinds or exp.DataType.Type.UNKNOWN in kinds:
        return False
    return kinds[0] == kinds[1] or all(kind in exp.DataType.INTEGER_TYPES for kind in kinds)


def _named(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))
