"""Values and expressions for random statements, in words that Spark and DuckDB understand alike.

Types have pools of literals: few, so that rows meet, and odd ones among them. Expressions stay away from what the two
do otherwise: casts that round, sums that overflow, text of other kinds of values, division by zero.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
REAL: Final = ("float", "double")
NAN: Final = "CAST('NaN' AS DOUBLE)"

POOLS: Final = {
    "boolean": ["true", "false"],
    "tinyint": ["0", "1", "2", "-1", "127", "-128"],
    "smallint": ["0", "1", "2", "-1", "300", "32767", "-32768"],
    "int": ["0", "1", "2", "3", "-1", "70000", "2147483647", "-2147483648"],
    "bigint": ["0", "1", "2", "3", "4", "5", "-1", "5000000000", "9223372036854775807", "-9223372036854775807"],
    "float": ["0e0", "-0e0", "1.5e0", "-2.25e0", "0.1e0", "1e30", "CAST('Infinity' AS DOUBLE)", NAN],
    "double": ["0e0", "-0e0", "1.5e0", "-2.25e0", "0.1e0", "1e300", "CAST('-Infinity' AS DOUBLE)", NAN],
    "decimal(10,2)": ["0", "1.5", "-1.5", "0.01", "99999999.99", "-99999999.99"],
    "decimal(20,4)": ["0", "1.5", "-1.5", "0.0001", "9999999999999999.9999"],
    "decimal(38,10)": ["0", "1.5", "-0.0000000001", "1234567890123456789012345678.0123456789"],
    "string": [
        *("''", "' '", "'a'", "'A'", "'ab'", "'abc'", "'b'", "'a''b'", "'%'", "'a_b'", "'x/y=z%2F'", "'..'", "'\\\\'"),
        *("'null'", "'__HIVE_DEFAULT_PARTITION__'", "'two\nlines'", "'ä'", "'日本'", "'\uff5e'", "'\U0001f600'"),
        *(f"'{'long' * 20}{end}'" for end in "ab"),  # alike for longer than bounds are
    ],
    "binary": ["X''", "X'00'", "X'00FF'", "X'61'", "X'80'"],
    "date": [
        f"DATE '{one}'" for one in ("1970-01-01", "2024-02-29", "2024-03-01", "1500-03-01", "0001-01-01", "9999-12-31")
    ],
    "timestamp": [
        f"TIMESTAMP '{one}'"
        for one in ("1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-02-29 12:30:00.5", "1500-03-01 00:00:00")
    ],
    "timestamp_ntz": [
        f"TIMESTAMP_NTZ '{one}'"
        for one in ("1970-01-01 00:00:00", "2024-03-31 02:30:00", "2024-02-29 12:30:00.000001", "0001-01-01 00:00:00")
    ],
}
PATTERNS: Final = ("'a%'", "'%b'", "'%'", "'_'", "'a_b'", "'%a%'", "''", "'A%'", "'%=%'", "'ä%'", "'long%'", "'%日%'")
OPERATORS: Final = ("=", "=", "<>", "<", "<=", ">", ">=", "<=>")
WIDER: Final = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
    "date": ("timestamp_ntz",),
    "decimal(10,2)": ("decimal(20,4)",),
    "decimal(20,4)": ("decimal(38,10)",),
}


@dataclass(frozen=True)
class Field:
    """A column as a statement names it."""

    sql: str
    type: str


@dataclass(frozen=True)
class Column:
    """`number` stays, whatever the column is called; 0 is `id`."""

    number: int
    name: str
    type: str

    @property
    def sql(self) -> str:
        return quoted(self.name)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def names(columns: Sequence[Column]) -> str:
    return ", ".join(one.sql for one in columns)


def family(type_: str) -> str:
    """Of types that are compared without a thought."""
    if type_ in WHOLE:
        return "whole"
    return "real" if type_ in REAL else type_.partition("(")[0]


class Words:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    # -- values

    def literal(self, type_: str) -> str:
        return self.chance.choice(POOLS[type_])

    def value(self, type_: str, *, null: float = 0.15, is_number: bool = False) -> str:
        """Of just that type. `is_number`: not NaN, which no partition has."""
        if self.chance.random() < null:
            return f"CAST(NULL AS {type_})"
        pool = [one for one in POOLS[type_] if not (is_number and one == NAN)]
        return f"CAST({self.chance.choice(pool)} AS {type_})"

    def constant(self, type_: str, *, null: float) -> str:
        """As PARTITION (…) takes it: a literal alone."""
        plain = [one for one in POOLS[type_] if not one.startswith("CAST")]
        return "NULL" if self.chance.random() < null else self.chance.choice(plain)

    def new_value(self, type_: str, fields: Sequence[Field]) -> str:
        """For a column of that type, made of the fields."""
        same = [one.sql for one in fields if one.type == type_]
        alike = [one.sql for one in fields if family(one.type) == family(type_)]
        kind = self.chance.random()
        if kind < 0.3 or not alike:
            return self.value(type_)
        if kind < 0.5 and same:
            return self.chance.choice(same)
        if kind < 0.6 and same:
            return f"CASE WHEN {self.condition(fields, 1)} THEN {self.chance.choice(same)} ELSE {self.value(type_)} END"
        if kind < 0.7 and same:
            return f"coalesce({self.chance.choice(same)}, {self.value(type_)})"
        match family(type_):
            case "whole":
                return f"CAST({self.whole(self.chance.choice(alike))} % 100 AS {type_})"
            case "real" if type_ == "double":
                return f"CAST({self.chance.choice(alike)} AS DOUBLE) * 0.5e0 + {self.chance.randrange(4)}"
            case "string":
                one, other = self.chance.choice(alike), self.chance.choice(alike)
                return f"substring({one} || {self.literal('string')} || {other}, {self.chance.randrange(1, 3)}, 6)"
            case _:
                return self.chance.choice(same) if same else self.value(type_)

    def whole(self, sql: str) -> str:
        return f"(CAST({sql} AS BIGINT) % {self.chance.choice([7, 100, 1000])} + {self.chance.randrange(-3, 4)})"

    # -- conditions

    def condition(self, fields: Sequence[Field], depth: int = 2) -> str:
        kind = self.chance.random()
        if depth and kind < 0.45:
            word = self.chance.choice(["AND", "OR"])
            return f"({self.condition(fields, depth - 1)} {word} {self.condition(fields, depth - 1)})"
        if depth and kind < 0.55:
            return f"NOT ({self.condition(fields, depth - 1)})"
        return self.simple(fields)

    def simple(self, fields: Sequence[Field]) -> str:
        one = self.chance.choice(fields)
        alike = [other.sql for other in fields if family(other.type) == family(one.type) and other != one]
        forms = ["is null", "compare", "compare", "compare", "in", "between"]
        forms += ["two"] * bool(alike) + {"string": ["like"] * 3, "boolean": ["itself"], "whole": ["rest"]}.get(
            family(one.type), []
        )
        negated = self.chance.choice(["", "", "NOT "])
        match self.chance.choice(forms):
            case "is null":
                return f"{one.sql} IS {negated}NULL"
            case "in":
                listed = [self.literal(one.type) for _ in range(self.chance.randrange(1, 5))]
                return f"{one.sql} {negated}IN ({', '.join(listed + ['NULL'] * (self.chance.random() < 0.15))})"
            case "between":
                return f"{one.sql} {negated}BETWEEN {self.literal(one.type)} AND {self.literal(one.type)}"
            case "two":
                return f"{one.sql} {self.chance.choice(OPERATORS)} {self.chance.choice(alike)}"
            case "like":
                return f"{one.sql} {negated}LIKE {self.chance.choice(PATTERNS)}"
            case "itself":
                return f"{negated}{one.sql}"
            case "rest":
                return f"{self.whole(one.sql)} {self.chance.choice(OPERATORS)} {self.chance.randrange(-2, 5)}"
            case _:
                sides = [one.sql, self.literal(one.type)]
                if self.chance.random() < 0.2:
                    sides.reverse()
                return f"{sides[0]} {self.chance.choice(OPERATORS)} {sides[1]}"
