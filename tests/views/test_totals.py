"""Aggregates over all rows, and values for all rows: what one refresh stores tells the next one, but for what went."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from laketx import Lake, connect
from tests.views.pairs import TYPES, Checked, HeldSources, check
from tests.views.queries import SCHEMA, TABLES
from worker.views.operators import Operator, Work
from worker.views.query import analyse, parse
from worker.views.totals import are_stored, known_totals

ALL = (
    "SELECT count(*) AS n, count(x) AS m, sum(x) AS s, avg(x) AS a, sum(d) * 2 AS t,"
    " 100 * sum(d) / (1 + count(x)) AS r, sum(x) + sum(k) AS both FROM s.a"
)
ENDS = "SELECT min(x) AS least, max(x) AS most, max(g) AS word FROM s.a"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("totals")) as made:
        yield made


def table(values: list[Any]) -> pa.Table:
    """Rows with k, x, d and g."""
    names = ("k", "x", "d", "g")
    return pa.Table.from_pylist([dict(zip(names, each, strict=False)) for each in values], SCHEMA)


def changed(text: str, before: list[Any], after: list[Any], other: list[Any] | None = None) -> Checked:
    more = {"s.b": table(other or []), "s.c": SCHEMA.empty_table()}
    return check(text, {"s.a": table(before), **more}, {"s.a": table(after), **more})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [(1, 1, Decimal("0.10"))]),
        ([(1, 1, Decimal("0.10"))], []),  # the sums are NULL, the counts 0
        ([(1, None), (1, 5)], [(1, None)]),
        ([(1, None)], [(1, None), (1, 0, Decimal("0.00"))]),  # 0 is no NULL
        ([(1, 5), (1, 5), (1, 5)], [(1, 5)]),
        ([(1, 5, Decimal("-3.33"))], [(1, 5, Decimal("9.99")), (2, -5)]),
        ([(1, 5), (2, 6)], [(2, 6), (1, 5)]),
    ],
)
def test_sums_and_counts_are_told_by_those_before(before: list[Any], after: list[Any]) -> None:
    assert changed(ALL, before, after).summed == 0


def test_the_smallest_and_the_largest_are_looked_for_where_they_went() -> None:
    rows = [(1, 3, None, "m"), (1, 5, None, "p"), (1, 7, None, "z")]
    assert changed(ENDS, rows, [*rows, (2, 9, None, "zz"), (2, 1)]).summed == 0
    assert changed(ENDS, rows, [rows[0], rows[2]]).summed == 0  # one between them went
    assert changed(ENDS, rows, [(2, 3, None, "z"), rows[1], (9, 7)]).summed == 0  # equal values came
    assert changed(ENDS, rows, [*rows[1:], (2, 2)]).summed == 0  # a smaller one came
    assert changed(ENDS, rows, rows[1:]).summed == 1
    assert changed(ENDS, rows, []).summed == 1
    assert changed(ENDS, [], rows).summed == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, x FROM s.b WHERE x >= (SELECT avg(x) FROM s.a)",
        "SELECT k, x - (SELECT max(x) FROM s.a) AS left_over FROM s.b",
        "SELECT k, sum(x) AS s FROM s.b GROUP BY k HAVING sum(x) > (SELECT 0.1 * sum(x) FROM s.a)",
        "SELECT b.k, t.n FROM s.b AS b CROSS JOIN (SELECT count(*) AS n FROM s.a) AS t",
        "SELECT count(*) AS n FROM s.b WHERE x < (SELECT sum(x) FROM s.a WHERE x > (SELECT min(x) FROM s.a))",
        "SELECT count(*) AS n, k FROM s.b GROUP BY k UNION ALL SELECT count(x), NULL FROM s.a",
    ],
)
def test_a_value_for_all_rows_changes_or_stays(text: str) -> None:
    other = [(1, 2), (2, 4), (3, None), (None, 6), (2, 4)]
    before = [(1, 2), (2, 6), (3, 4)]
    for after in ([*before, (7, 4)], [(1, 3), (2, 5), (3, 4)], before[1:], [(9, 2), (9, 6), (9, 4)], []):
        assert changed(text, before, after, other).work is not Work.FULL


def test_refreshes_store_totals_and_a_view_without_any_is_computed_once(lake: Lake) -> None:
    orders = lake.create_table("orders", "id bigint, price decimal(10,2)", primary_key=["id"])
    orders.upsert([{"id": at, "price": at} for at in range(1, 11)])
    dear = lake.create_materialized_view("dear", "SELECT id FROM orders WHERE price >= (SELECT max(price) FROM orders)")
    share = lake.create_materialized_view(
        "share", "SELECT 100 * sum(price) / count(*) AS share, max(id) AS i FROM orders"
    )
    orders.upsert([{"id": 3, "price": 4}, {"id": 99, "price": 10}])
    for view, rows in ((dear, [{"id": 10}, {"id": 99}]), (share, [{"share": pytest.approx(600), "i": 99}])):
        done = view.refresh(incremental=True)
        assert (done.kind, done.reason) == ("incremental", "")
        assert sorted(view.to_arrow().to_pylist(), key=str) == rows
        assert view.verify().holds
    orders.delete("id = 99")
    assert [view.refresh(incremental=True).kind for view in (dear, share)] == ["incremental", "incremental"]
    orders.upsert([{"id": 50, "price": 11}])
    assert dear.refresh().kind == "full"
    assert dear.to_arrow().to_pylist() == [{"id": 50}]
    orders.upsert([{"id": 51, "price": 12}])
    assert [view.refresh(incremental=True).kind for view in (dear, share)] == ["incremental", "incremental"]
    assert dear.to_arrow().to_pylist() == [{"id": 51}]
    assert dear.verify().holds
    assert share.verify().holds
    assert "over all rows: the changed rows are added to the totals" in share.explain()
    assert '"@total_0@to"' in dear.explain()


def test_totals_that_are_too_long_to_store_are_computed_each_time(lake: Lake) -> None:
    words = lake.create_table("words", "id bigint, word string")
    words.append([{"id": 1, "word": "y" * 5_000}])
    longest = lake.create_materialized_view("longest", "SELECT max(word) AS word, count(*) AS n FROM words")
    words.append([{"id": 2, "word": "z"}])
    assert longest.refresh().reason == "no totals over all rows are stored"
    assert longest.to_arrow().to_pylist() == [{"word": "z", "n": 2}]
    words.append([{"id": 3, "word": "a"}])
    assert longest.refresh(incremental=True).kind == "incremental"
    assert longest.verify().holds


def test_totals_of_other_aggregates_are_not_taken() -> None:
    def query(column: str) -> Operator:
        return analyse(parse(f"SELECT sum({column}) AS s FROM s.a"), dict.fromkeys(TABLES, TYPES)).operator

    rows = table([(1, 10), (2, 20)])
    held = HeldSources([], {f"s.a@{side}": rows.select(["k", "x"]) for side in ("to", "none")})
    of_x = known_totals(query("x"), held, None).stored
    assert of_x is not None
    assert are_stored(query("x"), of_x)
    assert not are_stored(query("k"), of_x)
    assert known_totals(query("k"), held, of_x).relations["@total_0@to"].to_pydict().popitem()[1] == [3]
