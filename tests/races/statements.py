"""Statements that change a table (id, day, n), partitioned by day, and what each means for its rows.

What they mean is written here a second time, on lists of tuples: nothing of the product is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

Row = tuple[int, str, int]
Rows = tuple[Row, ...]

DAYS: Final = frozenset("abc")
FIRST: Final[Rows] = ((1, "a", 10), (2, "a", 20), (5, "b", 50))  # version 1
BASE: Final[Rows] = (*FIRST, (3, "a", 30), (4, "a", 40), (6, "b", 60))  # version 2; partition c is empty


class Kind(Enum):
    """The classes of the outcome table."""

    OVERWRITE = "INSERT OVERWRITE, TRUNCATE, RESTORE"
    INSERT = "INSERT INTO"
    CHANGE = "UPDATE, DELETE, MERGE"
    MINOR = "MINOR COMPACT"
    MAJOR = "MAJOR COMPACT"


@dataclass(frozen=True)
class Effect:
    """What a statement does to the rows that it saw."""

    removed: Rows = ()
    added: Rows = ()
    scope: frozenset[str] = frozenset()  # partitions that are replaced
    rewritten: frozenset[str] = frozenset()  # partitions whose files are others, with the same rows

    @property
    def is_nothing(self) -> bool:
        return not (self.removed or self.added or self.scope or self.rewritten)

    def apply(self, rows: Iterable[Row], *, keyed: bool) -> Rows:
        left = Counter(row for row in rows if row[1] not in self.scope)
        left -= Counter(self.removed)
        if keyed:
            keys = {row[:2] for row in self.added}
            left = Counter({row: count for row, count in left.items() if row[:2] not in keys})
        return tuple(sorted((left + Counter(self.added)).elements()))


@dataclass(frozen=True)
class Target:
    """What a statement is about: a partition, a row that is there, an id that isn't."""

    day: str
    id: int
    new: int

    @property
    def other(self) -> tuple[str, int]:
        return ("a", 1) if self.day != "a" else ("b", 5)


@dataclass(frozen=True)
class Statement:
    """One statement. `{t}` is the table in `sql`; `query` are the rows that it brings."""

    name: str
    kind: Kind
    target: Target
    meaning: Callable[[Rows], Effect]
    sql: str
    reads: frozenset[str] = frozenset()  # the partitions that it reads
    may_read: frozenset[str] = frozenset()  # those that a door may say it reads
    is_plain: bool = False  # an UPDATE or DELETE that reads what it changes, and nothing else
    query: str = ""
    partitions: str = ""  # of an overwrite: "all", "dynamic", or a day
    where: str = ""  # of UPDATE, DELETE, and of a REPLACE WHERE
    copies: str = ""  # the rows are those of the table where this is true
    defines: bool = False  # it redefines the table

    @property
    def is_blind(self) -> bool:
        return self.kind is Kind.INSERT and not self.reads


def _row(row: Row) -> str:
    return f"({row[0]}L, '{row[1]}', {row[2]}L)"


def _values(*rows: Row) -> str:
    return f"SELECT * FROM VALUES {', '.join(map(_row, rows))} AS v(id, day, n)"


def _grouped(*rows: Row) -> str:
    """The same rows behind a shuffle."""
    return f"SELECT id, day, sum(n) AS n FROM ({_values(*rows)}) GROUP BY id, day"


def _plus(rows: Iterable[Row], more: int) -> Rows:
    return tuple((key, day, n + more) for key, day, n in rows)


def _of(rows: Rows, *days: str) -> Rows:
    return tuple(row for row in rows if row[1] in days)


def _has(rows: Rows, day: str, key: int) -> bool:
    return any(row[:2] == (key, day) for row in rows)


def _changed(rows: Rows, fits: Callable[[Row], bool], to: Callable[[Row], Row]) -> Effect:
    old = tuple(row for row in rows if fits(row))
    return Effect(old, tuple(to(row) for row in old))


# -- those that bring rows ---------------------------------------------------------------------------------------------


def _inserts(target: Target) -> list[Statement]:
    day = target.day
    new = (target.new, day, 7)

    def next_id(rows: Rows) -> Effect:
        there = _of(rows, day)
        return Effect(added=((max((row[0] for row in there), default=0) + 100, day, len(there)),))

    def total(rows: Rows) -> Effect:
        return Effect(added=((target.new, day, sum(row[2] for row in rows)),))

    brings: list[tuple[str, str, Callable[[Rows], Effect], frozenset[str], str]] = [
        ("values", _values(new), lambda _: Effect(added=(new,)), frozenset(), ""),
        ("elsewhere", _grouped(new), lambda _: Effect(added=(new,)), frozenset(), ""),
        (
            "next id",
            f"SELECT coalesce(max(id), 0L) + 100 AS id, '{day}' AS day, count(*) AS n FROM {{t}} WHERE day = '{day}'",
            next_id,
            frozenset({day}),
            "",
        ),
        (
            "total",
            f"SELECT {target.new}L AS id, '{day}' AS day, coalesce(sum(n), 0L) AS n FROM {{t}}",
            total,
            DAYS,
            "",
        ),
        (
            "copy",
            f"SELECT * FROM {{t}} WHERE day = '{day}'",
            lambda rows: Effect(added=_of(rows, day)),
            frozenset({day}),
            f"day = '{day}'",
        ),
    ]
    return [
        Statement(
            f"INSERT {name}",
            Kind.INSERT,
            target,
            meaning,
            f"INSERT INTO {{t}} {query}",
            reads=reads,
            may_read=DAYS if reads else frozenset(),
            query=query,
            copies=copies,
        )
        for name, query, meaning, reads, copies in brings
    ]


def _overwrites(target: Target) -> list[Statement]:
    day = target.day
    new = (target.new, day, 7)
    plus_one = "SELECT id, day, n + 1 AS n FROM {t}"
    own = f"{plus_one} WHERE day = '{day}'"
    one, every = frozenset({day}), DAYS

    def made(
        name: str,
        query: str,
        partitions: str,
        meaning: Callable[[Rows], Rows],
        reads: frozenset[str] = frozenset(),
        copies: str = "",
        sql: str = "INSERT OVERWRITE {t} ",
        where: str = "",
    ) -> Statement:
        def effect(rows: Rows) -> Effect:
            added = meaning(rows)
            scope = {"all": every, "dynamic": frozenset(row[1] for row in added)}.get(partitions, one)
            return Effect(added=added, scope=scope)

        return Statement(
            name,
            Kind.OVERWRITE,
            target,
            effect,
            sql + query,
            reads=reads,
            may_read=DAYS if reads else frozenset(),
            query=query,
            partitions=partitions,
            copies=copies,
            where=where,
        )

    replace, where = f"INSERT INTO {{t}} REPLACE WHERE day = '{day}' ", f"day = '{day}'"
    part = f"INSERT OVERWRITE {{t}} PARTITION (day = '{day}') SELECT id, n FROM ("
    return [
        made("OVERWRITE all", _values(new, (target.new + 1, "b", 8)), "all", lambda _: (new, (target.new + 1, "b", 8))),
        made("OVERWRITE all, own rows", plus_one, "all", lambda rows: _plus(rows, 1), every),
        made("OVERWRITE all, copy", "SELECT * FROM {t}", "all", lambda rows: rows, every, "all"),
        _closed(made("OVERWRITE partition", _grouped(new), day, lambda _: (new,), sql=part)),
        _closed(made("OVERWRITE partition, own rows", own, day, lambda rows: _plus(_of(rows, day), 1), one, sql=part)),
        _closed(
            made(
                "OVERWRITE partition, copy",
                f"SELECT * FROM {{t}} WHERE day = '{day}'",
                day,
                lambda rows: _of(rows, day),
                one,
                f"day = '{day}'",
                sql=part,
            )
        ),
        made("OVERWRITE dynamic", _grouped(new), "dynamic", lambda _: (new,)),
        made("OVERWRITE dynamic, own rows", own, "dynamic", lambda rows: _plus(_of(rows, day), 1), one),
        made("REPLACE WHERE", _grouped(new), day, lambda _: (new,), sql=replace, where=where),
        made("REPLACE WHERE, own rows", own, day, lambda rows: _plus(_of(rows, day), 1), one, sql=replace, where=where),
    ]


def _closed(statement: Statement) -> Statement:
    """Its query stands in brackets."""
    return Statement(**{**vars(statement), "sql": statement.sql + ")"})


# -- those that change rows --------------------------------------------------------------------------------------------


def _row_changes(target: Target) -> list[Statement]:
    day, key = target.day, target.id
    other_day, other = target.other
    own = f"day = '{day}' AND id = {key}"
    twice = f"{own} AND EXISTS (SELECT 1 FROM {{t}} WHERE day = '{other_day}' AND id = {other} AND n > 0)"
    both = frozenset({day, other_day})

    def is_own(row: Row) -> bool:
        return row[:2] == (key, day)

    def if_other(rows: Rows, effect: Effect) -> Effect:
        return effect if any(row[:2] == (other, other_day) and row[2] > 0 for row in rows) else Effect()

    def made(name: str, sql: str, meaning: Callable[[Rows], Effect], reads: frozenset[str], where: str) -> Statement:
        is_plain = "EXISTS" not in where
        return Statement(
            name,
            Kind.CHANGE,
            target,
            meaning,
            sql + where,
            reads=reads,
            may_read=reads if is_plain else DAYS,
            is_plain=is_plain,
            where=where,
        )

    update, delete = "UPDATE {t} SET n = n + 10 WHERE ", "DELETE FROM {t} WHERE "
    return [
        made(
            "UPDATE",
            update,
            lambda rows: _changed(rows, is_own, lambda row: (*row[:2], row[2] + 10)),
            frozenset({day}),
            own,
        ),
        made(
            "UPDATE by value",
            update,
            lambda rows: _changed(rows, lambda row: row[2] >= 40, lambda row: (*row[:2], row[2] + 10)),
            DAYS,
            "n >= 40",
        ),
        made(
            "UPDATE with subquery",
            "UPDATE {t} SET n = 0 WHERE ",
            lambda rows: if_other(rows, _changed(rows, is_own, lambda row: (*row[:2], 0))),
            both,
            twice,
        ),
        made("DELETE", delete, lambda rows: Effect(tuple(filter(is_own, rows))), frozenset({day}), own),
        made(
            "DELETE with subquery",
            delete,
            lambda rows: if_other(rows, Effect(tuple(filter(is_own, rows)))),
            both,
            twice,
        ),
    ]


def _merges(target: Target) -> list[Statement]:
    day, key, new = target.day, target.id, target.new
    source = ((key, day, 5), (new, day, 7))
    matched = "WHEN MATCHED THEN UPDATE SET n = t.n + s.n"
    not_matched = "WHEN NOT MATCHED THEN INSERT (id, day, n) VALUES (s.id, s.day, s.n)"

    def missing(rows: Rows) -> Rows:
        return tuple(row for row in source if not _has(rows, row[1], row[0]))

    def upsert(rows: Rows) -> Effect:
        more = {row[:2]: row[2] for row in source}
        changed = _changed(rows, lambda row: row[:2] in more, lambda row: (*row[:2], row[2] + more[row[:2]]))
        return Effect(changed.removed, changed.added + missing(rows))

    def own(rows: Rows) -> Effect:
        return _changed(rows, lambda row: row[1] == day, lambda row: (*row[:2], row[2] * 2))

    def made(name: str, query: str, clauses: str, meaning: Callable[[Rows], Effect]) -> Statement:
        sql = f"MERGE INTO {{t}} AS t USING ({query}) AS s ON t.day = s.day AND t.id = s.id {clauses}"
        one = frozenset({day})
        return Statement(name, Kind.CHANGE, target, meaning, sql, reads=one, may_read=DAYS, query=query)

    return [
        made("MERGE upsert", _grouped(*source), f"{matched} {not_matched}", upsert),
        made("MERGE insert only", _grouped(*source), not_matched, lambda rows: Effect(added=missing(rows))),
        made("MERGE own rows", f"SELECT * FROM {{t}} WHERE day = '{day}'", matched, own),
    ]


# -- those about the whole table ---------------------------------------------------------------------------------------


def _wholes(target: Target) -> list[Statement]:
    def made(name: str, kind: Kind, sql: str, meaning: Callable[[Rows], Effect], **more: object) -> Statement:
        return Statement(name, kind, target, meaning, sql, **more)  # type: ignore[arg-type]

    def compacted(rows: Rows) -> Effect:
        return Effect(rewritten=frozenset(row[1] for row in rows))

    day = target.day
    return [
        made("TRUNCATE", Kind.OVERWRITE, "TRUNCATE TABLE {t}", lambda _: Effect(scope=DAYS), partitions="all"),
        made(
            "TRUNCATE partition",
            Kind.OVERWRITE,
            f"TRUNCATE TABLE {{t}} PARTITION (day = '{day}')",
            lambda _: Effect(scope=frozenset({day})),
            partitions=day,
        ),
        made(
            "RESTORE",
            Kind.OVERWRITE,
            "CALL {c}.system.restore(table => '{n}', version => 1)",
            lambda _: Effect(added=FIRST, scope=DAYS),
        ),
        made(
            "REPLACE TABLE, own rows",
            Kind.OVERWRITE,
            "CREATE OR REPLACE TABLE {t} AS SELECT id, day, n + 1 AS n FROM {t}",
            lambda rows: Effect(added=_plus(rows, 1), scope=DAYS),
            reads=DAYS,
            may_read=DAYS,
            query="SELECT id, day, n + 1 AS n FROM {t}",
            defines=True,
        ),
        made("MINOR", Kind.MINOR, "", compacted),
        made("MAJOR", Kind.MAJOR, "", compacted),
    ]


def statements(target: Target) -> list[Statement]:
    """All of them, about this target."""
    return [*_inserts(target), *_overwrites(target), *_row_changes(target), *_merges(target), *_wholes(target)]


TARGETS: Final = {  # of the statement that waits, and of the one that runs meanwhile
    "same row": (Target("a", 1, 101), Target("a", 1, 101)),
    "same partition": (Target("a", 1, 101), Target("a", 2, 201)),
    "other partition": (Target("a", 1, 101), Target("b", 5, 201)),
    "new partition": (Target("c", 9, 101), Target("c", 9, 201)),
}
