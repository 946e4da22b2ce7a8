"""Aggregates over all rows: each refresh stores their totals with its commit, and the next one adds the changed rows.

    SELECT sum(price * part) AS revenue FROM shop.lines
    SELECT id FROM shop.lines WHERE price > (SELECT avg(price) FROM shop.lines)

A view has no hidden columns, and its rows seldom tell such totals. So a commit says them: how many rows there were, and
of each aggregate how many values, and their sum, or the smallest or largest. In a plan such an aggregate is then a
source of one row, its row before and its row after; it changed only if the two differ.

The totals are computed from all rows where they can't be brought up to date: the smallest value went, or nothing was
stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, Protocol

import pyarrow as pa
import sqlglot
from sqlglot import exp

from worker.base.errors import InputError
from worker.views.delta import CHANGES, FROM, NONE, TO, DeltaPlan, N, Restriction, delta_plan, whole_text
from worker.views.dialect import DIALECT
from worker.views.engine import Engine, run_with
from worker.views.operators import (
    Aggregate,
    Join,
    Operator,
    Project,
    Scan,
    children_of,
    quoted,
    sources_of,
    with_children,
)

FAILED: Final = "VIEW_QUERY_FAILED"
QUERY, ROWS = "of", "rows"  # of the stored text
DIGEST_BYTES: Final = 16
STORED_CHARS_MAX: Final = 4_000  # of what a property of a commit can have
SIGNS: Final = {"p": ">", "m": "<"}  # what came, what went
DIFFERENCE, BEFORE, CHANGED = "@difference", "@before", "@changed"
INEXACT: Final = ("DOUBLE", "FLOAT")


class Sources(Protocol):
    """The sources of a view: which changed, and the relations that plans read."""

    @property
    def changed(self) -> Sequence[str]: ...

    def relations(
        self,
        text: str,
        restrictions: Mapping[tuple[str, str], Restriction] | None = None,
        given: Mapping[str, pa.Table] | None = None,
    ) -> dict[str, pa.Table]: ...

    def run(self, plan: DeltaPlan, more: Mapping[str, pa.Table] | None = None) -> pa.Table: ...

    def without_nulls(self, columns: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]: ...


def totals_in(operator: Operator) -> Iterator[Aggregate]:
    """The aggregates over all rows that have totals, from the sources up, each once."""
    yield from dict.fromkeys(_totals_in(operator))


def _totals_in(operator: Operator) -> Iterator[Aggregate]:
    for child in children_of(operator):
        yield from _totals_in(child)
    if isinstance(operator, Aggregate) and operator.has_totals:
        yield operator


def with_totals(operator: Operator) -> tuple[Operator, tuple[str, ...]]:
    """The query with a source in the place of each aggregate that has totals, and the names of these sources."""
    names = {aggregate: _source_name(at) for at, aggregate in enumerate(totals_in(operator))}
    return _replaced(operator, {each: _source(each, name) for each, name in names.items()}), tuple(names.values())


def _source_name(at: int) -> str:
    return f"@total_{at}"


def _source(aggregate: Aggregate, name: str) -> Scan:
    return Scan(name, tuple((column, column) for _, column in aggregate.aggregates))


def _replaced(operator: Operator, places: Mapping[Aggregate, Operator]) -> Operator:
    if isinstance(operator, Aggregate) and operator in places:
        return places[operator]
    return with_children(operator, tuple(_replaced(child, places) for child in children_of(operator)))


@dataclass(frozen=True, slots=True)
class KnownTotals:
    """The totals of a query at the version to which its sources go, and the sources with those of the totals.

    `query` reads the latter. `stored` is for the commit; None: they are too long, or not exact. `is_joined`: one that
    changed meets other rows in a join, and each of these changes with it.
    """

    query: Operator
    relations: Mapping[str, pa.Table]
    changed: tuple[str, ...]
    stored: str | None
    is_joined: bool = False

    def added_to(self, sources: Sources) -> SourcesWithTotals:
        return SourcesWithTotals(sources, self.relations, self.changed)


@dataclass(frozen=True, slots=True)
class SourcesWithTotals:
    """The sources of a view, and those that stand for its totals."""

    sources: Sources
    totals: Mapping[str, pa.Table]
    moved: tuple[str, ...]

    @property
    def changed(self) -> list[str]:
        return [*self.sources.changed, *self.moved]

    def relations(
        self,
        text: str,
        restrictions: Mapping[tuple[str, str], Restriction] | None = None,
        given: Mapping[str, pa.Table] | None = None,
    ) -> dict[str, pa.Table]:
        return {**self.sources.relations(text, restrictions, {**self.totals, **(given or {})}), **self.totals}

    def run(self, plan: DeltaPlan, more: Mapping[str, pa.Table] | None = None) -> pa.Table:
        return self.sources.run(plan, {**self.totals, **(more or {})})

    def without_nulls(self, columns: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        return self.sources.without_nulls(each for each in columns if f"{each[0]}@{TO}" not in self.totals)


def known_totals(query: Operator, sources: Sources, before: str | None) -> KnownTotals:
    """Bring the totals of a query up to date. They are computed where those before are not known or not enough."""
    places: dict[Aggregate, Operator] = {}
    relations: dict[str, pa.Table] = {}
    changed: list[str] = []
    stored: list[Mapping[str, Any]] = []
    old = json.loads(before)[ROWS] if before is not None and are_stored(query, before) else None
    is_exact = True
    for at, aggregate in enumerate(totals_in(query)):
        name, inner = _source_name(at), replace(aggregate, child=_replaced(aggregate.child, places))
        total = _Total(inner, SourcesWithTotals(sources, relations, tuple(changed)))
        rows_before = None if old is None else total.read(old[at])
        rows_after = total.after(rows_before)
        places[aggregate] = total.typed(_source(aggregate, name))
        after = relations[f"{name}@{TO}"] = total.row(rows_after)
        relations[f"{name}@{NONE}"] = after.slice(0, 0)
        earlier = after if rows_before is None else total.row(rows_before)
        if earlier.to_pylist() != after.to_pylist():
            changed.append(name)
            relations[f"{name}@{FROM}"] = earlier
            relations[f"{name}@{CHANGES}"] = pa.concat_tables([_signed(after, 1), _signed(earlier, -1)])
        is_exact &= total.is_exact
        stored.append(total.text(rows_after))
    text = json.dumps({QUERY: _digest(query), ROWS: stored}, separators=(",", ":"))
    is_short = bool(places) and is_exact and len(text) <= STORED_CHARS_MAX
    whole = _replaced(query, places)
    joined = any(_is_joined(whole, name) for name in changed)
    return KnownTotals(whole, relations, tuple(changed), text if is_short else None, is_joined=joined)


def are_stored(query: Operator, totals: str) -> bool:
    """Whether stored totals are those of the query's aggregates: another release may have others for the same text."""
    return bool(json.loads(totals)[QUERY] == _digest(query))


def _digest(query: Operator) -> str:
    return blake2b(repr(list(totals_in(query))).encode(), digest_size=DIGEST_BYTES).hexdigest()


def _is_joined(operator: Operator, source: str) -> bool:
    """Whether the rows of a source meet others in a join: each of these changes with it."""
    if source not in sources_of(operator):
        return False
    return isinstance(operator, Join) or any(_is_joined(child, source) for child in children_of(operator))


def _signed(row: pa.Table, n: int) -> pa.Table:
    return row.append_column(N, pa.array([n] * len(row), pa.int64()))


class _Total:
    """An aggregate over all rows as one row: `r` rows, and of the first call `c0` values with the total `v0`."""

    def __init__(self, aggregate: Aggregate, sources: SourcesWithTotals) -> None:
        self._aggregate = aggregate
        self._sources = sources
        self._calls = [sqlglot.parse_one(text, dialect=DIALECT) for text, _ in aggregate.aggregates]
        text = self._totals_text(NONE)
        with Engine() as engine:
            for name, rows in sources.relations(text).items():
                engine.add(name, rows)
            types = engine.keep(BEFORE, text)
        self._types = [types[f"v{at}"] for at in range(len(self._calls))]
        self.is_exact = not any(kind in INEXACT for kind in self._types)

    def after(self, before: pa.Table | None) -> pa.Table:
        """The totals now."""
        if before is None or not self.is_exact:
            return self._computed(TO)
        if set(self._sources.changed).isdisjoint(sources_of(self._aggregate)):
            return before
        if any(_is_joined(self._aggregate.child, name) for name in self._sources.moved):
            return self._computed(TO)
        plan = delta_plan(self._aggregate.child, self._sources.changed)
        assert plan is not None
        rows = self._sources.run(plan)
        try:
            with Engine() as engine:
                engine.add(DIFFERENCE, rows)
                engine.add(BEFORE, before)
                engine.keep(CHANGED, f"SELECT {self._differences()} FROM {quoted(DIFFERENCE)}")
                is_open = " OR ".join(map(self._is_open, range(len(self._calls)))) or "FALSE"
                both = f"{quoted(BEFORE)} AS b, {quoted(CHANGED)} AS d"
                [opened] = engine.run(f"SELECT COALESCE({is_open}, FALSE) AS o FROM {both}").column("o").to_pylist()
                if not opened:
                    return engine.run(f"SELECT {self._sums()} FROM {both}").cast(before.schema)
        except InputError as error:
            if error.reason != FAILED:  # such as a sum that is too large on its way
                raise
        return self._computed(TO)

    def row(self, totals: pa.Table) -> pa.Table:
        """The aggregate's row."""
        columns = [
            f"{self._shown(at, call)} AS {quoted(name)}"
            for at, (call, (_, name)) in enumerate(zip(self._calls, self._aggregate.aggregates, strict=True))
        ]
        return run_with({BEFORE: totals}, f"SELECT {', '.join(columns)} FROM {quoted(BEFORE)}")

    @staticmethod
    def _shown(at: int, call: exp.Expr) -> str:
        if isinstance(call, exp.Count):
            return "r" if isinstance(call.this, exp.Star) else f"c{at}"
        return f"v{at}"

    def text(self, totals: pa.Table) -> Mapping[str, Any]:
        """The totals for a commit."""
        texts = [f"CAST({name} AS VARCHAR) AS {name}" for name in totals.column_names]
        [row] = run_with({BEFORE: totals}, f"SELECT {', '.join(texts)} FROM {quoted(BEFORE)}").to_pylist()
        return dict(row)

    def read(self, text: Mapping[str, Any]) -> pa.Table:
        """The totals that a commit has."""
        given = pa.table({name: pa.array([text[name]], pa.string()) for name, _ in self._columns()})
        columns = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in self._columns())
        return run_with({BEFORE: given}, f"SELECT {columns} FROM {quoted(BEFORE)}")

    def _columns(self) -> list[tuple[str, str]]:
        each = [(f"c{at}", f"v{at}", kind) for at, kind in enumerate(self._types)]
        return [("r", "BIGINT"), *((name, kind) for c, v, k in each for name, kind in ((c, "BIGINT"), (v, k)))]

    def typed(self, source: Scan) -> Operator:
        """The source with the types that the aggregates have: Arrow has no HUGEINT."""
        types = dict(zip((name for _, name in source.columns), self._types, strict=True))
        return Project(source, tuple((f"CAST({quoted(name)} AS {types[name]})", name) for _, name in source.columns))

    def _computed(self, side: str) -> pa.Table:
        """The totals of all rows."""
        text = self._totals_text(side)
        return run_with(self._sources.relations(text), text)

    def _totals_text(self, side: str) -> str:
        parts = ["COUNT(*) AS r"]
        for at, call in enumerate(self._calls):
            argument = _argument(call)
            parts.append(f"COUNT({argument}) AS c{at}")
            value = "CAST(NULL AS BIGINT)" if isinstance(call, exp.Count) else call.sql(dialect=DIALECT)
            parts.append(f"{value} AS v{at}")
        rows = whole_text(self._aggregate.child, side, self._sources.changed)
        return f"SELECT {', '.join(parts)} FROM ({rows})"

    # -- what changed rows add

    def _differences(self) -> str:
        parts = [f"CAST(COALESCE(SUM({N}), 0) AS BIGINT) AS r"]
        for at, (call, kind) in enumerate(zip(self._calls, self._types, strict=True)):
            argument = _argument(call)
            parts.append(f"CAST(COALESCE(SUM({N}) FILTER ({argument} IS NOT NULL), 0) AS BIGINT) AS c{at}")
            if isinstance(call, exp.Sum):
                number = "HUGEINT" if kind == "HUGEINT" else "DECIMAL(18,0)"
                parts.append(f"SUM(CAST({argument} AS {kind}) * CAST({N} AS {number})) AS v{at}")
            elif isinstance(call, exp.Min | exp.Max):
                aggregate = "MIN" if isinstance(call, exp.Min) else "MAX"
                parts += [
                    f"{aggregate}({argument}) FILTER ({N} {sign} 0) AS {name}{at}"
                    for name, sign in (("p", ">"), ("m", "<"))
                ]
        return ", ".join(parts)

    def _is_open(self, at: int) -> str:
        """Whether the rows that are left have to be looked at: the smallest or largest value went."""
        call = self._calls[at]
        if not isinstance(call, exp.Min | exp.Max):
            return "FALSE"
        beyond = "<=" if isinstance(call, exp.Min) else ">="
        came = f"COALESCE(d.p{at} {beyond} b.v{at}, FALSE)"
        return f"(d.m{at} {beyond} b.v{at} AND NOT {came})"

    def _sums(self) -> str:
        parts = ["b.r + d.r AS r"]
        for at, (call, kind) in enumerate(zip(self._calls, self._types, strict=True)):
            count = f"(b.c{at} + d.c{at})"
            parts.append(f"{count} AS c{at}")
            match call:
                case exp.Sum():
                    value = f"CASE WHEN {count} <> 0 THEN COALESCE(b.v{at}, 0) + COALESCE(d.v{at}, 0) END"
                case exp.Min():
                    value = f"LEAST(b.v{at}, d.p{at})"
                case exp.Max():
                    value = f"GREATEST(b.v{at}, d.p{at})"
                case _:
                    value = "NULL"
            parts.append(f"CAST({value} AS {kind}) AS v{at}")
        return ", ".join(parts)


def _argument(call: exp.Expr) -> str:
    return "1" if isinstance(call.this, exp.Star) or call.this is None else call.this.sql(dialect=DIALECT)
