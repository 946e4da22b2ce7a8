"""The rules of delta plans against bags: a query's rows at `from`, plus the plan's difference, are its rows at `to`."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.views.pairs import TYPES, check, mutated, random_pair
from tests.views.queries import TABLES, random_rows
from worker.views.operators import Join, Operator, Window, Work, children_of, columns_of
from worker.views.query import analyse, parse


def random_pairs(seeds: range) -> Counter[object]:
    """The pairs by class, those whose groups were added to, and those that had open groups."""
    pairs = [random_pair(seed) for seed in seeds]
    counts = Counter[object](pair.work for pair in pairs)
    counts.update(added=sum(pair.is_added for pair in pairs), opened=sum(pair.opened > 0 for pair in pairs))
    counts.update(summed=sum(pair.summed is not None for pair in pairs))
    return counts


def test_random_differences_are_those_of_recomputation() -> None:
    counts = random_pairs(range(60))
    assert counts["summed"] > 8
    assert counts[Work.AFFECTED_KEYS] > 20
    assert counts[Work.INVERTIBLE] > 8
    assert counts["added"] > 8
    assert counts["added"] > counts["opened"] > 0
    assert counts[Work.FULL] < 30


JOINS = (
    "SELECT a.x, b.g FROM s.a a JOIN s.b b ON a.k = b.k",
    "SELECT a.g AS p, b.g AS q FROM s.a a JOIN s.b b ON a.g IS NOT DISTINCT FROM b.g WHERE a.x > 0 OR b.x > 0",
    "SELECT a.x AS p, b.x AS q FROM s.a a JOIN s.a b ON a.k = b.k",
    "SELECT a.x, b.f, c.g FROM s.a a JOIN s.b b ON a.k = b.k JOIN s.c c ON b.x = c.x",
    "SELECT a.x FROM s.a a, s.b b WHERE a.k = b.x UNION ALL SELECT c.x FROM s.c c",
    "SELECT a.x, b.f, c.g FROM s.a a, s.c c, s.b b WHERE a.k = b.k AND b.x = c.x AND c.x > 0 AND a.x + b.x > c.k",
    "SELECT a.x, b.g FROM s.a a, s.b b WHERE a.g = b.g AND a.x > 0 OR b.f > 0 AND a.g = b.g",
)
ORDERED = "SELECT a.x AS p, c.x AS q, b.x AS r FROM s.a a, s.c c CROSS JOIN s.b b WHERE a.k = b.k AND b.g = c.g"


@pytest.mark.parametrize("text", JOINS)
def test_joins_of_two_changed_sides_count_each_pair_once(text: str) -> None:
    """Groups only need the keys of a difference: here its multiplicities are rows of the view."""
    for seed in range(4):
        rng = random.Random(seed)
        before = {name: random_rows(rng, 8) for name in TABLES}
        assert check(text, before, {name: mutated(rng, rows) for name, rows in before.items()}).work is Work.LINEAR


@pytest.mark.parametrize(
    "text",
    [
        ORDERED,
        f"{ORDERED} AND EXISTS (SELECT 1 FROM s.a e, s.c f, s.b g WHERE e.k = g.k AND f.x = g.x AND f.k = a.k)",
        "SELECT a.x, b.g, c.k FROM s.a a, s.c c, s.b b LEFT JOIN s.a d ON d.k = b.k WHERE a.k = b.k AND c.x = a.x",
        *JOINS[-2:],
    ],
)
def test_each_join_has_an_equation_if_there_is_one(text: str) -> None:
    """Two tables without one would be joined row by row, and for ever if they are large."""
    rng = random.Random(3)
    before = {name: random_rows(rng, 8) for name in TABLES}
    check(text, before, {name: mutated(rng, rows) for name, rows in before.items()})
    joins = [each for each in below(query_of(text)) if isinstance(each, Join)]
    assert joins
    assert all(join.keys for join in joins), joins


def test_equal_rows_come_in_the_order_of_columns_as_they_are_written() -> None:
    whole = "SELECT a.k, lag(c.x) OVER (PARTITION BY a.k) AS p FROM s.a a, s.c c, s.b b WHERE a.k = b.k AND b.g = c.g"
    [window] = [each for each in below(query_of(whole)) if isinstance(each, Window)]
    order = [name for name in columns_of(window.child) if name in ("a.k", "c.x", "b.k")]
    assert order == ["a.k", "c.x", "b.k"]


def test_a_full_join_keeps_rows_that_where_takes_away() -> None:
    text = "SELECT a.x, b.x AS y, c.x AS z FROM s.a a JOIN s.b b ON TRUE FULL JOIN s.c c ON c.k = a.k WHERE a.x = b.x"
    rng = random.Random(5)
    before = {name: random_rows(rng, 8) for name in TABLES}
    check(text, before, {name: mutated(rng, rows) for name, rows in before.items()})


def query_of(text: str) -> Operator:
    return analyse(parse(text), dict.fromkeys(TABLES, TYPES)).operator


def below(operator: Operator) -> list[Operator]:
    return [operator, *(each for child in children_of(operator) for each in below(child))]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, g FROM s.a INTERSECT SELECT x, g FROM s.b",
        "SELECT k AS v FROM s.a EXCEPT SELECT x FROM s.b INTERSECT SELECT k FROM s.c",
        "SELECT v, count(*) AS n FROM (SELECT f AS v FROM s.a EXCEPT SELECT d FROM s.b) GROUP BY v",
        "SELECT g FROM s.a EXCEPT ALL SELECT g FROM s.b",
        "SELECT k, g FROM s.a INTERSECT ALL (SELECT x, g FROM s.b UNION ALL SELECT k, g FROM s.c)",
        "SELECT v, count(*) AS n FROM (SELECT f AS v FROM s.a EXCEPT ALL SELECT d FROM s.b) GROUP BY v",
    ],
)
def test_rows_of_both_sides_or_one_and_null_is_a_value(text: str) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        before = {name: random_rows(rng, 8) for name in TABLES}
        after = {name: mutated(rng, rows) if rng.random() < 0.7 else rows for name, rows in before.items()}
        assert check(text, before, after).work is Work.AFFECTED_KEYS


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, g, sum(x) AS s, count(*) AS n FROM s.a GROUP BY ROLLUP (k, g)",
        "SELECT k, g, grouping(k, g) AS w, max(d) AS m FROM s.a GROUP BY CUBE (k, g) HAVING count(*) > 1",
        "SELECT k + 1 AS j, d, sum(x) AS s FROM s.a GROUP BY GROUPING SETS ((k + 1, d), (d), ())",
        "SELECT a.g, b.k, avg(a.d) AS m FROM s.a a LEFT JOIN s.b b ON a.k = b.k GROUP BY a.g, ROLLUP (b.k, (a.x, b.x))",
        "SELECT k, rank() OVER (PARTITION BY grouping(k) ORDER BY sum(x)) AS r FROM s.a GROUP BY ROLLUP (k)",
    ],
)
def test_grouping_sets_are_groups_of_each_set(text: str) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        before = {name: random_rows(rng, seed * 2) for name in TABLES}
        assert (
            check(text, before, {name: mutated(rng, rows) for name, rows in before.items()}).work is Work.AFFECTED_KEYS
        )


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_thousands_of_random_differences_are_those_of_recomputation(part: int) -> None:
    counts = random_pairs(range(1_000 + part * 1_000, 2_000 + part * 1_000))
    assert counts[Work.AFFECTED_KEYS] > 200
    assert counts["added"] > 200
