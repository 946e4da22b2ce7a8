"""Groups that changed rows are added to: what goes to zero, to NULL, or is not told by the view's rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.views.pairs import Checked, check
from tests.views.queries import SCHEMA

TOTALS = "SELECT k, count(*) AS n, count(x) AS m, sum(x) AS s, avg(x) AS a FROM s.a GROUP BY k"
PRICES = "SELECT k, count(*) AS n, sum(d) AS s, avg(d) AS a, -avg(d) / 3 AS b FROM s.a GROUP BY k"


def rows(*values: tuple[object, ...]) -> pa.Table:
    """Rows with k, x and d."""
    names = ("k", "x", "d")
    return pa.Table.from_pylist([dict(zip(names, each, strict=False)) for each in values], SCHEMA)


def changed(text: str, before: pa.Table, after: pa.Table) -> Checked:
    nothing = {name: SCHEMA.empty_table() for name in ("s.b", "s.c")}
    done = check(text, {"s.a": before, **nothing}, {"s.a": after, **nothing})
    assert done.is_added
    return done


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([(1, 1), (2, 2)], [(2, 2)]),  # the last row of a group goes
        ([(None, 1), (1, 1)], [(1, 1)]),  # also that of the group NULL
        ([(1, 1)], [(1, 1), (None, 4), (None, None)]),  # a group comes
        ([(1, 5), (1, None)], [(1, None)]),  # the last value goes: its sum is NULL
        ([(1, None)], [(1, None), (1, 0)]),  # the first value comes: 0 is none of NULL
        ([(1, 5), (1, 5), (1, 5)], [(1, 5)]),  # two of three equal rows go
        ([(1, 5)], [(1, 5), (1, 5), (1, 5)]),
        ([(1, 5), (2, 5)], [(1, 6), (2, 4)]),
        ([(1, 5)], [(2, 5)]),  # a row gets another group
        ([], [(1, 5)]),
        ([(1, 5)], []),
    ],
)
def test_sums_and_counts_are_told_by_the_view(before: list[Any], after: list[Any]) -> None:
    done = changed(TOTALS, rows(*before), rows(*after))
    assert done.opened == 0


def test_averages_of_decimals_have_their_scale() -> None:
    before = rows((1, 0, Decimal("0.10")), (1, 0, Decimal("0.20")), (2, 0, Decimal("-3.33")))
    after = rows((1, 0, Decimal("0.10")), (1, 0, Decimal("0.20")), (1, 0, Decimal("0.05")), (2, 0, Decimal("7.77")))
    assert changed(PRICES, before, after).opened == 0


def test_a_group_whose_row_does_not_tell_enough_is_open() -> None:
    one, two, null = (1, 5), (1, 6), (1, None)
    bare = "SELECT k, sum(x) AS s FROM s.a GROUP BY k"
    assert changed(bare, rows(one), rows(one, two)).opened == 0
    assert changed(bare, rows(one, two), rows(one)).opened == 1  # of how many rows?
    counted = "SELECT k, count(*) AS n, sum(x) AS s FROM s.a GROUP BY k"
    assert changed(counted, rows(one, two), rows(one)).opened == 0  # no row had a NULL
    assert changed(counted, rows(one, two, null), rows(one, null)).opened == 1
    assert changed(counted, rows(one, null), rows(null)).opened == 1  # its sum is NULL now
    ends = "SELECT k, count(*) AS n, min(x) AS low, max(x) AS high FROM s.a GROUP BY k"
    assert changed(ends, rows(one, two, (1, 7)), rows(one, (1, 7))).opened == 0  # neither of both ends
    assert changed(ends, rows(one, two), rows(two)).opened == 1
    assert changed(ends, rows(one, two), rows((1, 6), (1, 7), (1, 8))).opened == 1  # two smaller values may be left
    assert changed(ends, rows(one, two), rows(two, two, (1, 4), (1, 9))).opened == 0  # a smaller one came
    assert changed(ends, rows(one, two), rows(one, (1, 3))).opened == 1
    both = "SELECT k, count(*) AS n, min(x) AS low, sum(d) AS s FROM s.a GROUP BY k"
    priced = [(1, 5, Decimal(price)) for price in (2, 3)]
    assert changed(both, rows(priced[0], two), rows(priced[1], two)).opened == 0  # an equal one came
    assert changed(ends, rows(one), rows()).opened == 0
    assert changed("SELECT DISTINCT k FROM s.a", rows(one), rows(one, (2, 2))).opened == 0
    assert changed("SELECT DISTINCT k FROM s.a", rows(one, two), rows(one)).opened == 1
    many = f"{counted} HAVING count(*) > 1"
    assert changed(many, rows(one, two), rows(one, two, two)).opened == 0
    assert changed(many, rows(one), rows(one, two)).opened == 1  # it was not in the view
    assert changed(many, rows(one, two), rows(two)).opened == 0


def test_a_float_that_equals_the_smallest_one_may_be_another() -> None:
    def floats(value: float, x: int) -> pa.Table:
        return pa.Table.from_pylist([{"k": 1, "f": value, "x": x}, {"k": 1, "f": 1.0, "x": 0}], SCHEMA)

    least = "SELECT k, count(*) AS n, min(f) AS low, sum(x) AS s FROM s.a GROUP BY k"
    assert changed(least, floats(0.0, 1), floats(-0.0, 2)).opened == 1
    assert changed(least, floats(0.0, 1), floats(-0.5, 2)).opened == 0


def test_casts_that_lose_digits_are_no_totals() -> None:
    nothing = {name: SCHEMA.empty_table() for name in ("s.b", "s.c")}
    before, after = rows((1, 1, Decimal("0.20"))), rows((1, 1, Decimal("0.20")), (1, 1, Decimal("0.20")))

    def total(text: str) -> bool:
        query = f"SELECT k, count(*) AS n, {text} AS s FROM s.a GROUP BY k"
        return check(query, {"s.a": before, **nothing}, {"s.a": after, **nothing}).is_added

    assert total("CAST(sum(x) AS BIGINT)")
    assert total("CAST(sum(d) AS DECIMAL(20, 4))")
    assert not total("CAST(sum(d) AS BIGINT)")
    assert not total("CAST(sum(d) AS DECIMAL(20, 1))")
    assert not total("sum(f)")
    assert not total("count(DISTINCT x)")
