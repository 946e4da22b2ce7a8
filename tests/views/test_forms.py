"""Forms of a query that are written out: constants in FROM, lists as rows, subqueries beside groups; and functions."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from tests.views.bags import bag
from tests.views.pairs import TYPES, check, mutated
from tests.views.queries import TABLES, random_rows
from worker.base.errors import InputError
from worker.views.classes import classified
from worker.views.delta import whole_text
from worker.views.engine import Engine, run_with, types_in
from worker.views.functions import NAMED_SCALARS
from worker.views.operators import Work
from worker.views.query import analyse, parse

BEYOND = "SELECT b.x AS y FROM s.b b WHERE b.k = a.k AND b.x > a.x"
FIRST = "SELECT b.x AS y, b.d FROM s.b b WHERE b.g = a.g"
SOME = "FILTER (WHERE k > 0)"
LINEAR, ADDED, KEYS = Work.LINEAR, Work.INVERTIBLE, Work.AFFECTED_KEYS


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("SELECT a.k, v.n FROM s.a a JOIN (VALUES (1, 'one'), (2, 'b'), (NULL, 'c')) v(k, n) ON a.k = v.k", LINEAR),
        ("SELECT v.k, a.x FROM (VALUES (1), (9)) v(k) LEFT JOIN s.a a ON a.k = v.k", KEYS),
        ("WITH p AS (SELECT 1 AS low, 'b' AS g) SELECT k, x FROM s.a a, p WHERE x >= low AND a.g <> p.g", LINEAR),
        ("SELECT g, count(*) AS n FROM s.a GROUP BY g UNION ALL SELECT 'none', 0", KEYS),
        ("SELECT k FROM s.a UNION SELECT 1 UNION SELECT NULL", KEYS),
        ("SELECT k FROM s.a EXCEPT SELECT 2", KEYS),
        ("SELECT i.n, count(a.k) AS c FROM generate_series(0, 3) i(n) LEFT JOIN s.a a ON a.k = i.n GROUP BY i.n", KEYS),
        ("SELECT a.k, i.n FROM s.a a, range(2) i(n)", LINEAR),
        ("SELECT k, unnest([x, k, NULL]) AS e, unnest([1]) AS o FROM s.a", LINEAR),
        ("SELECT e, count(*) AS n FROM (SELECT unnest(string_split(g, 'a')) AS e FROM s.a) GROUP BY e", ADDED),
        ("SELECT a.k, u.e FROM s.a a CROSS JOIN unnest([a.x, a.k]) AS u(e) WHERE u.e > 0", LINEAR),
        ("SELECT count(*) AS n FROM (SELECT 1 AS one) c, s.a a", ADDED),
        ("SELECT a.k, v.y, c.x FROM s.a a, LATERAL (SELECT a.x + 1 AS y) v, s.c c WHERE c.k = v.y", LINEAR),
        ("SELECT a.k, v.y FROM s.a a CROSS JOIN LATERAL (SELECT b.x FROM s.b b WHERE b.k = a.k) v(y)", LINEAR),
        (f"SELECT a.k, v.y FROM s.a a LEFT JOIN LATERAL ({BEYOND}) v ON TRUE", KEYS),
        (f"SELECT a.g, v.y FROM s.a a, LATERAL ({FIRST} ORDER BY b.k DESC, y LIMIT 2) v", KEYS),
        (f"SELECT a.k, v.y FROM s.a a LEFT JOIN LATERAL ({FIRST} AND d > 0 ORDER BY 1 LIMIT 1) v ON TRUE", KEYS),
        ("SELECT a.k, v.m, v.n FROM s.a a, LATERAL (SELECT max(x) AS m, count(*) AS n FROM s.b WHERE g = a.g) v", KEYS),
        ("SELECT k, x FROM s.a UNION ALL BY NAME SELECT x, g FROM s.b UNION ALL BY NAME SELECT f FROM s.c", LINEAR),
        ("SELECT k, g FROM s.a UNION BY NAME SELECT d, k FROM s.b", ADDED),
        ("(SELECT k, x FROM s.a UNION BY NAME SELECT x AS X, g FROM s.b) EXCEPT SELECT k, x, g FROM s.c", KEYS),
        ("FROM (SELECT k FROM s.a UNION ALL BY NAME (SELECT x FROM s.b UNION BY NAME SELECT g FROM s.c))", KEYS),
        ("SELECT * FROM s.a UNION ALL BY NAME SELECT k, 'b' AS z FROM s.b", LINEAR),
        ("SELECT k, x FROM s.a WHERE x > ALL (SELECT x FROM s.b) OR x < ANY (SELECT k FROM s.c)", ADDED),
        ("SELECT k, x FROM s.a a WHERE NOT a.x >= ALL (SELECT b.x FROM s.b b WHERE b.k = a.k)", KEYS),
        ("SELECT k, x <= ANY (SELECT b.x FROM s.b b WHERE b.k = a.k) AS e FROM s.a a", KEYS),
        (f"SELECT g, count(*) AS n, sum(x) {SOME} AS s, count(x) {SOME} AS c FROM s.a GROUP BY g", ADDED),
        (f"SELECT count(*) {SOME} AS m, sum(d) {SOME} AS s, min(x) {SOME} AS l FROM s.a", ADDED),
    ],
)  # fmt: skip
def test_written_out_forms_are_rows_of_their_own(text: str, work: Work) -> None:
    for seed in range(1, 4):
        rng = random.Random(seed)
        before = {name: random_rows(rng, seed * 2) for name in TABLES}
        assert check(text, before, {name: mutated(rng, rows) for name, rows in before.items()}).work is work


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, x IN (SELECT x FROM s.b) AS e, count(*) AS n FROM s.a GROUP BY k, x",
        "SELECT EXISTS (SELECT 1 FROM s.b b WHERE b.k = a.k) AS e, count(*) AS n, sum(x) AS s FROM s.a a GROUP BY 1",
        "SELECT g, sum(CASE WHEN k IN (SELECT x FROM s.b) THEN 1 ELSE 0 END) AS n FROM s.a GROUP BY g",
        "SELECT sum(CASE WHEN EXISTS (SELECT 1 FROM s.b b WHERE b.k = a.k) THEN x END) AS n FROM s.a a",
        "SELECT k, sum(x) AS s FROM s.a GROUP BY k HAVING k IN (SELECT x FROM s.b)",
        "SELECT k, sum(x) AS s FROM s.a GROUP BY k HAVING max(x) NOT IN (SELECT x FROM s.b) OR count(*) > 2",
        "SELECT k, sum(x) AS s FROM s.a a GROUP BY k HAVING NOT EXISTS (SELECT 1 FROM s.b b WHERE b.k = a.k)",
        "SELECT k, max(x) AS m FROM s.a a GROUP BY k HAVING max(x) > (SELECT count(*) FROM s.b b WHERE b.k = a.k)",
        "SELECT k, (SELECT max(b.x) FROM s.b b WHERE b.k = a.k) AS m, min(x) AS n FROM s.a a GROUP BY k",
        "SELECT k, g, sum(x) AS n FROM s.a GROUP BY CUBE (k, g) HAVING count(*) > (SELECT min(x) FROM s.b)",
    ],
)
def test_subqueries_stand_beside_groups(text: str) -> None:
    for seed in range(4):
        rng = random.Random(seed)
        before = {name: random_rows(rng, 2 + seed * 2) for name in TABLES}
        after = {name: mutated(rng, rows) if rng.random() < 0.7 else rows for name, rows in before.items()}
        assert check(text, before, after).work in (ADDED, KEYS)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, len(list(DISTINCT x ORDER BY x)) AS l, string_agg(g, '' ORDER BY g) AS s FROM s.a GROUP BY k",
        "SELECT g, arg_max(k, x) AS m, min_by(d, f) AS n, mode(x) AS o FROM s.a GROUP BY g",
        "SELECT g, bit_or(k) AS o, bit_xor(k) AS x, bit_and(k) AS a FROM s.a GROUP BY g",
        "SELECT k, corr(f, x) AS c, covar_pop(f, x) AS p, regr_slope(f, x) AS r, skewness(f) AS s FROM s.a GROUP BY k",
    ],
)
def test_what_depends_on_the_order_of_rows_has_one(text: str) -> None:
    operator = analyse(parse(text), dict.fromkeys(TABLES, TYPES)).operator
    assert max(step.work for step in classified(operator)) is KEYS
    for seed in range(4):
        rows = random_rows(random.Random(seed), 40)
        first, second = (run_with({"s.a@to": each}, whole_text(operator)) for each in (rows, rows[::-1]))
        assert set(map(repr, bag(first))) == set(map(repr, bag(second)))  # NaN is no equal of itself


def test_functions_by_name_are_those_that_duckdb_says_depend_on_their_arguments_alone() -> None:
    words = ", ".join(f"('{name}')" for name in sorted(NAMED_SCALARS))
    are_known = "function_type = 'macro' OR function_type = 'scalar' AND stability = 'CONSISTENT'"
    known = f"SELECT function_name FROM duckdb_functions() WHERE {are_known}"
    assert duckdb.sql(f"SELECT name FROM (VALUES {words}) n(name) WHERE name NOT IN ({known})").fetchall() == []


INDEXES = (
    "l[1]", "l[k]", "l[-1]", "l[k + 1]", "l[1:k]", "g[1]", "g[-1]", "g[k]", "m[1]", "m[k]", "s['x']", "n[1][2]",
    "string_split(g, 'b')[k]", "[7, 8, 9][k]", "list_transform(n, e -> e[k])",
)  # fmt: skip
INDEXED = pa.table(
    {
        "k": pa.array([1, 2, None]),
        "g": ["abc", "bab", ""],
        "l": [[1, 2], [3, 4, 5], None],
        "m": pa.array([[(1, 5)], [(2, 6), (0, 7)], []], pa.map_(pa.int64(), pa.int64())),
        "s": [{"x": 1}, {"x": None}, None],
        "n": [[[1, 2], [3]], [[4, 5, 6]], []],
    }
)


def test_indexes_mean_what_they_mean_in_duckdb() -> None:
    listed = ", ".join(f"{text} AS c{at}" for at, text in enumerate(INDEXES))
    with Engine() as engine:
        engine.add("rows", INDEXED)
        wanted = engine.run(f"SELECT {listed} FROM rows").to_pylist()
    types = types_in(INDEXED.schema)
    query = analyse(parse(f"SELECT {listed} FROM s.a"), {"s.a": types})
    stored = analyse(parse(query.canonical), {"s.a": types})
    assert stored.canonical == query.canonical
    for operator in (query.operator, stored.operator):
        assert run_with({"s.a@to": INDEXED}, whole_text(operator)).to_pylist() == wanted


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT z FROM (SELECT * FROM s.a UNION BY NAME SELECT k AS z FROM s.b)", "lists its columns"),
        ("SELECT k FROM s.a WHERE g COLLATE NOCASE = 'U'", "no COLLATE"),
        ("SELECT g, list(DISTINCT x ORDER BY k) AS l FROM s.a GROUP BY g", "ordered by what it collects"),
        ("SELECT arg_max(k, x, 2) AS m FROM s.a GROUP BY g", "arg_max"),
        ("SELECT k FROM s.a a, range(a.k) r(i)", "no table of the lake"),
        ("SELECT i FROM range(2) r(i)", "reads no table"),
        ("SELECT age(DATE '2026-01-01') AS a, k FROM s.a", "age"),
        ("SELECT k, (SELECT max(x) FROM s.b b WHERE b.k = a.x) AS m FROM s.a a GROUP BY k", "x is neither"),
    ],
)  # fmt: skip
def test_such_forms_are_refused_in_words(text: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        analyse(parse(text), dict.fromkeys(TABLES, TYPES))
