"""Queries of views: what is refused, how operators are classified, what plans read, which names there can be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from worker.base.errors import InputError
from worker.views.classes import classified
from worker.views.delta import CHANGES, FROM, TO, delta_text, relations_of, whole_text
from worker.views.engine import run_with
from worker.views.operators import Work
from worker.views.query import Query, analyse, parse

SCHEMAS = {
    "shop.orders": {"id": "BIGINT", "day": "DATE", "amount": "DECIMAL(10,2)", "buyer": "BIGINT", "weight": "DOUBLE"},
    "shop.buyers": {"id": "BIGINT", "name": "VARCHAR"},
}


def query(text: str) -> Query:
    return analyse(parse(text), SCHEMAS)


def works(text: str) -> list[Work]:
    return [step.work for step in classified(query(text).operator)]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT id, random() AS r FROM shop.orders", "rand"),
        ("SELECT id FROM shop.orders WHERE day < now()", "now"),
        ("SELECT id FROM shop.orders WHERE day < current_date", "current_date"),
        ("SELECT id, current_user AS u FROM shop.orders", "current_user"),
        ("SELECT id FROM shop.orders WHERE day < DATE 'today'", "today"),
        ("SELECT any_value(id) AS i FROM shop.orders GROUP BY day", "any_value"),
        ("SELECT list(id) AS i FROM shop.orders GROUP BY day", "array_agg"),
        ("SELECT array_agg(id ORDER BY amount) AS i FROM shop.orders GROUP BY day", "ordered by what it collects"),
        ("SELECT nextval('s') AS n FROM shop.orders", "nextval"),
        ("SELECT DISTINCT ON (day) id FROM shop.orders", "DISTINCT ON"),
        ("SELECT id FROM shop.orders TABLESAMPLE 10%", "tablesample"),
        ("SELECT x FROM read_csv('x.csv') AS t(x)", "no table of the lake"),
        ("SELECT id FROM other.shop.orders", "no table of the lake"),
        ('SELECT id FROM shop."orders@etl"', "on a branch"),
        ("SELECT o.id, b.id FROM shop.orders o JOIN shop.buyers b ON o.buyer = b.id", "two columns"),
        ("SELECT count(*) FROM shop.orders GROUP BY day", "has no name"),
        ("SELECT id AS _id FROM shop.orders", "can't be named _id"),
        ("SELECT nothing FROM shop.orders", "can't be resolved"),
        ("SELECT id FROM shop.orders GROUP BY day", "neither grouped nor aggregated"),
        ("SELECT day FROM shop.orders UNION ALL SELECT id, name FROM shop.buyers", "different numbers of columns"),
        ("SELECT 1 AS one", "reads no table"),
        ("DELETE FROM shop.orders", "one SELECT"),
        ("SELECT id FROM shop.orders; SELECT id FROM shop.orders", "one SELECT"),
        ("SELECT FROM WHERE", "parsed"),
        ("SELECT id FROM only.orders", 'in quotes: "only"'),
        ("SELECT ? AS x FROM shop.orders", "placeholder"),
        ("WITH RECURSIVE r AS (SELECT id FROM shop.orders UNION ALL SELECT id FROM r) SELECT id FROM r", "recursive"),
    ],
)  # fmt: skip
def test_a_query_that_no_view_can_have_is_refused(text: str, word: str) -> None:
    with pytest.raises(InputError) as refused:
        query(text)
    assert refused.value.reason == "VIEW_QUERY_INVALID"
    assert word in str(refused.value)


@pytest.mark.parametrize("word", ["only", "select", "values", "qualify", "order", "lateral", "rows", "lake", "a b"])
def test_a_reserved_word_in_quotes_is_a_name_like_others(word: str) -> None:
    text = f"""SELECT "{word}"."{word}" AS "{word}", count(*) AS n FROM "{word}"."{word}"
        WHERE EXISTS (SELECT 1 FROM "{word}"."{word}" AS i WHERE i."{word}" = "{word}"."{word}") GROUP BY 1"""
    schemas = {f"{word}.{word}": {word: "BIGINT"}}
    analysed = analyse(parse(text), schemas)
    assert analysed.uses == {f"{word}.{word}": (word,)}
    assert analyse(parse(analysed.canonical), schemas) == analysed
    rows = run_with({f"{word}.{word}@to": pa.table({word: [1, 1, None]})}, whole_text(analysed.operator))
    assert rows.to_pylist() == [{word: 1, "n": 2}]


def test_operators_have_their_classes() -> None:
    linear, adding, keys, full = Work.LINEAR, Work.INVERTIBLE, Work.AFFECTED_KEYS, Work.FULL
    assert works("SELECT id, amount * 2 AS a FROM shop.orders WHERE amount > 0") == [linear, linear, linear]
    joined = "FROM shop.orders o {} shop.buyers b ON o.buyer = b.id"
    assert works(f"SELECT o.id, b.name {joined.format('JOIN')}")[-1] is linear
    assert works(f"SELECT o.id, b.name {joined.format('LEFT JOIN')}")[-1] is keys
    assert works(f"SELECT o.id {joined.format('ANTI JOIN')}")[-1] is keys
    assert max(works("SELECT day, max(amount) AS m FROM shop.orders GROUP BY day HAVING count(*) > 1")) is keys
    assert max(works("SELECT day, count(*) AS n, sum(amount) AS s FROM shop.orders GROUP BY day")) is adding
    assert max(works("SELECT day, count(*) AS n, avg(amount) AS s FROM shop.orders GROUP BY day")) is keys
    assert max(works("SELECT day + 1 AS d, count(*) AS n FROM shop.orders GROUP BY day")) is keys
    assert max(works("SELECT day, sum(weight) AS s FROM shop.orders GROUP BY day")) is keys
    assert max(works("SELECT day, count(DISTINCT buyer) AS s FROM shop.orders GROUP BY day")) is keys
    assert max(works("SELECT DISTINCT day FROM shop.orders")) is adding
    assert max(works("SELECT id FROM shop.orders UNION ALL SELECT id FROM shop.buyers")) is linear
    assert max(works("SELECT id FROM shop.orders UNION SELECT id FROM shop.buyers")) is adding
    assert max(works("SELECT count(*) AS n, sum(amount) AS s FROM shop.orders")) is adding
    assert max(works("SELECT count(*) AS n, sum(weight) AS s FROM shop.orders")) is full
    assert max(works("SELECT count(DISTINCT buyer) AS n FROM shop.orders")) is full
    assert max(works("SELECT id FROM shop.orders WHERE amount > (SELECT avg(amount) FROM shop.orders)")) is adding
    assert max(works("SELECT id FROM shop.orders WHERE buyer IN (SELECT id FROM shop.buyers)")) is keys
    assert works("SELECT id FROM shop.orders ORDER BY amount LIMIT 3") == [full]
    assert max(works("SELECT id FROM shop.orders EXCEPT SELECT id FROM shop.buyers")) is keys
    assert max(works("SELECT id FROM shop.orders EXCEPT ALL SELECT id FROM shop.buyers")) is keys
    assert max(works("SELECT day, grouping(day) AS g, count(*) AS n FROM shop.orders GROUP BY CUBE (day)")) is keys
    assert works("SELECT o.id, b.name FROM shop.orders o LEFT JOIN shop.buyers b ON o.buyer < b.id") == [full]


def test_classes_are_explained_in_the_words_of_the_query() -> None:
    steps = classified(
        query("SELECT d.day, d.n + 1 AS m FROM (SELECT day, count(*) AS n FROM shop.orders GROUP BY day) d").operator
    )
    assert [step.operator for step in steps] == ["shop.orders (day)", "GROUP BY orders.day", "compute COUNT(*) + 1"]


def test_only_used_columns_are_read() -> None:
    assert query("SELECT day FROM shop.orders WHERE amount > 0").uses == {"shop.orders": ("day", "amount")}
    assert query("SELECT count(*) AS n FROM shop.buyers").uses == {"shop.buyers": ("id",)}
    star = query("SELECT * FROM shop.buyers")
    assert star.columns == ("id", "name")


def test_the_canonical_form_means_the_same_and_stays_the_same() -> None:
    text = "WITH d AS (SELECT DAY, sum(weight) w FROM Shop.Orders GROUP BY ALL) SELECT * FROM d WHERE w > 1"
    canonical = query(text).canonical
    assert query(canonical) == query(text)
    assert '"shop"."orders"' in canonical
    assert "*" not in canonical


def test_sums_of_floats_have_an_order_and_other_sums_have_none() -> None:
    def plan(argument: str) -> str:
        summed = query(f"SELECT day, sum({argument}) AS s FROM shop.orders GROUP BY day").operator
        built = delta_text(summed, ["shop.orders"])
        assert built is not None
        return built

    assert 'SUM("orders.weight" ORDER BY "orders.weight")' in plan("weight")
    assert "ORDER BY" not in plan("amount") + plan("id")


def test_a_limit_keeps_definite_rows() -> None:
    text = query("SELECT id, day FROM shop.orders ORDER BY day DESC LIMIT 3").canonical
    assert "LIMIT 3" in text
    ordered = query("SELECT id, day FROM shop.orders ORDER BY day DESC LIMIT 3").operator
    assert getattr(ordered, "text", "").endswith('ORDER BY "day" DESC, "id", "day" LIMIT 3')


def test_a_plan_reads_what_the_changes_need_and_no_more() -> None:
    joined = query("SELECT o.id, b.name FROM shop.orders o JOIN shop.buyers b ON o.buyer = b.id").operator
    names = ("shop.orders", "shop.buyers")
    one_side = delta_text(joined, ["shop.orders"])
    assert one_side is not None
    assert relations_of(one_side, names) == [("shop.buyers", TO), ("shop.orders", CHANGES)]
    both = delta_text(joined, names)
    assert both is not None
    assert relations_of(both, names) == [
        ("shop.buyers", TO), ("shop.buyers", CHANGES), ("shop.orders", FROM), ("shop.orders", CHANGES),
    ]  # fmt: skip
    assert delta_text(joined, []) is None
