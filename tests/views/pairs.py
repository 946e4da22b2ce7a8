"""Pairs of a query and a change of its sources, checked: rows before plus the difference are the rows after."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from tests.views.bags import Tables, bag, by_oracle
from tests.views.queries import SCHEMA, TABLES, Queries, random_row, random_rows
from worker.base.errors import InputError
from worker.views.classes import classified
from worker.views.delta import CHANGES, FROM, NONE, TO, DeltaPlan, delta_plan, relations_of, whole_text
from worker.views.differences import by_totals, difference
from worker.views.engine import matches, run_with
from worker.views.group_totals import groups_of
from worker.views.operators import Opaque, Operator, Work
from worker.views.query import analyse, parse
from worker.views.refresh import subtract
from worker.views.totals import known_totals, totals_in

TYPES = {"k": "BIGINT", "g": "VARCHAR", "x": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(6,2)"}


def added(left: Counter[tuple[object, ...]], right: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    found = Counter(left)
    found.update(right)
    return Counter({row: count for row, count in found.items() if count})


def mutated(rng: random.Random, rows: pa.Table) -> pa.Table:
    kept = [row for row in rows.to_pylist() if rng.random() > 0.2]
    changed = [random_row(rng) if rng.random() < 0.2 else row for row in kept]
    return pa.Table.from_pylist(changed + [random_row(rng) for _ in range(rng.randint(0, 3))], SCHEMA)


class Checked(NamedTuple):
    """The class of a query; whether its groups were added to, and how often sources were read for open ones."""

    work: Work
    is_added: bool = False
    opened: int = 0
    summed: int | None = None  # it has totals over all rows, and how many were not told by those before


def check(text: str, before: Tables, after: Tables) -> Checked:
    """One pair of a query and a change of its sources."""
    query = analyse(parse(text), dict.fromkeys(TABLES, TYPES) | {})
    if isinstance(query.operator, Opaque) and re.search(r"EXISTS|IN \(SELECT|\(SELECT \w+\(", text):
        return Checked(Work.FULL)  # computed as it was written, which DuckDB itself fails to do for some such queries
    changed = [name for name in query.uses if not before[name].equals(after[name])]
    wanted = by_oracle(text, after)
    used = {name: list(columns) for name, columns in query.uses.items()}
    relations = {f"{name}@{TO}": after[name].select(used[name]) for name in used}
    assert bag(run_with(relations, whole_text(query.operator))) == bag(wanted), text
    delta = delta_plan(query.operator, changed)
    work = max(step.work for step in classified(query.operator))
    if delta is None:
        assert bag(by_oracle(text, before)) == bag(wanted), text
        return Checked(work)
    for name in used:
        old, new = before[name].select(used[name]), after[name].select(used[name])
        relations[f"{name}@{FROM}"], relations[f"{name}@{NONE}"] = old, new.slice(0, 0)
        relations[f"{name}@{CHANGES}"] = subtract(new, old)
    assert {f"{name}@{side}" for name, side in relations_of(delta.text, used)} <= relations.keys()
    found = run_with(relations, delta.text)
    assert added(bag(by_oracle(text, before)), bag(found)) == bag(wanted), f"{text}\n{delta.text}"
    assert bag(run_with(restricted(relations, delta), delta.text)) == bag(found), f"{text}\n{delta}"
    if any(totals_in(query.operator)):
        return Checked(work, summed=check_totals(text, query.operator, changed, relations, bag(found)))
    groups = groups_of(query.operator)
    if groups is None:
        return Checked(work)
    held = HeldSources(changed, relations)
    old = run_with(before_only(relations), whole_text(query.operator))
    totals = by_totals(query.operator, groups, held, lambda keys: with_keys(old, keys))
    assert totals is None or bag(totals) == bag(found), f"{text}\n{delta.text}"
    return Checked(work, totals is not None, held.opened)


def with_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have these keys in the columns that the keys are named after."""
    text = f"SELECT rows.* FROM rows SEMI JOIN keys ON {matches('rows', 'keys', keys.column_names)}"
    return run_with({"rows": rows, "keys": keys}, text)


def check_totals(
    text: str, query: Operator, changed: list[str], relations: Tables, wanted: Counter[tuple[object, ...]]
) -> int:
    """Totals that one refresh stores serve the next one; returns how many of them were computed from all rows."""
    earlier = {**before_only(relations), **{name: rows for name, rows in relations.items() if name.endswith(NONE)}}
    first = known_totals(query, HeldSources([], earlier), None)
    held = HeldSources(changed, relations)
    known = known_totals(query, held, first.stored)
    anew = known_totals(query, HeldSources([], relations), None)
    assert known.stored == anew.stored, text
    old = run_with({**earlier, **first.relations}, whole_text(first.query))
    if first.stored is not None:
        found = difference(known.query, known.added_to(held), lambda keys: with_keys(old, keys))
        assert Counter({row: n for row, n in bag(found).items() if n}) == wanted, text
    rows = run_with({**relations, **known.relations}, whole_text(known.query))
    assert bag(rows) == added(bag(old), wanted), text
    return held.computed


def before_only(relations: Tables) -> Tables:
    """The relations of `to` with the rows of `from`."""
    return {name: relations.get(name.replace(TO, FROM), rows) for name, rows in relations.items() if name.endswith(TO)}


class HeldSources:
    """Sources in memory; `opened` counts the plans that read them for groups that were open."""

    def __init__(self, changed: list[str], relations: Tables) -> None:
        self.changed = changed
        self.opened = 0
        self.computed = 0
        self._relations = relations

    def relations(self, text: str, restrictions: object = None, given: object = None) -> dict[str, pa.Table]:
        self.computed += "COUNT(*) AS r" in text and f"@{TO}" in text
        return {name: rows for name, rows in self._relations.items() if f'"{name}"' in text}

    def run(self, plan: DeltaPlan, more: Tables | None = None) -> pa.Table:
        self.opened += 1
        return run_with({**self._relations, **(more or {})}, plan.text)

    def without_nulls(self, columns: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """What bounds of files say: columns without a NULL before."""
        return frozenset(
            (source, column)
            for source, column in columns
            if not self._relations.get(f"{source}@{FROM}", self._relations[f"{source}@{TO}"])[column].null_count
        )


def restricted(relations: Tables, delta: DeltaPlan) -> Tables:
    """The relations with the rows that the plan says it needs, and no others."""
    narrow = dict(relations)
    for (source, side), restriction in delta.restrictions.items():
        rows = relations[f"{source}@{side}"]
        keys = set(run_with(relations, restriction.keys).column("k").to_pylist())
        is_needed = [key in keys for key in rows[restriction.column].to_pylist()]
        narrow[f"{source}@{side}"] = rows.filter(pa.array(is_needed, pa.bool_()))
    return narrow


def random_query(queries: Queries) -> str:
    """A query that a view can have: windows must be definite, and those of a query without a rule are not."""
    while True:
        text = queries.query()
        try:
            analyse(parse(text), dict.fromkeys(TABLES, TYPES) | {})
        except InputError as error:
            if "put it into a view of its own" not in str(error):
                raise
        else:
            return text


def random_pair(seed: int) -> Checked:
    rng = random.Random(seed)
    text = random_query(Queries(rng))
    before = {name: random_rows(rng, rng.randint(0, 8)) for name in TABLES}
    after = {name: mutated(rng, rows) if rng.random() < 0.7 else rows for name, rows in before.items()}
    return check(text, before, after)
