"""Subqueries in conditions and expressions: what is true, false or unknown, and what has a rule."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.views.pairs import TYPES, check
from tests.views.queries import SCHEMA, TABLES
from worker.views.classes import classified
from worker.views.operators import Work
from worker.views.query import analyse, parse

Rows = Sequence[tuple[int | None, int | None]]

CONDITIONS = (
    "a.x IN (SELECT x FROM s.b)",
    "a.x NOT IN (SELECT x FROM s.b)",
    "a.x NOT IN (SELECT b.x FROM s.b AS b WHERE b.k = a.k)",
    "NOT (a.x IN (SELECT b.x FROM s.b AS b WHERE b.k = a.k AND b.x > 1))",
    "(a.x IN (SELECT x FROM s.b)) IS NULL",
    "a.x = ANY (SELECT x FROM s.b) OR a.x <> ALL (SELECT k FROM s.b)",
    "(a.k, a.x) IN (SELECT k, x FROM s.b)",
    "(a.x NOT IN (SELECT b.x FROM s.b AS b WHERE b.k = a.k)) IS NOT FALSE",
    "EXISTS (SELECT 1 FROM s.b AS b WHERE b.k = a.k AND b.x > a.x LIMIT 1)",
    "NOT EXISTS (SELECT * FROM s.b AS a2 WHERE a2.x = a.x)",
    "EXISTS (SELECT 1 FROM s.b)",
    "a.k = 2 OR NOT EXISTS (SELECT 1 FROM s.b WHERE x IS NULL)",
    "a.x > (SELECT count(*) FROM s.b AS b WHERE b.k = a.k)",
    "(SELECT sum(b.x) FROM s.b AS b WHERE b.k = a.k) IS NULL",
)
CHANGES: tuple[tuple[Rows, Rows], ...] = (
    ([], [(1, 1)]),  # the first row: NOT IN of nothing was true, also for NULL
    ([(1, 1), (2, 2)], [(1, 1), (2, None)]),  # a NULL comes: NOT IN is true for no row any more
    ([(1, None), (1, None), (2, 5)], [(1, None), (2, 5)]),  # of two NULLs one stays
    ([(1, None), (None, None), (2, 1)], [(None, 2), (2, 1)]),  # NULL is equal to no key
)


def table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "x": x} for k, x in rows], SCHEMA)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_come_and_go_as_a_condition_is_true_for_them(condition: str) -> None:
    """What is unknown is not true: a NULL on either side of NOT IN keeps rows out."""
    outer = table([(1, 1), (1, 1), (1, None), (2, 2), (2, None), (None, 1), (None, None), (3, 7)])
    moved = table([(1, 1), (1, None), (2, 2), (2, 3), (None, None), (None, None), (3, 7)])
    text = f"SELECT a.k AS p, a.x AS q FROM s.a AS a WHERE {condition}"
    for at, (before, after) in enumerate(CHANGES):
        old = {"s.a": outer, "s.b": table(before), "s.c": table([])}
        new = {**old, "s.a": moved if at % 2 else outer, "s.b": table(after)}
        assert check(text, old, new).work is Work.AFFECTED_KEYS


def test_values_of_subqueries_are_those_of_no_row_too() -> None:
    text = (
        "SELECT a.k, 1 + (SELECT count(b.x) FROM s.b AS b WHERE b.k = a.k) AS n,"
        " (SELECT coalesce(max(b.x), a.x) FROM s.b AS b WHERE b.k = a.k AND b.x < 9) AS m,"
        " a.x IN (SELECT x FROM s.b) AS i, EXISTS (SELECT 1 FROM s.b AS b WHERE b.x = a.x) AS e FROM s.a AS a"
    )
    outer = table([(1, 1), (1, 1), (2, None), (None, 4)])
    for before, after in CHANGES:
        old = {"s.a": outer, "s.b": table(before), "s.c": table([])}
        assert check(text, old, {**old, "s.b": table(after)}).work is Work.AFFECTED_KEYS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT k FROM s.a WHERE x > (SELECT max(x) FROM s.b HAVING count(*) > 1)", "more than FROM and WHERE"),
        ("SELECT k, (SELECT b.x FROM s.b AS b WHERE b.k = a.k) AS x FROM s.a AS a", "can have several rows"),
        ("SELECT k FROM s.a AS a WHERE EXISTS (SELECT 1 FROM s.b AS b WHERE b.x < a.x)", "without equal columns"),
        ("SELECT k FROM s.a WHERE x > ANY (SELECT x FROM s.b LIMIT 2)", "ANY of a subquery"),
        ("SELECT k FROM s.a a WHERE k > ALL (SELECT a.k FROM s.b a)", "ALL of a subquery"),
        ("SELECT k, sum(x) AS s FROM s.a GROUP BY k HAVING max(x) > ANY (SELECT x FROM s.b)", "ANY of a subquery"),
        ("SELECT k FROM s.a a, LATERAL (SELECT x AS y FROM s.b b WHERE b.k = a.k LIMIT 1 OFFSET 1) v", "with OFFSET"),
        ("SELECT k FROM s.a a, LATERAL (SELECT x AS y FROM s.b WHERE k = a.k ORDER BY a.x LIMIT 1) v", "such a LIMIT"),
        ("SELECT v.y FROM s.a a, LATERAL (SELECT x AS y FROM s.b WHERE k = a.k LIMIT 5 %) v", "such a LIMIT"),
        ("SELECT v.y FROM s.a a, LATERAL (SELECT x y FROM s.b WHERE k = a.k AND x < a.x LIMIT 1) v", "than equations"),
        ("SELECT v.y FROM s.a a, LATERAL (SELECT b.x + a.x AS y FROM s.b b WHERE b.k = a.k) v", "of both sides"),
        ("SELECT k FROM s.a WHERE (k, x) NOT IN (SELECT k, x FROM s.b)", "several columns"),
        ("SELECT k FROM s.a AS a WHERE x > 1 OR EXISTS (SELECT 1 FROM s.b AS b WHERE b.f = a.k)", "different types"),
        ("SELECT k FROM s.a AS a WHERE x IN (SELECT x FROM s.b AS b WHERE b.k = a.k LIMIT 1)", "with LIMIT"),
        ("SELECT k FROM s.a AS a WHERE EXISTS (SELECT max(x) FROM s.b AS b WHERE b.k = a.k)", "over all rows"),
    ],
)  # fmt: skip
def test_a_subquery_without_a_key_is_full_and_says_why(text: str, reason: str) -> None:
    [step] = classified(analyse(parse(text), dict.fromkeys(TABLES, TYPES)).operator)
    assert step.work is Work.FULL
    assert reason in step.reason
