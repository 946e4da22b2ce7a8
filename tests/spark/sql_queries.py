"""Random queries over some tables; their answers are multisets, or lists where every column orders them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.spark.sql_values import REAL, WHOLE, Column, Field, Words, family

Source = tuple[str, Sequence[Column]]  # what stands in FROM, and its columns
JOINS: Final = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


class Queries:
    def __init__(self, words: Words) -> None:
        self.words = words
        self.chance = words.chance

    def query(self, sources: Sequence[Source]) -> tuple[str, bool]:
        """And whether it is ordered."""
        forms = (self._plain, self._grouped, self._joined, self._windowed, self._combined, self._nested)
        return self.chance.choices(forms, weights=(5, 4, 5, 2, 2, 3))[0](sources)

    def ids(self, sources: Sequence[Source]) -> str:
        """A query for ids."""
        text, fields = self._source(sources, "u")
        return f"SELECT {_id(fields)} FROM {text} WHERE {self.words.condition(fields, 1)}"

    def _source(self, sources: Sequence[Source], alias: str) -> tuple[str, list[Field]]:
        text, columns = self.chance.choice(sources)
        return f"{text} AS {alias}", [Field(f"{alias}.{one.sql}", one.type) for one in columns]

    def _some(self, fields: Sequence[Field], least: int = 1) -> list[Field]:
        return self.chance.sample(fields, self.chance.randrange(min(least, len(fields)), len(fields) + 1))

    def _plain(self, sources: Sequence[Source]) -> tuple[str, bool]:
        text, fields = self._source(sources, "x")
        chosen = [one.sql for one in self._some(fields)]
        sql = f"SELECT {', '.join(chosen)} FROM {text} WHERE {self.words.condition(fields)}"
        if self.chance.random() < 0.4:
            order = [
                f"{one} {self.chance.choice(['ASC', 'DESC'])} NULLS {self.chance.choice(['FIRST', 'LAST'])}"
                for one in self.chance.sample(chosen, len(chosen))
            ]
            limit = f" LIMIT {self.chance.randrange(8)}" if self.chance.random() < 0.7 else ""
            return f"{sql} ORDER BY {', '.join(order)}{limit}", True
        return (sql.replace("SELECT", "SELECT DISTINCT", 1) if self.chance.random() < 0.2 else sql), False

    def _sums(self, fields: Sequence[Field]) -> list[str]:
        """Floats are never added up: their sum depends on the order."""
        found = ["count(*)"]
        for one in self.chance.sample(fields, min(3, len(fields))):
            found.append(f"{self.chance.choice(['min', 'max', 'count', 'count'])}({one.sql})")
            if one.type in WHOLE:
                found.append(f"sum({self.words.whole(one.sql)})")
            elif one.type == "decimal(10,2)":
                found.append(f"sum({one.sql})")
            elif one.type not in REAL:
                found.append(f"count(DISTINCT {one.sql})")
        return found

    def _grouped(self, sources: Sequence[Source]) -> tuple[str, bool]:
        text, fields = self._source(sources, "x")
        groups = [one.sql for one in self.chance.sample(fields, self.chance.randrange(min(3, len(fields))))]
        where = f" WHERE {self.words.condition(fields, 1)}" if self.chance.random() < 0.6 else ""
        by = f" GROUP BY {', '.join(groups)}" if groups else ""
        having = f" HAVING count(*) > {self.chance.randrange(3)}" if groups and self.chance.random() < 0.3 else ""
        return f"SELECT {', '.join([*groups, *self._sums(fields)])} FROM {text}{where}{by}{having}", False

    def _joined(self, sources: Sequence[Source]) -> tuple[str, bool]:
        one, left = self._source(sources, "x")
        other, right = self._source(sources, "y")
        pairs = [(a, b) for a in left for b in right if family(a.type) == family(b.type) and a.type not in REAL]
        a, b = (
            self.chance.choice(pairs) if self.chance.random() < 0.4 else (Field(_id(left), ""), Field(_id(right), ""))
        )
        on = f"{a.sql} {self.chance.choice(['=', '=', '=', '<=>'])} {b.sql}"
        if self.chance.random() < 0.3:
            on += f" AND {self.words.simple([*left, *right])}"
        shown = [each.sql for each in [*self._some(left)[:3], *self._some(right)[:3]]]
        where = f" WHERE {self.words.condition([*left, *right], 1)}" if self.chance.random() < 0.6 else ""
        listed = ", ".join(f"{each} AS r{at}" for at, each in enumerate(shown))
        return f"SELECT {listed} FROM {one} {self.chance.choice(JOINS)} {other} ON {on}{where}", False

    def _windowed(self, sources: Sequence[Source]) -> tuple[str, bool]:
        text, fields = self._source(sources, "x")
        by, order = self.chance.choice(fields).sql, self.chance.choice(fields).sql
        over = f"PARTITION BY {by} ORDER BY {order} {self.chance.choice(['ASC', 'DESC'])} NULLS LAST"
        shown = [f"{self.chance.choice(['rank()', 'dense_rank()', 'count(*)'])} OVER ({over})"]
        shown += [
            f"sum({self.words.whole(_id(fields))}) OVER (PARTITION BY {by})",
            f"max({order}) OVER (PARTITION BY {by})",
        ]
        return f"SELECT {_id(fields)}, {', '.join(shown)} FROM {text} WHERE {self.words.condition(fields, 1)}", False

    def _combined(self, sources: Sequence[Source]) -> tuple[str, bool]:
        word = self.chance.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"])
        return f"{self.ids(sources)} {word} {self.ids(sources)}", False

    def _nested(self, sources: Sequence[Source]) -> tuple[str, bool]:
        text, fields = self._source(sources, "x")
        shown = ", ".join(one.sql for one in self._some(fields))
        other, others = self._source(sources, "y")
        negated = self.chance.choice(["", "NOT "])
        rows = f"SELECT {shown} FROM {text}"
        inner = f"{_id(others)} = {_id(fields)} AND {self.words.simple(others)}"
        match self.chance.choice(["in", "exists", "scalar", "from", "with"]):
            case "in":
                return f"{rows} WHERE {_id(fields)} {negated}IN ({self.ids(sources)})", False
            case "exists":
                return f"{rows} WHERE {negated}EXISTS (SELECT 1 FROM {other} WHERE {inner})", False
            case "scalar":
                return f"SELECT {shown}, (SELECT count(*) FROM {other} WHERE {inner}) FROM {text}", False
            case "from":
                return (
                    f"SELECT count(*), min(n) FROM (SELECT {_id(fields)} AS n FROM {text}) AS z WHERE n IS NOT NULL",
                    False,
                )
            case _:
                found = f"WITH w AS ({rows} WHERE {self.words.condition(fields, 1)})"
                return f"{found} SELECT * FROM w UNION ALL SELECT * FROM w", False


def _id(fields: Sequence[Field]) -> str:
    return next(one.sql for one in fields if one.sql.endswith(".`id`"))
