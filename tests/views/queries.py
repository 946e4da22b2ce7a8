"""Random queries over three tables, in DuckDB's SQL, and random rows for them.

Sums of the floats here are exact in any order, so an oracle need not add them in the order of a view.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

SCHEMA = pa.schema(
    [("k", pa.int64()), ("g", pa.string()), ("x", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(6, 2))]
)
TABLES = ("s.a", "s.b", "s.c")
KINDS = {"k": "int", "g": "text", "x": "int", "f": "float", "d": "decimal"}
INTS = (None, 0, 1, 1, 2, 3)
TEXTS = (None, "", "u", "v", "v")
FLOATS = (None, 0.0, 0.25, -1.5, 8.0)
DECIMALS = tuple(None if text is None else Decimal(text) for text in (None, "0.00", "0.10", "0.20", "-3.33"))


@dataclass(frozen=True)
class Column:
    """A column of a relation, as an expression, with its kind."""

    text: str
    kind: str


def random_row(rng: random.Random) -> dict[str, object]:
    values = {"k": INTS, "g": TEXTS, "x": INTS, "f": FLOATS, "d": DECIMALS}
    return {name: rng.choice(of) for name, of in values.items()}


def random_rows(rng: random.Random, count: int) -> pa.Table:
    return pa.Table.from_pylist([random_row(rng) for _ in range(count)], SCHEMA)


class Queries:
    """A source of random queries."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._aliases = 0

    def query(self, depth: int = 2) -> str:
        """A query with columns c0, c1, …"""
        if self._rng.random() < 0.15:
            body = self.select(depth, None)[0].replace("\n", " ")
            return f"WITH w AS ({body}) SELECT c0, count(*) AS n FROM w GROUP BY c0"
        return self.unioned(depth)[0]

    def unioned(self, depth: int) -> tuple[str, list[str]]:
        text, kinds = self.select(depth, None)
        if self._rng.random() < 0.2 and "sum" not in kinds:
            word = self._rng.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
            text = f"{text} {word} {self.select(depth - 1, kinds)[0]}"
        return text, kinds

    def select(self, depth: int, kinds: Sequence[str] | None) -> tuple[str, list[str]]:
        """A SELECT with columns of these kinds."""
        rows, columns = self._from(depth)
        conditions = [self._condition(columns)] if self._rng.random() < 0.4 else []
        if self._rng.random() < 0.25:
            conditions.append(self._subquery_condition(columns, depth))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        mode = self._rng.choice(["plain", "plain", "distinct", "group", "group", "having"])
        if kinds is None and self._rng.random() < 0.12:
            return self._ranked(rows + where, columns)
        if kinds is None and self._rng.random() < 0.3:
            return self._totals(rows + where, columns)
        if kinds is None and self._rng.random() < 0.1:
            return self._overall(rows + where, columns)
        wanted = list(kinds or self._rng.choices(["int", "int", "text", "float"], k=self._rng.randint(1, 3)))
        if mode in ("group", "having"):
            return self._grouped(rows + where, columns, wanted, having=mode == "having")
        outputs = [f"{self._output(columns, kind)} AS c{at}" for at, kind in enumerate(wanted)]
        return f"SELECT {'DISTINCT ' if mode == 'distinct' else ''}{', '.join(outputs)} FROM {rows}{where}", wanted

    def _grouped(self, rows: str, columns: list[Column], wanted: list[str], *, having: bool) -> tuple[str, list[str]]:
        outputs, groups = [], []
        for at, kind in enumerate(wanted):
            if at == 0 or self._rng.random() < 0.4:
                key = self._expression(columns, kind)
                groups.append(key)
                outputs.append(f"{key} AS c{at}")
            else:
                outputs.append(f"{self._aggregate(columns, kind)} AS c{at}")
        least = self._rng.choice(["1", "1", "(SELECT min(x) FROM s.c)"])
        more = f" HAVING {self._aggregate(columns, 'int')} > {least}" if having else ""
        return f"SELECT {', '.join(outputs)} FROM {rows} GROUP BY {', '.join(groups)}{more}", wanted

    def _totals(self, rows: str, columns: list[Column]) -> tuple[str, list[str]]:
        """Groups whose rows tell most of what changed rows are added to."""
        key_kinds = self._rng.choice([["int"], ["text"], ["int", "text"]])
        keys = [self._expression(columns, kind) for kind in key_kinds]
        whole = self._rng.choice(["int", "decimal"])
        ends = self._rng.choice(["int", "text"])
        number, other = self._expression(columns, whole), self._expression(columns, ends)
        calls = {
            "count(*)": "int",
            f"count({number})": "int",
            f"sum({number})": "sum",
            f"avg({number})": "float",
            f"min({other})": ends,
            f"max({number})": whole,
        }
        chosen = [call for call in calls if self._rng.random() < 0.6] or ["count(*)"]
        outputs = [f"{text} AS c{at}" for at, text in enumerate([*keys, *chosen])]
        having = " HAVING count(*) > 1" if self._rng.random() < 0.15 else ""
        text = f"SELECT {', '.join(outputs)} FROM {rows} GROUP BY {', '.join(dict.fromkeys(keys))}{having}"
        return text, [*key_kinds, *(calls[call] for call in chosen)]

    def _overall(self, rows: str, columns: list[Column]) -> tuple[str, list[str]]:
        """One row over all rows."""
        number, word = (
            self._expression(columns, self._rng.choice(["int", "decimal"])),
            self._expression(columns, "text"),
        )
        calls = {
            "count(*)": "int",
            f"count({word})": "int",
            f"sum({number})": "sum",
            f"100 * sum({number}) / count(*)": "float",
            f"avg({number})": "float",
            f"min({word})": "text",
            f"max({number})": "sum",
        }
        chosen = [call for call in calls if self._rng.random() < 0.5] or ["count(*)"]
        having = self._rng.choice(["", "", " HAVING count(*) > 2"])
        outputs = ", ".join(f"{text} AS c{at}" for at, text in enumerate(chosen))
        return f"SELECT {outputs} FROM {rows}{having}", [calls[call] for call in chosen]

    def _aggregate(self, columns: list[Column], kind: str) -> str:
        argument = self._expression(columns, kind)
        if kind == "int":
            number = self._expression(columns, "int")
            return self._rng.choice(
                ["count(*)", f"count({argument})", f"count(DISTINCT {argument})", f"CAST(sum({number}) AS BIGINT)"]
            )
        if kind == "float":
            return f"{self._rng.choice(['sum', 'min', 'max', 'avg'])}({argument})"
        return f"{self._rng.choice(['min', 'max'])}({argument})"

    def _from(self, depth: int) -> tuple[str, list[Column]]:
        text, columns = self._relation(depth)
        for _ in range(self._rng.choice([0, 0, 1, 1, 2] if depth > 1 else [0, 0, 1])):
            kind = self._rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
            right, others = self._relation(depth - 1)
            left_key, right_key = self._expression(columns, "int"), self._expression(others, "int")
            more = ""
            if self._rng.random() < 0.3:
                more = f" AND {self._expression(columns, 'int')} <= {self._expression(others, 'int')}"
            text = f"{text} {kind} {right} ON {left_key} = {right_key}{more}"
            if not kind.startswith(("SEMI", "ANTI")):
                columns = [*columns, *others]
        return text, columns

    def _relation(self, depth: int) -> tuple[str, list[Column]]:
        self._aliases += 1
        alias = f"t{self._aliases}"
        if depth <= 0 or self._rng.random() < 0.7:
            return f"{self._rng.choice(TABLES)} AS {alias}", [Column(f"{alias}.{n}", k) for n, k in KINDS.items()]
        text, kinds = self.unioned(depth - 1)
        return f"({text}) AS {alias}", [Column(f"{alias}.c{at}", kind) for at, kind in enumerate(kinds)]

    def _expression(self, columns: list[Column], kind: str) -> str:
        fitting = [column.text for column in columns if column.kind == kind]
        if not fitting:
            fixed = {
                "int": "1",
                "text": "'z'",
                "float": "CAST(0.5 AS DOUBLE)",
                "decimal": "CAST(1.25 AS DECIMAL(6, 2))",
            }
            return fixed[kind]
        text = self._rng.choice(fitting)
        if self._rng.random() < 0.6:
            return text
        if kind == "int":
            return self._rng.choice(
                [f"coalesce({text}, 7)", f"({text} + 1)", f"CASE WHEN {text} > 1 THEN 5 ELSE {text} END"]
            )
        if kind == "text":
            return self._rng.choice([f"upper({text})", f"coalesce({text}, 'w')", f"({text} || 'q')"])
        if kind == "decimal":
            return self._rng.choice([text, text, f"({text} * 2)", f"coalesce({text}, 1)"])
        return self._rng.choice([f"({text} * 2)", f"coalesce({text}, CAST(0.5 AS DOUBLE))"])

    def _condition(self, columns: list[Column]) -> str:
        column = self._rng.choice(columns)
        if column.kind == "text":
            return self._rng.choice([f"{column.text} LIKE 'v%'", f"{column.text} IS NOT NULL", f"{column.text} <> 'u'"])
        return self._rng.choice([f"{column.text} > 0", f"{column.text} IS NULL", f"NOT ({column.text} >= 2)"])

    # -- windows

    def _ranked(self, rows: str, columns: list[Column]) -> tuple[str, list[str]]:
        """Windows whose order is one of all rows: what they give to equal rows is a bag, in any order of these."""
        plain = list(dict.fromkeys(column.text for column in columns if column.kind != "sum"))
        number, text = self._expression(columns, "int"), self._expression(columns, "text")
        keys = [number, text][: self._rng.choice([1, 1, 2])]
        order = ", ".join(self._rng.sample(plain, len(plain)))
        within = f"PARTITION BY {', '.join(keys)} ORDER BY {order}"
        call = self._rng.choice(
            [
                f"row_number() OVER ({within})",
                f"rank() OVER (PARTITION BY {keys[0]} ORDER BY {number} DESC)",
                f"dense_rank() OVER (PARTITION BY {', '.join(keys)} ORDER BY {text})",
                f"lag({number}) OVER ({within})",
                f"lead({number}, 2, 9) OVER ({within})",
                f"first_value({number}) OVER ({within})",
                f"last_value({number}) OVER ({within} ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)",
                f"count(*) OVER (PARTITION BY {keys[0]})",
                f"max({number}) OVER (PARTITION BY {keys[0]} ORDER BY {number})",
                f"CAST(sum({number}) OVER ({within} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS BIGINT)",
            ]
        )
        first = f"row_number() OVER ({within}) <= 2"
        more = self._rng.choice(["", "", f" QUALIFY {first}", f" QUALIFY {call} > 1"])
        return f"SELECT {keys[0]} AS c0, {text} AS c1, {call} AS c2 FROM {rows}{more}", ["int", "text", "int"]

    # -- subqueries

    def _output(self, columns: list[Column], kind: str) -> str:
        if self._rng.random() > 0.12 or kind == "text":
            return self._expression(columns, kind)
        inner, own, where = self._correlated(columns)
        value = self._aggregate(own, kind) if self._rng.random() < 0.8 else f"{self._aggregate(own, kind)} + 1"
        return f"(SELECT {value} FROM {inner} WHERE {where})"

    def _subquery_condition(self, columns: list[Column], depth: int) -> str:
        inner, own, where = self._correlated(columns)
        exists = f"EXISTS (SELECT 1 FROM {inner} WHERE {where})"
        kind = self._rng.choice(["int", "int", "text"])
        value, of = self._expression(columns, kind), self._expression(own, kind)
        plain = f" WHERE {self._condition(own)}" if self._rng.random() < 0.5 else ""
        is_in = f"{value} IN (SELECT {of} FROM {inner}{self._rng.choice([plain, f' WHERE {where}'])})"
        total = self._rng.choice(["avg(d)", "max(x)", "sum(x) - 3", "count(*) - 4"])
        compared = f"{self._expression(columns, 'int')} >= (SELECT {total} FROM {inner}{plain})"
        if self._rng.random() < 0.3:
            inner, own = self._relation(depth - 1)
            is_in = f"{value} IN (SELECT {self._expression(own, kind)} FROM {inner})"
        text = self._rng.choice([exists, is_in, is_in, compared])
        return self._rng.choice(
            [text, f"NOT {text}", f"NOT {text}", f"({text} OR {self._condition(columns)})", f"({text}) IS NOT TRUE"]
        )

    def _correlated(self, columns: list[Column]) -> tuple[str, list[Column], str]:
        """A relation, its columns, and a condition over them and the rows around it."""
        inner, own = self._relation(0)
        kind = self._rng.choice(["int", "int", "text"])
        outer = self._rng.choice([column for column in columns if column.kind == kind] or [Column("1", "int")])
        equal = f"{self._expression(own, outer.kind)} = {outer.text}"
        more = self._rng.choice(["", "", f" AND {self._condition(own)}"])
        return inner, own, f"{equal}{more}"
