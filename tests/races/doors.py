"""The doors: how each of them carries out a statement, and how it says that it lost a race."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from laketx import Lake, Table
from laketx.connection import CLIENT_NAME
from metaservice.client import ConflictError, MetaClient
from tests.races.gate import Boundary
from tests.races.statements import BASE, FIRST, Kind, Rows, Statement

Policy = Literal["fail", "rerun"]
SCHEMA: Final = "id bigint, day string, n bigint"
ARROW: Final = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])
POLICY: Final = "spark.laketx.on_conflict"
OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
ADAPTIVE: Final = "spark.sql.adaptive.enabled"
SET: Final = {"UPDATE with subquery": "0"}  # what an UPDATE sets n to


class WithoutSpark(Lake):
    """A lake that uses no Spark, also where the program has a session."""

    @property
    def uses_spark(self) -> bool:
        return False


def connect_without_spark(uri: str, warehouse: str) -> WithoutSpark:
    return WithoutSpark(MetaClient(uri, principal="races", client_name=CLIENT_NAME), warehouse, None, uri=uri)


class Door(ABC):
    """One way of carrying out statements. Each runs in the thread that calls `run`."""

    name: str
    is_one_call = False  # small blind INSERTs begin and commit at once
    looks_again = False  # Spark looks at a statement's tables once more before it runs
    says_outcome = True  # whether the docs say which outcome a meeting has; else the rows alone tell
    boundaries: Sequence[Boundary] = tuple(Boundary)

    @abstractmethod
    def does(self, statement: Statement, *, keyed: bool) -> bool:
        """Whether the door has this statement."""

    def know(self, table: str) -> None:  # noqa: B027 - most doors find a table by its name
        """Looks at the table before a statement begins, where a program has a handle of it."""

    @abstractmethod
    def run(self, statement: Statement, table: str, policy: Policy) -> None:
        """Raises if it fails."""

    def reruns(self, statement: Statement) -> bool:
        """Whether `rerun` repeats the statement here."""
        return statement.kind not in (Kind.MINOR, Kind.MAJOR)


def is_conflict(error: Exception, earlier: Statement) -> bool:
    """Also a refusal of columns that the earlier statement has redefined."""
    if isinstance(error, ConflictError) or (earlier.defines and "SCHEMA_VERSION_MISMATCH" in str(error)):
        return True
    if type(error).__module__ == "pyiceberg.exceptions":
        return type(error).__name__ in ("CommitFailedException", "ValidationException")
    return isinstance(error, PySparkException) and any(sign in str(error) for sign in ("LOST_RACE", "CONFLICT_"))


# -- without Spark -----------------------------------------------------------------------------------------------------


class Arrow(Door):
    """Python's verbs without Spark."""

    name = "Python, Arrow"
    is_one_call = True

    def __init__(self, lake: Lake, *, copies: bool = True) -> None:
        """`copies`: it has the statements whose rows are a scan of the table, too."""
        self._lake = lake
        self._copies = copies
        self._known: dict[str, Table] = {}

    def know(self, table: str) -> None:
        self._known[table] = self._lake.table(table)

    def does(self, statement: Statement, *, keyed: bool) -> bool:
        if statement.kind in (Kind.MINOR, Kind.MAJOR) or statement.defines or statement.name.startswith("REPLACE"):
            return False
        if statement.kind is Kind.CHANGE:
            return statement.name in ("DELETE", "UPDATE", "MERGE upsert", "MERGE insert only")
        return not statement.reads or (self._copies and bool(statement.copies))

    def run(self, statement: Statement, table: str, policy: Policy) -> None:
        found = self._known.pop(table, None) or self._lake.table(table)
        if statement.name == "DELETE":
            found.delete(statement.where, on_conflict=policy)
        elif statement.name == "UPDATE":
            found.update({"n": "n + 10"}, statement.where, on_conflict=policy)
        elif statement.kind is Kind.CHANGE:
            merge = found.merge(_dicts(statement.meaning(()).added), on=["day", "id"])
            if statement.name != "MERGE insert only":
                merge = merge.when_matched_update({"n": "target.n + source.n"})
            merge.when_not_matched_insert().execute(on_conflict=policy)
        elif statement.name == "RESTORE":
            found.restore(version=1, on_conflict=policy)
        elif statement.name.startswith("TRUNCATE"):
            found.truncate(partition=_partitions(statement), on_conflict=policy)
        else:
            self._bring(found, statement, policy)

    def _bring(self, table: Table, statement: Statement, policy: Policy) -> None:
        rows = _scan(table, statement.copies) if statement.copies else _dicts(statement.meaning(()).added)
        if statement.kind is Kind.OVERWRITE:
            table.overwrite(rows, partition=_partitions(statement), on_conflict=policy)
        else:
            (table.upsert if table.meta.primary_key else table.append)(rows, on_conflict=policy)


def _scan(table: Table, where: str) -> Any:
    return table.scanner() if where == "all" else table.scanner(where=where)


def _dicts(rows: Rows) -> list[dict[str, Any]]:
    return [{"id": key, "day": day, "n": n} for key, day, n in rows]


def _partitions(statement: Statement) -> Any:
    named = statement.partitions
    return named if named in ("all", "dynamic") else {"day": named}


class Iceberg(Door):
    """pyiceberg over the REST catalog: it loads a table first, and after a 409 it looks, and tries again.

    It says what it read by the filters of deletes and overwrites, and by the keys of an upsert. So appends bring rows
    from elsewhere.
    """

    name = "Iceberg, pyiceberg"
    says_outcome = False

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog
        self._known: dict[str, Any] = {}

    def know(self, table: str) -> None:
        self._known[table] = self._catalog.load_table(table)

    def does(self, statement: Statement, *, keyed: bool) -> bool:
        if keyed or statement.defines or statement.name == "RESTORE" or statement.name.startswith("REPLACE"):
            return False
        if statement.kind is Kind.CHANGE:
            return statement.name in ("DELETE", "UPDATE", "MERGE upsert", "MERGE insert only")
        is_copy = statement.kind is Kind.OVERWRITE and bool(statement.copies)
        return statement.kind in (Kind.INSERT, Kind.OVERWRITE) and (not statement.reads or is_copy)

    def reruns(self, statement: Statement) -> bool:
        return False

    def run(self, statement: Statement, table: str, policy: Policy) -> None:
        found = self._known.pop(table, None) or self._catalog.load_table(table)
        if statement.name == "DELETE":
            found.delete(statement.where)
        elif statement.name == "UPDATE":
            rows = found.scan(row_filter=statement.where).to_arrow().to_pylist()
            changed = pa.Table.from_pylist([row | {"n": row["n"] + 10} for row in rows], schema=ARROW)
            found.upsert(changed, join_cols=["day", "id"])
        elif statement.kind is Kind.CHANGE:
            self._merge(found, statement)
        elif statement.name.startswith("TRUNCATE"):
            found.delete(_filter(statement))
        else:
            self._bring(found, statement)

    def _merge(self, table: Any, statement: Statement) -> None:
        target, updates = statement.target, statement.name == "MERGE upsert"
        where = f"day = '{target.day}' AND id IN ({target.id}, {target.new})"
        known = {row["id"]: row["n"] for row in table.scan(row_filter=where).to_arrow().to_pylist()}
        rows = _dicts(((target.id, target.day, 5), (target.new, target.day, 7)))
        merged = [row | {"n": row["n"] + known.get(row["id"], 0)} for row in rows] if updates else rows
        table.upsert(
            pa.Table.from_pylist(merged, schema=ARROW), join_cols=["day", "id"], when_matched_update_all=updates
        )

    def _bring(self, table: Any, statement: Statement) -> None:
        if statement.copies:
            chosen = {} if statement.copies == "all" else {"row_filter": statement.copies}
            rows = table.scan(**chosen).to_arrow()
        else:
            rows = pa.Table.from_pylist(_dicts(statement.meaning(()).added), schema=ARROW)
        if statement.kind is Kind.INSERT:
            table.append(rows)
        elif statement.partitions == "dynamic":
            table.dynamic_partition_overwrite(rows)
        else:
            table.overwrite(rows, overwrite_filter=_filter(statement))


def _filter(statement: Statement) -> str:
    return "true" if statement.partitions == "all" else f"day = '{statement.partitions}'"


# -- with Spark --------------------------------------------------------------------------------------------------------


class Sql(Door):
    """Statements of Spark SQL."""

    name = "Spark SQL"
    looks_again = True

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark = spark
        self._catalog = catalog

    def does(self, statement: Statement, *, keyed: bool) -> bool:
        return bool(statement.sql)

    def run(self, statement: Statement, table: str, policy: Policy) -> None:
        self._spark.conf.set(POLICY, policy)
        self._spark.conf.set(OVERWRITE_MODE, "dynamic" if statement.partitions == "dynamic" else "static")
        self._spark.sql(filled(statement.sql, self._catalog, table)).collect()


def filled(text: str, catalog: str, table: str) -> str:
    return text.replace("{t}", f"{catalog}.{table}").replace("{c}", catalog).replace("{n}", table)


class Frames(Door):
    """DataFrames: `writeTo` in its forms, and `mergeInto`."""

    name = "Spark DataFrames"
    looks_again = True

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark = spark
        self._catalog = catalog

    def does(self, statement: Statement, *, keyed: bool) -> bool:
        return bool(statement.query)

    def run(self, statement: Statement, table: str, policy: Policy) -> None:
        self._spark.conf.set(POLICY, policy)
        target = f"{self._catalog}.{table}"
        rows = self._spark.sql(filled(statement.query, self._catalog, table))
        if statement.kind is Kind.CHANGE:
            self._merge(statement, rows.alias("s"), target)
            return
        writer = rows.writeTo(target)
        if statement.defines:
            writer.createOrReplace()
        elif statement.kind is Kind.INSERT:
            writer.append()
        elif statement.partitions == "dynamic":
            writer.overwritePartitions()
        else:
            every = statement.partitions == "all"
            writer.overwrite(sf.lit(True) if every else sf.col("day") == statement.partitions)

    def _merge(self, statement: Statement, rows: DataFrame, target: str) -> None:
        same = (sf.col(f"{target}.day") == sf.col("s.day")) & (sf.col(f"{target}.id") == sf.col("s.id"))
        merge = rows.mergeInto(target, same)
        if statement.name != "MERGE insert only":
            merge = merge.whenMatched().update({"n": sf.col(f"{target}.n") + sf.col("s.n")})
        if statement.name != "MERGE own rows":
            merge = merge.whenNotMatched().insert({name: sf.col(f"s.{name}") for name in ("id", "day", "n")})
        merge.merge()


class Verbs(Door):
    """Python's verbs on Spark. What the table itself brings is read by `Table.read`."""

    name = "Python, Spark"

    def __init__(self, lake: Lake, spark: SparkSession, catalog: str) -> None:
        self._lake = lake
        self._spark = spark
        self._catalog = catalog
        self._known: dict[str, Table] = {}

    def know(self, table: str) -> None:
        self._known[table] = self._lake.table(table)

    def does(self, statement: Statement, *, keyed: bool) -> bool:
        return not statement.defines and not statement.name.startswith("REPLACE WHERE")

    def reruns(self, statement: Statement) -> bool:
        return super().reruns(statement) and "{t}" not in statement.query  # what `read` found stays as it is

    def run(self, statement: Statement, table: str, policy: Policy) -> None:
        found = self._known.pop(table, None) or self._lake.table(table)
        if statement.kind in (Kind.MINOR, Kind.MAJOR):
            found.compact(statement.kind.name.lower())
        elif statement.name == "RESTORE":
            found.restore(version=1, on_conflict=policy)
        elif statement.name.startswith("TRUNCATE"):
            found.truncate(partition=_partitions(statement), on_conflict=policy)
        elif statement.kind is Kind.CHANGE:
            self._change(found, statement, policy)
        elif statement.kind is Kind.OVERWRITE:
            found.overwrite(self._rows(found, statement), partition=_partitions(statement), on_conflict=policy)
        else:
            found.insert(self._rows(found, statement), on_conflict=policy)

    def _rows(self, table: Table, statement: Statement) -> DataFrame:
        if "{t}" in statement.query:
            table.read().createOrReplaceTempView("own_rows")
        return self._spark.sql(statement.query.replace("{t}", "own_rows"))

    def _change(self, table: Table, statement: Statement, policy: Policy) -> None:
        where = filled(statement.where, self._catalog, table.name)
        if statement.name.startswith("DELETE"):
            table.delete(where, on_conflict=policy)
        elif statement.name.startswith("UPDATE"):
            table.update({"n": SET.get(statement.name, "n + 10")}, where, on_conflict=policy)
        else:
            merge = table.merge(self._rows(table, statement), ["day", "id"])
            if statement.name != "MERGE insert only":
                merge = merge.when_matched_update({"n": "target.n + source.n"})
            if statement.name != "MERGE own rows":
                merge = merge.when_not_matched_insert()
            merge.execute(on_conflict=policy)


def make_table(lake: Lake, name: str, profile: str, *, keyed: bool, inlined: bool) -> None:
    """With two versions of rows, so that compactions have something to do."""
    key: dict[str, Any] = {"primary_key": ["id", "day"], "buckets": 1} if keyed else {}
    said = {"user.iceberg.commit.retry.min-wait-ms": "10"} | ({} if inlined else {"write.inline.rows": "0"})
    table = lake.create_table(name, SCHEMA, partition_by=["day"], profile=profile, properties=said, **key)
    for rows in (FIRST, BASE[len(FIRST) :]):
        (table.upsert if keyed else table.append)(_dicts(rows))
