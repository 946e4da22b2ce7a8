"""The rules of delta plans against bags: a query's rows at `from`, plus the plan's difference, are its rows at `to`."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from tests.views.bags import Tables, bag, by_oracle
from tests.views.queries import SCHEMA, TABLES, Queries, random_row, random_rows
from worker.views.delta import CHANGES, FROM, NONE, TO, DeltaPlan, delta_plan, relations_of, whole_text
from worker.views.engine import run_with
from worker.views.operators import Work, classified
from worker.views.query import analyse, parse
from worker.views.refresh import subtract

TYPES = {"k": "BIGINT", "g": "VARCHAR", "x": "BIGINT", "f": "DOUBLE"}


def added(left: Counter[tuple[object, ...]], right: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    found = Counter(left)
    found.update(right)
    return Counter({row: count for row, count in found.items() if count})


def mutated(rng: random.Random, rows: pa.Table) -> pa.Table:
    kept = [row for row in rows.to_pylist() if rng.random() > 0.2]
    changed = [random_row(rng) if rng.random() < 0.2 else row for row in kept]
    return pa.Table.from_pylist(changed + [random_row(rng) for _ in range(rng.randint(0, 3))], SCHEMA)


def check(text: str, before: Tables, after: Tables) -> Work:
    """One pair of a query and a change of its sources."""
    query = analyse(parse(text), dict.fromkeys(TABLES, TYPES) | {})
    changed = [name for name in query.uses if not before[name].equals(after[name])]
    wanted = by_oracle(text, after)
    used = {name: list(columns) for name, columns in query.uses.items()}
    relations = {f"{name}@{TO}": after[name].select(used[name]) for name in used}
    assert bag(run_with(relations, whole_text(query.operator))) == bag(wanted), text
    delta = delta_plan(query.operator, changed)
    work = max(one.work for one in classified(query.operator))
    if delta is None:
        assert bag(by_oracle(text, before)) == bag(wanted), text
        return work
    for name in used:
        old, new = before[name].select(used[name]), after[name].select(used[name])
        relations[f"{name}@{FROM}"], relations[f"{name}@{NONE}"] = old, new.slice(0, 0)
        relations[f"{name}@{CHANGES}"] = subtract(new, old)
    assert {f"{name}@{side}" for name, side in relations_of(delta.text, used)} <= relations.keys()
    difference = run_with(relations, delta.text)
    assert added(bag(by_oracle(text, before)), bag(difference)) == bag(wanted), f"{text}\n{delta.text}"
    assert bag(run_with(restricted(relations, delta), delta.text)) == bag(difference), f"{text}\n{delta}"
    return work


def restricted(relations: Tables, delta: DeltaPlan) -> Tables:
    """The relations with the rows that the plan says it needs, and no others."""
    narrow = dict(relations)
    for (source, side), restriction in delta.restrictions.items():
        rows = relations[f"{source}@{side}"]
        keys = set(run_with(relations, restriction.keys).column("k").to_pylist())
        is_needed = [key in keys for key in rows[restriction.column].to_pylist()]
        narrow[f"{source}@{side}"] = rows.filter(pa.array(is_needed, pa.bool_()))
    return narrow


def random_pair(seed: int) -> Work:
    rng = random.Random(seed)
    text = Queries(rng).query()
    before = {name: random_rows(rng, rng.randint(0, 8)) for name in TABLES}
    after = {name: mutated(rng, rows) if rng.random() < 0.7 else rows for name, rows in before.items()}
    return check(text, before, after)


def test_random_differences_are_those_of_recomputation() -> None:
    works = Counter(random_pair(seed) for seed in range(80))
    assert works[Work.LINEAR] > 3
    assert works[Work.AFFECTED_KEYS] > 50
    assert works[Work.FULL] < 20


JOINS = (
    "SELECT a.x, b.g FROM s.a a JOIN s.b b ON a.k = b.k",
    "SELECT a.g AS p, b.g AS q FROM s.a a JOIN s.b b ON a.g IS NOT DISTINCT FROM b.g WHERE a.x > 0 OR b.x > 0",
    "SELECT a.x AS p, b.x AS q FROM s.a a JOIN s.a b ON a.k = b.k",
    "SELECT a.x, b.f, c.g FROM s.a a JOIN s.b b ON a.k = b.k JOIN s.c c ON b.x = c.x",
    "SELECT a.x FROM s.a a, s.b b WHERE a.k = b.x UNION ALL SELECT c.x FROM s.c c",
)


@pytest.mark.parametrize("text", JOINS)
def test_joins_of_two_changed_sides_count_each_pair_once(text: str) -> None:
    """Groups only need the keys of a difference: here its multiplicities are rows of the view."""
    for seed in range(4):
        rng = random.Random(seed)
        before = {name: random_rows(rng, 8) for name in TABLES}
        assert check(text, before, {name: mutated(rng, rows) for name, rows in before.items()}) is Work.LINEAR


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_thousands_of_random_differences_are_those_of_recomputation(part: int) -> None:
    works = Counter(random_pair(seed) for seed in range(1_000 + part * 1_000, 2_000 + part * 1_000))
    assert works[Work.AFFECTED_KEYS] > 400
