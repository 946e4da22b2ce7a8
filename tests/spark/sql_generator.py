"""Random statements of Spark SQL, the same for a seed, over tables whose columns the generator keeps track of.

A statement is its text for Spark, and what the oracle needs to do the same. The text stays within what DuckDB
understands too, but for a few words that `sql_oracle` translates; what the two do otherwise is not generated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.spark.sql_queries import Queries
from tests.spark.sql_values import POOLS, WIDER, Column, Field, Words, names, quoted

KEY_TYPES: Final = ("bigint", "bigint", "int", "string", "date", "decimal(10,2)", "timestamp", "binary", "boolean")
NAMES: Final = ("a", "b", "c", "odd name", "x`y", "dot.ted", "Ünï", "select", "t.a", "_x", "日本", "q'", 'q"', "100%")
PROFILES: Final = ("maxcompute", "maxcompute", "row_level", "delta_serializable", "delta_write_serializable")
ROWS_MAX: Final = 12
COLUMNS_MAX: Final = 9


@dataclass
class Shape:
    """A table as it is by now, and which columns it had at each of its versions."""

    name: str
    columns: list[Column]
    key: tuple[int, ...] = ()
    parted: tuple[int, ...] = ()
    profile: str = "maxcompute"
    buckets: int = 0
    is_scoped: bool = False  # its key is unique within a partition alone
    versions: dict[int, list[Column]] = field(default_factory=dict)

    @property
    def fixed(self) -> set[int]:
        """Columns of the key, which take no NULL and are never set."""
        return set(self.key)

    @property
    def identity(self) -> list[Column]:
        """The columns by which a row of a table with a key is known."""
        known = {*self.key, *(self.parted if self.is_scoped else ())}
        return [one for one in self.columns if one.number in known]

    def of(self, numbers: Sequence[int]) -> list[Column]:
        return [one for number in numbers for one in self.columns if one.number == number]

    def fields(self, alias: str = "") -> list[Field]:
        return [Field(f"{alias}.{one.sql}" if alias else one.sql, one.type) for one in self.columns]


@dataclass(frozen=True)
class Statement:
    """A query, or an UPDATE, DELETE or ALTER that needs nothing but translation."""

    sql: str
    table: str = ""


@dataclass(frozen=True)
class Query(Statement):
    is_ordered: bool = False


@dataclass(frozen=True)
class Create(Statement):
    shape: Shape | None = None


@dataclass(frozen=True)
class Put(Statement):
    """INSERT. `replaced` is "", "all", "dynamic", or "one": what the partition in `partition` has."""

    rows: str = ""
    columns: tuple[str, ...] = ()
    replaced: str = ""
    partition: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Clause:
    """`values` None deletes."""

    head: str
    values: Mapping[str, str] | None = None

    @property
    def is_insert(self) -> bool:
        return self.head.startswith("WHEN NOT MATCHED") and "BY SOURCE" not in self.head


@dataclass(frozen=True)
class Merge(Statement):
    source: str = ""
    on: str = ""
    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True)
class Alter(Statement):
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Compact(Statement):
    operation: str = ""


@dataclass(frozen=True)
class Restore(Statement):
    version: int = 0


class Statements:
    """`following` makes a statement; `done` tells that it is committed as that version of its table."""

    def __init__(self, seed: int, space: str) -> None:
        self.chance = random.Random(seed)
        self.space = space
        self.words = Words(self.chance)
        self.tables: dict[str, Shape] = {}
        self._numbers = 0
        self._queries = Queries(self.words)

    def creations(self) -> list[Statement]:
        kinds = [(False, False), (False, True), (True, False), (True, True)]
        self.chance.shuffle(kinds)
        return [self._create(f"t{at}", *kind) for at, kind in enumerate(kinds[: self.chance.randrange(2, 4)])]

    def following(self) -> Statement:
        shape = self.chance.choice(list(self.tables.values()))
        if self.chance.random() < 0.4:
            sql, is_ordered = self._queries.query(self._sources())
            return Query(sql, is_ordered=is_ordered)
        made = None
        while made is None:
            makers = (self._insert, self._overwrite, self._update, self._delete, self._merge, self._alter, self._serve)
            made = self.chance.choices(makers, weights=(8, 3, 5, 4, 7, 3, 3))[0](shape)
        return made

    def done(self, statement: Statement, version: int) -> None:
        match statement:
            case Create(shape=Shape() as shape):
                self.tables[shape.name] = shape
            case Alter(columns=columns):
                self.tables[statement.table].columns = list(columns)
            case _:
                pass
        shape = self.tables[statement.table]
        shape.versions[version] = list(shape.columns)

    # -- tables

    def _column(self, type_: str, taken: Sequence[Column]) -> Column:
        self._numbers += 1
        there = {one.name.lower() for one in taken}
        free = [one for one in NAMES if one.lower() not in there] or [f"c{self._numbers}"]
        return Column(self._numbers, self.chance.choice(free), type_)

    def _create(self, name: str, keyed: bool, parted: bool) -> Create:
        columns = [Column(0, "id", "bigint")]
        key, parts = [0] if keyed else [], []
        if keyed and self.chance.random() < 0.3:
            columns.append(self._column(self.chance.choice(KEY_TYPES), columns))
            key.append(columns[-1].number)
        is_scoped = keyed and parted and self.chance.random() < 0.5
        for _ in range(parted and self.chance.randrange(1, 3)):
            is_key = keyed and not is_scoped
            columns.append(self._column(self.chance.choice(KEY_TYPES if is_key else [*KEY_TYPES, "double"]), columns))
            parts.append(columns[-1].number)
            key += parts[-1:] * is_key
        for _ in range(self.chance.randrange(2, 5)):
            columns.append(self._column(self.chance.choice(list(POOLS)), columns))
        self.chance.shuffle(columns)
        shape = Shape(
            name,
            columns,
            tuple(key),
            tuple(parts),
            self.chance.choice(PROFILES),
            self.chance.randrange(1, 4) if keyed else 0,
            is_scoped,
        )
        return Create(self._definition(shape), name, shape)

    def _definition(self, shape: Shape) -> str:
        listed = [f"{one.sql} {one.type}{' NOT NULL' * (one.number in shape.fixed)}" for one in shape.columns]
        if shape.key:
            listed.append(f"PRIMARY KEY ({names(shape.of(shape.key))})")
        parted = f" PARTITIONED BY ({names(shape.of(shape.parted))})" if shape.parted else ""
        settings = {"profile": shape.profile, "compaction.enabled": "false"}
        settings |= {"buckets": str(shape.buckets)} if shape.key else {}
        settings |= {"key.scope": "partition"} if shape.is_scoped else {}
        told = ", ".join(f"'{name}' = '{value}'" for name, value in settings.items())
        return f"CREATE TABLE {shape.name} ({', '.join(listed)}){parted} TBLPROPERTIES ({told})"

    def _alter(self, shape: Shape) -> Statement | None:
        columns = list(shape.columns)
        loose = [one for one in columns if one.number not in {0, *shape.fixed, *shape.parted}]
        match self.chance.choice(["add", "rename", "drop", "widen"]):
            case "add" if len(columns) < COLUMNS_MAX:
                new = self._column(self.chance.choice(list(POOLS)), columns)
                at = self.chance.randrange(len(columns) + 1)
                place = "FIRST" if at == 0 else f"AFTER {columns[at - 1].sql}"
                columns.insert(at, new)
                sql = f"ADD COLUMN {new.sql} {new.type} {place}"
            case "rename":
                at = self.chance.choice([at for at, one in enumerate(columns) if one.number not in {0, *shape.parted}])
                new = replace(columns[at], name=self._column("int", columns).name)
                sql = f"RENAME COLUMN {columns[at].sql} TO {new.sql}"
                columns[at] = new
            case "drop" if len(loose) > 1:
                gone = self.chance.choice(loose)
                columns.remove(gone)
                sql = f"DROP COLUMN {gone.sql}"
            case "widen" if any(one.type in WIDER for one in loose):
                old = self.chance.choice([one for one in loose if one.type in WIDER])
                new = replace(old, type=self.chance.choice(WIDER[old.type]))
                columns[columns.index(old)] = new
                sql = f"ALTER COLUMN {old.sql} TYPE {new.type}"
            case _:
                return None
        return Alter(f"ALTER TABLE {shape.name} {sql}", shape.name, tuple(columns))

    def _serve(self, shape: Shape) -> Statement:
        name = f"'{self.space}.{shape.name}'"
        if self.chance.random() < 0.25:
            version = self.chance.choice(list(shape.versions))
            return Restore(f"CALL lake.system.restore({name}, {version})", shape.name, version)
        operation = self.chance.choice(["minor", "major", "cluster"])
        order = f", sort_by => array('{shape.columns[0].name.replace(chr(39), chr(39) * 2)}')" * (
            operation == "cluster"
        )
        return Compact(f"CALL lake.system.compact({name}, '{operation}'{order})", shape.name, operation)

    # -- rows

    def _row(self, shape: Shape, column: Column, others: Sequence[Field] = ()) -> str:
        """A value for a column; one of a key is hardly ever NULL, and one of a partition never NaN."""
        if column.number == 0:
            return f"CAST({self.chance.randrange(20)} AS {column.type})"
        if column.number in {*shape.fixed, *shape.parted}:
            return self.words.value(column.type, null=0.01 if column.number in shape.fixed else 0.15, is_number=True)
        return self.words.new_value(column.type, others)

    def _rows(self, shape: Shape, columns: Sequence[Column]) -> str:
        """A query for rows; their keys may come twice, now and then."""
        if self.chance.random() < 0.6 or not self.tables:
            many = self.chance.randrange(1, ROWS_MAX)
            ids = self.chance.sample(range(20), many)
            rows = [
                [f"CAST({ids[at]} AS {one.type})" if one.number == 0 else self._row(shape, one) for one in columns]
                for at in range(many)
            ]
            return "VALUES " + ", ".join(f"({', '.join(row)})" for row in rows)
        other = self.chance.choice(list(self.tables.values()))
        fields = other.fields("o")
        values = [
            f"CAST(o.`id` % 20 AS {one.type})" if one.number == 0 else self._row(shape, one, fields) for one in columns
        ]
        told = ", ".join(f"{value} AS {one.sql}" for value, one in zip(values, columns, strict=True))
        return f"SELECT {told} FROM {other.name} AS o WHERE {self.words.condition(fields, 1)}"

    def _chosen(self, shape: Shape, but: Sequence[int] = ()) -> list[Column]:
        """Columns of an INSERT: those that must be there, and most of the others, in any order."""
        must = {0, *shape.fixed}
        found = [one for one in shape.columns if one.number in must or self.chance.random() < 0.85]
        found = [one for one in found if one.number not in but]
        self.chance.shuffle(found)
        return found

    def _insert(self, shape: Shape) -> Put:
        columns = self._chosen(shape)
        rows = self._rows(shape, columns)
        sql = f"INSERT INTO {shape.name} ({names(columns)}) {rows}"
        return Put(sql, shape.name, rows, tuple(one.name for one in columns))

    def _overwrite(self, shape: Shape) -> Statement | None:
        kind = self.chance.choice(["all", "truncate", "one", "one", "dynamic", "dynamic"])
        if kind == "truncate":
            return Statement(f"TRUNCATE TABLE {shape.name}", shape.name) if self.chance.random() < 0.3 else None
        if kind == "all" or not shape.parted:
            columns = self._chosen(shape)
            rows = self._rows(shape, columns)
            sql = f"INSERT OVERWRITE {shape.name} ({names(columns)}) {rows}"
            return Put(sql, shape.name, rows, tuple(one.name for one in columns), "all")
        has_bytes = any(
            one.type == "binary" for one in shape.of(shape.parted)
        )  # Spark takes them for text in PARTITION
        if kind == "dynamic" or has_bytes:
            columns = self._chosen(shape)
            rows = self._rows(shape, columns)
            sql = f"INSERT OVERWRITE {shape.name} ({names(columns)}) {rows}"
            return Put(sql, shape.name, rows, tuple(one.name for one in columns), "dynamic")
        partition = {
            one.name: self.words.constant(one.type, null=0 if one.number in shape.fixed else 0.15)
            for one in shape.of(shape.parted)
        }
        columns = self._chosen(shape, shape.parted)
        rows = self._rows(shape, columns)
        told = ", ".join(f"{quoted(name)} = {value}" for name, value in partition.items())
        sql = f"INSERT OVERWRITE {shape.name} PARTITION ({told}) ({names(columns)}) {rows}"
        return Put(sql, shape.name, rows, tuple(one.name for one in columns), "one", partition)

    def _sets(self, shape: Shape, fields: Sequence[Field]) -> dict[str, str]:
        loose = [one for one in shape.columns if one.number not in shape.fixed]
        chosen = self.chance.sample(loose, min(len(loose), self.chance.randrange(1, 4)))
        return {one.name: self._row(shape, one, fields) for one in chosen}

    def _update(self, shape: Shape) -> Statement:
        fields = shape.fields()
        told = ", ".join(f"{quoted(name)} = {value}" for name, value in self._sets(shape, fields).items())
        return Statement(f"UPDATE {shape.name} SET {told} WHERE {self._where(shape)}", shape.name)

    def _delete(self, shape: Shape) -> Statement:
        return Statement(f"DELETE FROM {shape.name} WHERE {self._where(shape)}", shape.name)

    def _where(self, shape: Shape) -> str:
        if self.chance.random() < 0.25:
            return f"{quoted_id(shape)} IN ({self._queries.ids(self._sources())})"
        if self.chance.random() < 0.2:
            low = self.chance.randrange(20)
            return f"{quoted_id(shape)} BETWEEN {low} AND {low + self.chance.randrange(4)}"
        return self.words.condition(shape.fields(), 2)

    def _sources(self) -> list[tuple[str, list[Column]]]:
        """What may stand in FROM: tables, and older versions of them."""
        found = [(one.name, list(one.columns)) for one in self.tables.values()]
        for one in self.tables.values():
            version = self.chance.choice(list(one.versions))
            found.append((f"{one.name} VERSION AS OF {version}", one.versions[version]))
        return found

    def _merge(self, shape: Shape) -> Merge:
        columns = list(shape.columns)
        source = self._rows(shape, columns)
        if source.startswith("VALUES"):
            listed = ", ".join(one.sql for one in columns)
            source = f"SELECT * FROM ({source}) AS v({listed})"
        matched = [one for one in columns if one.number in {0, *shape.fixed}]
        if self.chance.random() < 0.7:  # else a row of the source may match rows of several partitions
            matched += [one for one in shape.identity if one not in matched]
        on = " AND ".join(
            f"t.{one.sql} {'=' if one.number in {0, *shape.fixed} else '<=>'} s.{one.sql}" for one in matched
        )
        if self.chance.random() < 0.3:
            on += f" AND {self.words.simple(shape.fields(self.chance.choice('ts')))}"
        both = [*shape.fields("t"), *shape.fields("s")]
        own = shape.fields("t")
        inserted = {one.name: f"s.{one.sql}" for one in columns}
        clauses = self._clauses(
            "WHEN MATCHED", both, [self._changed(shape, both) for _ in range(self.chance.randrange(3))]
        )
        many = self.chance.randrange(2) + (not clauses)
        clauses += self._clauses("WHEN NOT MATCHED", shape.fields("s"), [inserted] * many)
        many = self.chance.choice([0, 0, 1, 2])
        clauses += self._clauses("WHEN NOT MATCHED BY SOURCE", own, [self._changed(shape, own) for _ in range(many)])
        sql = f"MERGE INTO {shape.name} AS t USING ({source}) AS s ON {on} " + " ".join(map(told_clause, clauses))
        return Merge(sql, shape.name, source, on, tuple(clauses))

    def _changed(self, shape: Shape, fields: Sequence[Field]) -> dict[str, str] | None:
        return self._sets(shape, fields) if self.chance.random() < 0.65 else None

    def _clauses(self, head: str, fields: Sequence[Field], actions: Sequence[Mapping[str, str] | None]) -> list[Clause]:
        """Each with a condition; the last one may do without."""
        found = [Clause(f"{head} AND {self.words.condition(fields, 1)}", one) for one in actions]
        if found and self.chance.random() < 0.5:
            found[-1] = Clause(head, actions[-1])
        return found


def quoted_id(shape: Shape) -> str:
    return next(one.sql for one in shape.columns if one.number == 0)


def told_clause(clause: Clause) -> str:
    if clause.values is None:
        return f"{clause.head} THEN DELETE"
    if clause.is_insert:
        listed = ", ".join(map(quoted, clause.values))
        return f"{clause.head} THEN INSERT ({listed}) VALUES ({', '.join(clause.values.values())})"
    sets = ", ".join(f"t.{quoted(name)} = {value}" for name, value in clause.values.items())
    return f"{clause.head} THEN UPDATE SET {sets}"
