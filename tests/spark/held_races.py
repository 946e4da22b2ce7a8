"""Races of statements of SQL: one waits, analysed but before its first task writes, until another commit is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import Lake, Table
from tests.spark.held import Held
from tests.spark.sql import SqlReads

_numbers = itertools.count()
Names = Callable[[], str]
Other = Callable[[Table], Any]

ON_CONFLICT: Final = "spark.laketx.on_conflict"
PROFILES: Final = ("maxcompute", "delta_serializable", "delta_write_serializable", "row_level")
HOLDS: Final = "(SELECT max(held(id)) FROM range(1, 2))"  # Spark asks it before a task writes
COMMITS: Final = "commits"
_ROWS: Final = [{"id": 1, "v": 10, "p": 1}, {"id": 2, "v": 20, "p": 2}]


class Races:
    def __init__(self, lake: Lake, sql: SqlReads, folder: Path, new_name: Names) -> None:
        self.lake, self.sql, self.folder, self.new_name = lake, sql, folder, new_name

    def table(self, profile: str, *, keyed: bool = False, parted: bool = True) -> Table:
        """Of ids 1 and 2, each in a partition of its own."""
        made = self.lake.create_table(
            self.new_name(),
            "id bigint, v bigint, p int",
            primary_key=["id", "p"] if keyed else [],
            buckets=1 if keyed else None,
            partition_by=["p"] if parted else [],
            profile=profile,
        )
        made.upsert(_ROWS) if keyed else made.append(_ROWS)
        return made

    def shown(self, table: Table) -> str:
        """Its name in SQL."""
        return f"{self.sql.name}.{table.name}"

    def run(self, statement: str | Callable[[], Any], table: Table, meanwhile: Other) -> str:
        """`{t}` is the table. The answer is "commits", or the message of the refusal."""
        folder = self.folder / str(next(_numbers))
        folder.mkdir()
        held = Held(self.sql.spark, folder, "held")
        if isinstance(statement, str):
            text = statement.replace("{t}", self.shown(table))
            lost = held.run(lambda: self.sql.spark.sql(text), lambda: meanwhile(table))
        else:
            lost = held.run(statement, lambda: meanwhile(table))
        if lost is None:
            return COMMITS
        assert isinstance(lost, PySparkException), lost
        return str(lost)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.refresh().to_arrow().to_pylist())


def ids(table: Table) -> list[int]:
    return [row[0] for row in rows(table)]


def values(table: Table) -> list[int]:
    return sorted(row[1] for row in rows(table))


def adds(table: Table) -> None:
    table.append([{"id": 3, "v": 30, "p": 1}])


def replaces(table: Table) -> None:
    table.overwrite([{"id": 7, "v": 70, "p": 1}, {"id": 7, "v": 71, "p": 2}])


def changes(table: Table) -> None:
    table.update({"v": 11}, where="id = 1")
