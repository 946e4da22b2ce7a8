"""Conditions as text: what they mean, what they refuse and where."""

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaservice.client.conditions import NESTED_MAX, ConditionError, parse_condition
from metaservice.core.table.predicates import (
    COMPARISONS,
    AllOf,
    AnyOf,
    Compare,
    InList,
    IsNull,
    Literal,
    Not,
    Predicate,
    SqlValue,
    StartsWith,
    truth,
)
from metaservice.core.table.pruning import show
from metaservice.rpc.convert.wire import _Predicates
from protos.laketx.v1 import catalog_pb2

TYPES = {
    "id": "bigint",
    "small": "tinyint",
    "note": "string",
    "price": "decimal(10,2)",
    "ratio": "double",
    "raw": "binary",
    "done": "boolean",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "tags": "array<string>",
    "order": "int",
    "date": "date",
}
COLUMNS = [catalog_pb2.Column(name=name, type=kind) for name, kind in TYPES.items()]
DAY = (date(2026, 11, 21) - date(1970, 1, 1)).days
AT = DAY * 86_400_000_000 + (15 * 3_600 + 4 * 60 + 5) * 1_000_000


def parsed(text: str) -> Predicate:
    """As the service understands it."""
    return _Predicates(TYPES).convert(parse_condition(text, COLUMNS))


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("id = 5", Compare("id", "=", 5)),
        ("ID >= -5", Compare("id", ">=", -5)),
        ("id != 1e3", Compare("id", "<>", 1000)),
        ("5 < id", Compare("id", ">", 5)),
        ("price <= 12.50", Compare("price", "<=", Decimal("12.50"))),
        ("ratio > .5", Compare("ratio", ">", 0.5)),
        ("note = 'it''s'", Compare("note", "=", "it's")),
        ("raw = X'00Ff'", Compare("raw", "=", b"\x00\xff")),
        ("done = true", Compare("done", "=", True)),
        ("FALSE <> done", Compare("done", "<>", False)),
        ("done", Compare("done", "=", True)),
        ("NOT done AND (`done` OR id = 1)", parsed("NOT done = TRUE AND (done = TRUE OR id = 1)")),
        ("day = '2026-11-21'", Compare("day", "=", DAY)),
        ("DATE '2026-11-21' > date", Compare("date", "<", DAY)),
        ("day = DATE '2026-11-21'", Compare("day", "=", DAY)),
        ("at = '2026-11-21 15:04:05Z'", Compare("at", "=", AT)),
        ("at = timestamp '2026-11-21T16:04:05+01:00'", Compare("at", "=", AT)),
        ("local < '2026-11-21 15:04:05'", Compare("local", "<", AT)),
        ("tags IS NOT NULL", Not(IsNull("tags"))),
        ("id in (1, NULL)", InList("id", (1, None))),
        ("id NOT IN (1)", Not(InList("id", (1,)))),
        ("note LIKE 'late%'", StartsWith("note", "late")),
        ("note not like 'late'", Not(Compare("note", "=", "late"))),
        ("note STARTS WITH '50%'", StartsWith("note", "50%")),
        ("id between 1 and 2 and done = TRUE", AllOf((parsed("id BETWEEN 1 AND 2"), Compare("done", "=", True)))),
        ("`order` = 1", Compare("order", "=", 1)),
        ("TRUE", Literal(truth=True)),
        ("NOT (FALSE)", Not(Literal(truth=False))),
        (
            "id = 1 OR id = 2 AND NOT id = 3",
            AnyOf((Compare("id", "=", 1), AllOf((Compare("id", "=", 2), Not(Compare("id", "=", 3)))))),
        ),
        ("(id = 1 OR id = 2)\n AND id = 3", AllOf((parsed("id = 1 OR id = 2"), Compare("id", "=", 3)))),
    ],
)
def test_what_a_condition_means(text: str, means: Predicate) -> None:
    assert parsed(text) == means


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("", "expected a column, not the end", ""),
        ("id", "expected a comparison, IN, BETWEEN, LIKE or IS after `id`, not the end", ""),
        ("id = ", "expected a value, not the end", ""),
        ("id = 1 id = 2", "expected AND, OR or the end, not `id`", "id = 2"),
        ("id = 1 AND", "expected a column, not the end", ""),
        ("nte = 'x'", "there is no column `nte`; did you mean `note`?", "nte"),
        ("id = 1 AND zzz IS NULL", "there is no column `zzz`", "zzz"),
        ("id = 'five'", "`'five'` is no bigint, which `id` is: write a number", "'five'"),
        ("id = 1.5", "`1.5` is no bigint, which `id` is: it is not whole", "1.5"),
        ("small = 128", "`128` is no tinyint, which `small` is: it is out of range", "128"),
        ("id = 1e999999999", "`1e999999999` is no bigint, which `id` is: it is out of range", "1e9"),
        ("price = 1e999999999", "`1e999999999` is no decimal(10,2), which `price` is: it is out of range", "1e9"),
        ("ratio < 1e999", "`1e999` is no double, which `ratio` is: it is too large", "1e999"),
        ("note = 5", "`5` is no string, which `note` is: write it in 'quotes'", "5"),
        ("done = 'yes'", "`'yes'` is no boolean, which `done` is: write TRUE or FALSE", "'yes'"),
        ("day = '21.11.2026'", "`'21.11.2026'` is no date, which `day` is", "'21.11"),
        ("id IN (1, '2')", "`'2'` is no bigint, which `id` is: write a number", "'2'"),
        ("id IN ()", "expected a value, not `)`", ")"),
        ("id IN (1", "expected , or ), not the end", ""),
        ("local = '2026-11-21 15:04:05Z'", "is: it takes no time zone", "'2026"),
        ("at = '2026-11-21 15:04'", "is: it says no time zone; 2026-11-21 15:04Z is UTC", "'2026"),
        ("tags = 'a'", "a nested type is only asked whether it IS NULL", "'a'"),
        ("id = NULL", "nothing compares with NULL: write `id IS NULL`", "NULL"),
        ("note LIKE '%late'", "LIKE takes a beginning and one % at its end, such as 'late%'", "'%late'"),
        ("id LIKE '1%'", "only text begins with something; `id` is bigint", "'1%'"),
        ("id IS 5", "expected NULL, not `5`", "5"),
        ("note = 'open", "this quote is not closed", "'open"),
        ("id = 1 ; drop", "`;` means nothing here", "; drop"),
        ("id == 1", "expected a value, not `=`", "= 1"),
        ("(id = 1", "expected AND, OR or ), not the end", ""),
        ("5 AND id = 1", "expected a comparison, not `AND`", "AND"),
        ("order by id", "expected a comparison, IN, BETWEEN, LIKE or IS after `order`, not `by`", "by"),
        ("(" * 5_000, f"nested deeper than {NESTED_MAX}", "(" * (5_000 - NESTED_MAX)),
    ],
)
def test_a_refusal_points_at_the_place(text: str, message: str, at: str) -> None:
    with pytest.raises(ConditionError) as raised:
        parse_condition(text, COLUMNS)
    assert message in raised.value.message
    assert text[raised.value.position :].startswith(at)
    assert bool(at) == (raised.value.position < len(text))
    line, mark = raised.value.pointed().split("\n")
    assert line[len(mark) - 1 :].startswith(at)


VALUES: dict[str, st.SearchStrategy[SqlValue]] = {
    "id": st.integers(-(1 << 63), (1 << 63) - 1),
    "note": st.text("ab'%_\\\n", max_size=4),
    "price": st.decimals(-1000, 1000, places=2),
    "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "raw": st.binary(max_size=4),
    "done": st.booleans(),
}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(sorted(VALUES)))
    if draw(st.booleans()):
        return Compare(name, draw(st.sampled_from(sorted(COMPARISONS))), draw(VALUES[name]))
    if draw(st.booleans()):
        return InList(name, tuple(draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=3))))
    others: list[Predicate] = [IsNull(name), StartsWith("note", draw(st.text("ab'", max_size=2))), Literal(truth=True)]
    return draw(st.sampled_from(others))


PREDICATES = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=8,
)


@given(PREDICATES, ROWS)
def test_what_is_shown_is_read_back(predicate: Predicate, row: dict[str, SqlValue]) -> None:
    assert truth(parsed(show(predicate)), row) == truth(predicate, row)


@given(st.text("id note='5%()<>,`x ANDORIS.\n", max_size=30) | st.text(max_size=20))
def test_any_text_is_read_or_refused_at_a_place(text: str) -> None:
    try:
        parse_condition(text, COLUMNS)
    except ConditionError as error:
        assert 0 <= error.position <= len(text)  # noqa: PT017 - most texts are refused, some are read
        assert error.pointed()  # noqa: PT017
