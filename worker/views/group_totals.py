"""Groups whose new rows come from their old rows in the view and the changed rows alone: no source is read.

    SELECT day, count(*) AS n, sum(amount) AS total FROM shop.orders GROUP BY day

The view has the old count and sum of each group, in columns that everybody sees; the changed rows add to them. So the
query must show its groups, and each aggregate itself or something that it follows from. What a group's row does not
tell leaves the group open, and open groups are computed from the sources like those of other aggregates:

    a row of a group went, and no count is shown    the group may be gone
    a value that is no NULL went, and neither its   the sum may be NULL now
    count is shown nor is it never NULL
    the smallest or the largest value went, and     the next one is not known
    none came that is as small or large
    the group is not in the view under HAVING       its old row is not known
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp

from worker.views.delta import DeltaPlan, N, origin, plan_over
from worker.views.dialect import DIALECT
from worker.views.operators import Aggregate, Filter, Operator, Project, quoted

TOUCHED: Final = "@touched"  # the groups of changed rows, with what came and went
VIEW: Final = "@view"  # the rows of the view before the refresh
OPEN: Final = "@open"  # the groups that the view and the changed rows don't tell enough about
JUDGED: Final = "@judged"  # the touched groups with their old rows, and what follows
SIGNS: Final = {"p": ">", "m": "<"}  # what came, what went
NUMBERS: Final = frozenset(
    getattr(exp.DataType.Type, name) for name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "DECIMAL")
)

CALLS: Final[Mapping[type[exp.Expr], str]] = {exp.Count: "COUNT", exp.Sum: "SUM", exp.Min: "MIN", exp.Max: "MAX"}

Types = Mapping[str, str]  # of columns, in DuckDB's words


@dataclass(frozen=True, slots=True)
class _Call:
    """An aggregate that changed rows can be added to. `column` is the view's that shows it, with a cast to a number."""

    kind: str  # COUNT, SUM, MIN, MAX
    argument: str  # "" for COUNT(*)
    column: str | None
    is_cast: bool


@dataclass(frozen=True, slots=True)
class Groups:
    """A query whose rows are groups, from its output down to the aggregate."""

    steps: tuple[Filter | Project, ...]  # the outermost first
    aggregate: Aggregate
    keys: tuple[str, ...]  # the view's columns that are the keys
    calls: tuple[_Call, ...]
    columns: tuple[str, ...]

    @property
    def is_filtered(self) -> bool:
        return any(isinstance(step, Filter) for step in self.steps)


def groups_of(query: Operator) -> Groups | None:
    """Return a query as groups that can be added to; None if its rows don't tell their groups or aggregates."""
    steps: list[Filter | Project] = []
    rows = query
    while isinstance(rows, Filter | Project):
        steps.append(rows)
        rows = rows.child
    if not isinstance(rows, Aggregate) or not rows.keys or not steps:
        return None
    assert isinstance(steps[0], Project)
    columns = tuple(name for _, name in steps[0].columns)
    shown: dict[str, tuple[str, bool]] = {}  # the names of the aggregate: the view's column, and whether it is cast
    for column in reversed(columns):
        name, is_cast = _followed(steps, column)
        if name is not None and (name not in shown or not is_cast):
            shown[name] = (column, is_cast)
    keys = [shown.get(name, ("", True)) for _, name in rows.keys]
    if any(is_cast for _, is_cast in keys):
        return None
    calls = []
    hidden: tuple[str | None, bool] = (None, False)
    for text, name in rows.aggregates:
        call = _call(text, *shown.get(name, hidden))
        if call is None:
            return None
        calls.append(call)
    groups = Groups(tuple(steps), rows, tuple(column for column, _ in keys), tuple(calls), columns)
    counts = _old_counts(groups, nullable_arguments(groups))
    return groups if all(call.kind != "COUNT" or call.argument in counts for call in calls) else None


def _followed(steps: Sequence[Filter | Project], column: str) -> tuple[str | None, bool]:
    """The name of the aggregate's that a column of the view shows, and whether it is cast on the way."""
    name: str | None = column
    is_cast = False
    for step in steps:
        if isinstance(step, Project):
            text = next(text for text, each in step.columns if each == name)
            plain = sqlglot.parse_one(text, dialect=DIALECT)
            if type(plain) is exp.Cast and plain.to.this in NUMBERS and not is_cast:
                plain, is_cast = plain.this, True
            if not isinstance(plain, exp.Column) or plain.table:
                return None, False
            name = plain.name
    return name, is_cast


def _call(text: str, column: str | None, is_cast: bool) -> _Call | None:
    parsed = sqlglot.parse_one(text, dialect=DIALECT)
    kind = CALLS.get(type(parsed))
    argument = parsed.this
    if kind is None or isinstance(argument, exp.Distinct | exp.Order) or parsed.expressions:
        return None
    if kind != "COUNT" and (column is None or (is_cast and kind != "SUM")):
        return None
    return _Call(kind, "" if isinstance(argument, exp.Star) else argument.sql(dialect=DIALECT), column, is_cast)


def when_open(groups: Groups) -> tuple[str, ...]:
    """Return what leaves a group open, in words."""
    counts = _old_counts(groups, nullable_arguments(groups))
    shown = {call.argument for call in groups.calls if call.kind == "COUNT" and call.column is not None}
    sums = {call.argument for call in groups.calls if call.kind == "SUM"} - shown
    words = {
        "is not in the view": groups.is_filtered,
        "lost rows": "" not in counts,
        "lost values": not sums <= counts.keys(),
        "lost values of a column with NULLs": bool(sums & counts.keys()),
        "lost its smallest or largest value": any(call.kind in ("MIN", "MAX") for call in groups.calls),
    }
    return tuple(each for each, applies in words.items() if applies)


def nullable_arguments(groups: Groups) -> list[tuple[str, str]]:
    """Return the columns of sources whose lack of NULLs would help."""
    child = groups.aggregate.child
    columns = [origin(child, call.argument) for call in groups.calls if call.kind in ("COUNT", "SUM") and call.argument]
    return [each for each in dict.fromkeys(columns) if each is not None]


def touched_plan(groups: Groups, changed: Collection[str]) -> DeltaPlan | None:
    """Return the plan of the groups of changed rows, with what came and went; None if nothing can change."""
    arguments = list(dict.fromkeys(call.argument for call in groups.calls if call.argument))
    terms = [f"{text} AS k{at}" for at, (text, _) in enumerate(groups.aggregate.keys)]
    terms += [f"{text} AS a{at}" for at, text in enumerate(arguments)]
    names = [f"k{at}" for at in range(len(groups.keys))]
    plain = ", ".join([*names, *(f"a{at}" for at in range(len(arguments)))])
    net = (
        f"SELECT {plain}, SUM({N}) AS {N} FROM (SELECT {', '.join(terms)}, {N} FROM difference)"
        f" GROUP BY {plain} HAVING SUM({N}) <> 0"
    )
    copies = f"SELECT *, unnest(range(CAST(abs({N}) AS BIGINT))) AS copy FROM ({net})"
    facts = [_net("COUNT(*)", "n")]
    for at, call in enumerate(groups.calls):
        argument = f"a{arguments.index(call.argument)}" if call.argument else "*"
        facts.append(_net(f"COUNT({argument})", f"c{at}"))
        if call.kind != "COUNT":
            facts += [f"{call.kind}({argument}) FILTER ({N} {sign} 0) AS {name}{at}" for name, sign in SIGNS.items()]
    last = f"SELECT {', '.join([*names, *facts])} FROM ({copies}) GROUP BY {', '.join(names)}"
    return plan_over(groups.aggregate.child, changed, last)


def _net(count: str, name: str) -> str:
    return f"{count} FILTER ({N} > 0) - {count} FILTER ({N} < 0) AS {name}"


def shows_all_counts(groups: Groups) -> bool:
    """Whether the view has a column for each count of its query."""
    return all(call.column is not None for call in groups.calls)


def touched_keys_text(groups: Groups) -> str:
    """Return the keys of the touched groups, under the names that the view has for them."""
    names = ", ".join(f"k{at} AS {quoted(name)}" for at, name in enumerate(groups.keys))
    return f"SELECT {names} FROM {quoted(TOUCHED)}"


def losses_text(groups: Groups) -> str:
    """Return the groups that lost rows or values; only these need counts that the view doesn't show."""
    lost = " OR ".join(["n < 0", *(f"c{at} < 0" for at in range(len(groups.calls)))])
    return f"SELECT 1 AS lost FROM {quoted(TOUCHED)} WHERE {lost} LIMIT 1"


# -- new rows ----------------------------------------------------------------------------------------------------------


def judged_text(groups: Groups, touched: Types, view: Types, no_nulls: Collection[tuple[str, str]]) -> str | None:
    """Return the touched groups with their old rows, whether each is open, and how many rows it has now.

    `no_nulls` are columns of sources that had no NULL. None if the types, or what the view shows, don't allow it.
    """
    counts = _old_counts(groups, no_nulls)
    is_known = all(call.kind != "COUNT" or call.argument in counts for call in groups.calls)
    if not is_known or not _have_types(groups, touched, view):
        return None
    olds = [f"v.{quoted(name)} AS o{at}" for at, name in enumerate(groups.columns)]
    same = " AND ".join(
        f"CAST(v.{quoted(name)} AS {touched[f'k{at}']}) IS NOT DISTINCT FROM t.k{at}"
        for at, name in enumerate(groups.keys)
    )
    joined = (
        f"SELECT t.*, {', '.join(olds)}, v.is_old IS NOT NULL AS is_old FROM {quoted(TOUCHED)} AS t"
        f" LEFT JOIN (SELECT *, TRUE AS is_old FROM {quoted(VIEW)}) AS v ON {same}"
    )
    counted = f"SELECT *, {_rows_now(groups, counts)} AS rows_now FROM ({joined})"
    return f"SELECT *, {_is_open(groups, counts, touched)} AS is_open FROM ({counted})"


def open_text(groups: Groups) -> str:
    """Return the keys of the groups that are open."""
    names = ", ".join(f"k{at}" for at in range(len(groups.keys)))
    return f"SELECT {names} FROM {quoted(JUDGED)} WHERE is_open"


def closed_text(groups: Groups, touched: Types, view: Types, no_nulls: Collection[tuple[str, str]]) -> str:
    """Return the difference of the groups that are not open: the query's columns and N."""
    counts = _old_counts(groups, no_nulls)
    keys = [f"k{at} AS {quoted(name)}" for at, (_, name) in enumerate(groups.aggregate.keys)]
    values = [
        f"{_value(groups, at, counts, touched)} AS {quoted(name)}"
        for at, (_, name) in enumerate(groups.aggregate.aggregates)
    ]
    rows = f"SELECT {', '.join([*keys, *values])} FROM {quoted(JUDGED)} WHERE NOT is_open AND rows_now > 0"
    for step in reversed(groups.steps):
        if isinstance(step, Filter):
            rows = f"SELECT * FROM ({rows}) WHERE {step.condition}"
        else:
            listed = ", ".join(f"{text} AS {quoted(name)}" for text, name in step.columns)
            rows = f"SELECT {listed} FROM ({rows})"
    names = ", ".join(map(quoted, groups.columns))
    cast = ", ".join(f"CAST({quoted(name)} AS {view[name]}) AS {quoted(name)}" for name in groups.columns)
    olds = ", ".join(f"o{at} AS {quoted(name)}" for at, name in enumerate(groups.columns))
    return (
        f"SELECT {names}, CAST(SUM({N}) AS BIGINT) AS {N} FROM (SELECT {cast}, 1 AS {N} FROM ({rows}) UNION ALL"
        f" SELECT {olds}, -1 AS {N} FROM {quoted(JUDGED)} WHERE NOT is_open AND is_old)"
        f" GROUP BY {names} HAVING SUM({N}) <> 0"
    )


def _old_counts(groups: Groups, no_nulls: Collection[tuple[str, str]]) -> dict[str, str]:
    """The old counts that the view shows, or that follow, by their arguments; that of rows by the argument ""."""
    shown = {
        call.argument: f"CAST({_old(groups, call)} AS BIGINT)"
        for call in groups.calls
        if call.kind == "COUNT" and call.column is not None
    }
    never_null = {""} | {
        call.argument
        for call in groups.calls
        if call.argument and origin(groups.aggregate.child, call.argument) in no_nulls
    }
    rows = next((text for argument, text in shown.items() if argument in never_null), None)
    return shown if rows is None else {**dict.fromkeys(never_null, rows), **shown}


def _old(groups: Groups, call: _Call) -> str:
    assert call.column is not None
    return f"o{groups.columns.index(call.column)}"


def _have_types(groups: Groups, touched: Types, view: Types) -> bool:
    """Whether keys are compared as they are, and sums are exact and shown with all their digits."""
    if any(touched[f"k{at}"] == "HUGEINT" for at in range(len(groups.keys))):
        return False
    for at, call in enumerate(groups.calls):
        if call.kind == "SUM":
            assert call.column is not None
            digits = _scale(touched[f"p{at}"])
            shown = _scale(view[call.column])
            if digits is None or shown is None or shown < digits:
                return False
    return True


def _scale(kind: str) -> int | None:
    """The digits after the point; None of a type that isn't exact."""
    if kind.startswith("DECIMAL("):
        return int(kind.rstrip(")").partition(",")[2])
    return 0 if kind in ("HUGEINT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT") else None


def _is_exact(kind: str) -> bool:
    """Whether equal values are the same: 0.0 equals -0.0."""
    return "FLOAT" not in kind and "DOUBLE" not in kind


def _rows_now(groups: Groups, counts: Mapping[str, str]) -> str:
    """How many rows a group has, or 1 for some; NULL if that isn't known."""
    if "" in counts:
        return f"CASE WHEN is_old THEN {counts['']} ELSE 0 END + n"
    some = [
        f" WHEN {counts[call.argument]} + c{at} > 0 THEN 1"
        for at, call in enumerate(groups.calls)
        if call.argument in counts
    ]
    return f"CASE WHEN NOT is_old THEN n WHEN n >= 0 THEN 1{''.join(some)} END"


def _is_open(groups: Groups, counts: Mapping[str, str], touched: Types) -> str:
    conditions = ["rows_now IS NULL", "rows_now < 0"]
    if groups.is_filtered:
        conditions.append("NOT is_old")
    for at, call in enumerate(groups.calls):
        if call.kind == "SUM" and call.argument not in counts:
            conditions.append(f"(rows_now > 0 AND is_old AND c{at} < 0)")
        elif call.kind in ("MIN", "MAX"):
            old, (inside, outside) = _old(groups, call), {"MIN": (">", "<"), "MAX": ("<", ">")}[call.kind]
            went = f"m{at} IS NOT NULL AND ({old} IS NULL OR NOT m{at} {inside} {old})"
            came = f"p{at} {outside}{'=' if _is_exact(touched[f'p{at}']) else ''} {old}"
            conditions.append(f"(rows_now > 0 AND {went} AND NOT COALESCE({came}, FALSE))")
    return f"COALESCE({' OR '.join(conditions)}, TRUE)"


def _value(groups: Groups, at: int, counts: Mapping[str, str], touched: Types) -> str:
    """The new value of an aggregate."""
    call = groups.calls[at]
    if call.kind == "COUNT":
        return f"CASE WHEN is_old THEN {counts[call.argument]} ELSE 0 END + c{at}"
    kind = touched[f"p{at}"]
    old = f"CAST({_old(groups, call)} AS {kind})"
    if call.kind == "SUM":
        more = f"COALESCE(p{at}, CAST(0 AS {kind})) - COALESCE(m{at}, CAST(0 AS {kind}))"
        is_null = f"{counts[call.argument]} + c{at} = 0" if call.argument in counts else "FALSE"
        return (
            f"CASE WHEN is_old AND {old} IS NOT NULL THEN CASE WHEN {is_null} THEN NULL ELSE {old} + ({more}) END"
            f" WHEN c{at} > 0 THEN {more} END"
        )
    sign = {"MIN": "<=", "MAX": ">="}[call.kind]
    return f"CASE WHEN p{at} IS NULL OR {old} {sign} p{at} THEN {old} ELSE p{at} END"
