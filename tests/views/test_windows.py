"""Window functions: definite for equal rows, computed again for partitions that changed, or full with the reason."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.views.pairs import TYPES, check
from tests.views.queries import SCHEMA, TABLES
from worker.base.errors import InputError
from worker.views.classes import Classified, classified
from worker.views.delta import delta_plan, relations_of, whole_text
from worker.views.engine import run_with
from worker.views.operators import Work
from worker.views.query import Query, analyse, parse

Rows = Sequence[tuple[int | None, int | None]]


def table(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "x": x} for k, x in rows], SCHEMA)


def query(text: str) -> Query:
    return analyse(parse(text), dict.fromkeys(TABLES, TYPES))


def steps(text: str) -> list[Classified]:
    return classified(query(text).operator)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x) AS n FROM s.a",
        "SELECT k, x FROM s.a QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC) <= 1",
        "SELECT p FROM (SELECT k AS p, lag(x) OVER w AS n FROM s.a WINDOW w AS (PARTITION BY k ORDER BY x)) WHERE n=1",
        "SELECT sum(x) OVER (PARTITION BY k ORDER BY x ROWS 1 PRECEDING) s, rank() OVER (PARTITION BY x) r FROM s.a",
        "SELECT k, count(*) AS n, max(count(*)) OVER (PARTITION BY k % 2) AS m FROM s.a GROUP BY k",
    ],
)
def test_a_row_that_leaves_a_partition_changes_the_old_and_the_new_one(text: str) -> None:
    nothing = {name: SCHEMA.empty_table() for name in ("s.b", "s.c")}
    before = table([(1, 1), (1, 2), (1, 2), (2, 5), (2, None), (None, 1), (None, 3), (4, 4)])
    for after in ([(1, 1), (2, 2), (1, 2), (2, 5), (None, 1), (4, 4)], [(None, 1), (None, 0), (4, 4), (4, 4)]):
        assert check(text, {"s.a": before, **nothing}, {"s.a": table(after), **nothing}).work is Work.AFFECTED_KEYS


def test_equal_rows_come_in_the_order_of_all_columns() -> None:
    text = whole_text(
        query("SELECT x, row_number() OVER (PARTITION BY k ORDER BY g) AS n FROM s.a WHERE f > 0").operator
    )
    assert 'ORDER BY "a.g", "a.k", "a.g", "a.x", "a.f") AS' in text
    plain = whole_text(query("SELECT rank() OVER (PARTITION BY k ORDER BY g) AS n FROM s.a").operator)
    assert 'OVER (PARTITION BY "a.k" ORDER BY "a.g") AS' in plain
    rows = table([(1, 3), (1, 1), (1, 2)])
    same = (
        "SELECT x, row_number() OVER (PARTITION BY k ORDER BY g) AS n, row_number() OVER (PARTITION BY g) AS m FROM s.a"
    )
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        answer = run_with({"s.a@to": rows.take(pa.array(order))}, whole_text(query(same).operator)).to_pylist()
        assert sorted(tuple(row.values()) for row in answer) == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]


def test_two_windows_number_equal_rows_alike() -> None:
    """Which of two equal rows is the first under one window must not differ from run to run under the other one."""
    text = "SELECT k, row_number() OVER (PARTITION BY k) AS n, row_number() OVER (PARTITION BY x) AS m FROM s.a"
    operator = query(text).operator
    rows = table([(1, 1), (1, 1), (1, 1)])
    answer = run_with({"s.a@to": rows}, whole_text(operator)).to_pylist()
    assert sorted((row["n"], row["m"]) for row in answer) == [(1, 1), (2, 2), (3, 3)]
    assert 'ORDER BY "a.k", "a.x", ".1.w0") AS ".1.w1"' in whole_text(operator)


def test_a_plan_reads_the_partitions_that_changed() -> None:
    plan = delta_plan(query("SELECT x, lag(x) OVER (PARTITION BY k ORDER BY x) AS n FROM s.a").operator, ["s.a"])
    assert plan is not None
    assert {place: restriction.column for place, restriction in plan.restrictions.items()} == {
        ("s.a", "from"): "k",
        ("s.a", "to"): "k",
    }
    assert relations_of(plan.text, ["s.a"]) == [("s.a", "from"), ("s.a", "to"), ("s.a", "changes")]


def test_a_window_over_all_rows_is_full_and_says_why() -> None:
    reasons = {step.reason for step in steps("SELECT x, sum(x) OVER () AS s FROM s.a") if step.work is Work.FULL}
    assert reasons == {"a window over all rows has no key to restrict by"}
    ranked = steps("SELECT k, rank() OVER (PARTITION BY k ORDER BY x) AS n FROM s.a LIMIT 3")
    assert [step.reason for step in ranked] == ["LIMIT has no key to restrict by"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT sum(f) OVER (PARTITION BY k) AS s FROM s.a", "cast the argument to a decimal"),
        ("SELECT avg(f) OVER (PARTITION BY k) AS s FROM s.a", "cast the argument to a decimal"),
        ("SELECT last_value(x) OVER (PARTITION BY k ORDER BY g) AS l FROM s.a", "ROWS BETWEEN"),
        ("SELECT nth_value(x, 2) OVER (PARTITION BY k ORDER BY g) AS l FROM s.a", "ROWS BETWEEN"),
        ("SELECT sum(x) OVER (ORDER BY k ROWS 1 PRECEDING EXCLUDE TIES) AS l FROM s.a", "EXCLUDE"),
        ("SELECT list(x) OVER (PARTITION BY k) AS l FROM s.a", "array_agg"),
        ("SELECT k, row_number() OVER (PARTITION BY k) AS n FROM s.a LIMIT 3", "put it into a view of its own"),
    ],
)
def test_a_window_that_is_not_definite_is_refused(text: str, word: str) -> None:
    with pytest.raises(InputError, match="VIEW_QUERY_INVALID") as refused:
        query(text)
    assert word in str(refused.value)


def test_a_named_window_means_what_it_stands_for() -> None:
    named = "SELECT lag(x) OVER w AS l, rank() OVER (w ORDER BY g) AS r FROM s.a WINDOW w AS (PARTITION BY k)"
    plain = "SELECT lag(x) OVER (PARTITION BY k) AS l, rank() OVER (PARTITION BY k ORDER BY g) AS r FROM s.a"
    assert query(named) == query(plain)
    assert query(query(named).canonical) == query(named)
