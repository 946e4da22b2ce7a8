"""DuckDB as the oracle of Spark SQL: it has a copy of every table, at each of its versions, and does what Spark does.

What LakeTX adds to SQL is spelled out here: an INSERT by key replaces rows, a key comes once in a statement, a row of a
MERGE that is inserted over another one's key takes its place, and RESTORE brings back rows by their columns' numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import duckdb

from tests.spark.sql_generator import Alter, Clause, Compact, Create, Merge, Put, Query, Restore, Shape, Statement
from tests.spark.sql_values import Column, names, quoted

Row = tuple[Any, ...]
TOKEN: Final = re.compile(
    r"(?P<binary>\bX'[0-9A-F]*')|(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<name>`(?:[^`]|``)*`)|(?P<zone>\btimestamp_ntz\b)|(?P<same><=>)"
    r"|(?P<table>\w+) VERSION AS OF (?P<version>\d+)",
    re.IGNORECASE | re.DOTALL,
)
NULL_REFUSED: Final = "NULL"
KEY_TWICE: Final = "KEY_TWICE"
KEY_EXISTS: Final = "KEY_EXISTS"
MANY_MATCHES: Final = "MERGE_CARDINALITY_VIOLATION"


def translated(sql: str) -> str:
    """From the Spark SQL that is generated to DuckDB's."""

    def word(found: re.Match[str]) -> str:
        match found.lastgroup:
            case "binary":
                return f"unhex({found[0][1:]})"
            case "text":
                return found[0].replace("\\\\", "\\")
            case "name":
                return '"' + found[0][1:-1].replace("``", "`").replace('"', '""') + '"'
            case "zone":
                return "timestamp"
            case "same":
                return "IS NOT DISTINCT FROM"
            case _:
                return copy_of(found["table"], int(found["version"]))

    return TOKEN.sub(word, sql)


def copy_of(table: str, version: int) -> str:
    return f"{table}__{version}"


class Oracle:
    def __init__(self) -> None:
        self._db = duckdb.connect(config={"threads": 1})

    def close(self) -> None:
        self._db.close()

    def rows(self, sql: str) -> list[Row]:
        return [canonical(row) for row in self._run(sql).fetchall()]

    def content(self, shape: Shape, version: int | None = None) -> list[Row]:
        """In the order of the columns that the table has or had."""
        if version is None:
            return self.rows(f"SELECT {names(shape.columns)} FROM {shape.name}")
        return self.rows(f"SELECT {names(shape.versions[version])} FROM {copy_of(shape.name, version)}")

    def keep(self, table: str, version: int) -> None:
        self._run(f"CREATE TABLE {copy_of(table, version)} AS FROM {table}")

    def apply(self, statement: Statement, shape: Shape | None) -> str:
        """What Spark is to say, if it has to refuse the statement; the tables are what they were then."""
        self._run("BEGIN")
        refused = self._apply(statement, shape)
        self._run("ROLLBACK" if refused else "COMMIT")
        return refused

    def _apply(self, statement: Statement, shape: Shape | None) -> str:
        match statement, shape:
            case Create(shape=Shape() as made), _:
                listed = ", ".join(f"{one.sql} {one.type}" for one in made.columns)
                self._run(f"CREATE TABLE {made.name} ({listed})")
            case Put(), Shape():
                return self._put(statement, shape)
            case Merge(), Shape():
                return self._merge(statement, shape)
            case Restore(version=version), Shape():
                self._restore(shape, version)
            case Alter(), _:
                self._run(re.sub(r" (FIRST|AFTER `(?:[^`]|``)*`)$", "", statement.sql))
            case ((Query() | Compact()), _):
                pass
            case _:
                self._run(statement.sql)
                if shape is not None and shape.is_scoped and self._has_twice(shape, shape.name, "true"):
                    return KEY_EXISTS
        return ""

    def _run(self, sql: str) -> duckdb.DuckDBPyConnection:
        return self._db.execute(translated(sql))

    def _has(self, sql: str) -> bool:
        return bool(self._run(f"SELECT 1 FROM {sql} LIMIT 1").fetchall())

    # -- writes

    def _put(self, statement: Put, shape: Shape) -> str:
        listed = ", ".join(quoted(name) for name in statement.columns)
        self._run("CREATE OR REPLACE TEMP TABLE arrived AS FROM " + shape.name + " LIMIT 0")
        self._run(f"INSERT INTO arrived ({listed}) {statement.rows}")
        for name, value in statement.partition.items():
            self._run(f"UPDATE arrived SET {quoted(name)} = {value}")
        if refused := self._refusal(shape, "arrived", "true"):
            return refused
        match statement.replaced:
            case "all":
                gone = "true"
            case "one":
                gone = " AND ".join(f"{quoted(name)} <=> {value}" for name, value in statement.partition.items())
            case "dynamic":
                gone = f"EXISTS (SELECT 1 FROM arrived AS a WHERE {_same(shape.of(shape.parted), 'a', shape.name)})"
            case _ if shape.key:
                gone = f"EXISTS (SELECT 1 FROM arrived AS a WHERE {_same(shape.identity, 'a', shape.name)})"
            case _:
                gone = "false"
        self._run(f"DELETE FROM {shape.name} WHERE {gone}")
        self._run(f"INSERT INTO {shape.name} FROM arrived")
        return ""

    def _refusal(self, shape: Shape, rows: str, which: str) -> str:
        """Of rows that are written to a table with a key."""
        if not shape.key:
            return ""
        nulls = " OR ".join(f"{one.sql} IS NULL" for one in shape.of(shape.key))
        if self._has(f"{rows} WHERE {which} AND ({nulls})"):
            return NULL_REFUSED
        return KEY_TWICE if self._has_twice(shape, rows, which) else ""

    def _has_twice(self, shape: Shape, rows: str, which: str) -> bool:
        return self._has(f"{rows} WHERE {which} GROUP BY {names(shape.identity)} HAVING count(*) > 1")

    def _merge(self, statement: Merge, shape: Shape) -> str:
        """On a copy whose column `_mark` says what became of a row: 0 untouched, 1 changed, 2 new."""
        rows = f"SELECT *, 0 AS _mark, row_number() OVER () AS _at FROM {shape.name}"
        self._run(f"CREATE OR REPLACE TEMP TABLE merged AS {rows}")
        self._run(f"CREATE OR REPLACE TEMP TABLE source AS {statement.source}")
        matched = [one for one in statement.clauses if one.head.startswith("WHEN MATCHED")]
        only_deletes = len(matched) == 1 and matched[0].values is None and matched[0].head == "WHEN MATCHED"
        twice = f"merged AS t JOIN source AS s ON {statement.on} GROUP BY t._at HAVING count(*) > 1"
        if matched and self._has(twice):
            if not only_deletes:
                return MANY_MATCHES
            self._run("CREATE OR REPLACE TEMP TABLE source AS SELECT DISTINCT * FROM source")
        clauses = " ".join(map(_marked, statement.clauses))
        self._run(f"MERGE INTO merged AS t USING source AS s ON {statement.on} {clauses}")
        if shape.is_scoped and self._has_twice(shape, "merged", "_mark < 2"):
            return "KEY_"  # what is moved onto a key may meet a new row there too
        if refused := self._refusal(shape, "merged", "_mark > 0"):
            return refused
        if shape.key:
            new = f"SELECT 1 FROM merged AS n WHERE n._mark = 2 AND {_same(shape.identity, 'n', 'merged')}"
            self._run(f"DELETE FROM merged WHERE _mark = 0 AND EXISTS ({new})")
        self._run(f"DELETE FROM {shape.name}")
        self._run(f"INSERT INTO {shape.name} SELECT * EXCLUDE (_mark, _at) FROM merged")
        return ""

    def _restore(self, shape: Shape, version: int) -> None:
        then = {one.number: one for one in shape.versions[version]}
        values = [
            f"CAST({then[one.number].sql if one.number in then else 'NULL'} AS {one.type}) AS {one.sql}"
            for one in shape.columns
        ]
        self._run(f"DELETE FROM {shape.name}")
        self._run(f"INSERT INTO {shape.name} BY NAME SELECT {', '.join(values)} FROM {copy_of(shape.name, version)}")


def _same(columns: Sequence[Column], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{column.sql} <=> {other}.{column.sql}" for column in columns)


def _marked(clause: Clause) -> str:
    if clause.values is None:
        return f"{clause.head} THEN DELETE"
    if clause.is_insert:
        listed = ", ".join(map(quoted, clause.values))
        return f"{clause.head} THEN INSERT ({listed}, _mark, _at) VALUES ({', '.join(clause.values.values())}, 2, 0)"
    sets = ", ".join(f"{quoted(name)} = {value}" for name, value in clause.values.items())
    return f"{clause.head} THEN UPDATE SET {sets}, _mark = 1"


def canonical(row: Iterable[Any]) -> Row:
    """Values that are equal in SQL are equal and look alike."""
    return tuple(map(_canonical, row))


def _canonical(value: Any) -> Any:
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case Decimal():
            return value.normalize() + 0
        case bytearray() | memoryview():
            return bytes(value)
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        case _:
            return value
