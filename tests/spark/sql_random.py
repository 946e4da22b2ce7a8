"""Random statements of Spark SQL beside DuckDB: `python -m tests.spark.sql_random --seed 7` plays a seed again.

After each statement the table that it changed is read by SQL and compared with the oracle's; now and then the other
tables are too, older versions of them, and what the Python API reads.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from laketx import Lake, connect
from tests.spark.sessions import small_session
from tests.spark.sql_generator import Compact, Put, Query, Shape, Statement, Statements
from tests.spark.sql_oracle import Oracle, Row, canonical
from worker.services.compaction.daemon import Daemon
from worker.spark.catalog_jar import catalog_settings

OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
STATEMENTS: Final = 100
ROWS_SHOWN: Final = 12


class DifferentError(AssertionError):
    """Spark and the oracle don't agree, or Spark broke a rule of its own."""


class Game:
    """One seed: tables in a namespace of their own, and their copies in the oracle."""

    def __init__(self, lake: Lake, folder: str, seed: int) -> None:
        self.lake = lake
        self.space = f"seed_{seed}_{time.monotonic_ns()}"
        self.chance = random.Random(f"look {seed}")
        self.spark: SparkSession = lake.spark.newSession()
        for key, value in catalog_settings("lake", folder, folder).items():
            self.spark.conf.set(key, value)
        self.spark.sql(f"CREATE NAMESPACE lake.{self.space}")
        self.spark.sql(f"USE lake.{self.space}")
        self.statements = Statements(seed, self.space)
        self.oracle = Oracle()
        self.told: list[str] = []

    def play(self, many: int) -> int:
        """How many statements Spark and the oracle agreed on."""
        agreed = 0
        for statement in self._following(many):
            try:
                self._step(statement)
            except DifferentError as error:
                raise DifferentError(f"{error}\n\nafter\n" + ";\n".join(self.told)) from error
            agreed += 1
        self.oracle.close()
        return agreed

    def _following(self, many: int) -> Iterator[Statement]:
        yield from self.statements.creations()
        for _ in range(many):
            yield self.statements.following()

    def _step(self, statement: Statement) -> None:
        self.told.append(statement.sql)
        if isinstance(statement, Query):
            same(statement.sql, self._rows(self.spark.sql(statement.sql)), self.oracle.rows(statement.sql), statement)
            return
        shape = self.statements.tables.get(statement.table)
        before = self._head(statement.table) if shape else -1
        wanted = self.oracle.apply(statement, shape)
        is_refused = self._do(statement, wanted)
        head = self._head(statement.table)
        if (is_refused and head != before) or (head > before + 1 and not isinstance(statement, Compact)):
            raise DifferentError(f"from version {before} it went to {head}")
        self.told.append(f"-- {'refused' if is_refused else f'version {head}'}")
        for version in range(before + 1, head + 1):
            self.statements.done(statement, version)
            self.oracle.keep(statement.table, version)
        self._look(self.statements.tables[statement.table])

    def _do(self, statement: Statement, wanted: str) -> bool:
        """Whether it was refused, as it had to be."""
        mode = "dynamic" if isinstance(statement, Put) and statement.replaced == "dynamic" else "static"
        self.spark.conf.set(OVERWRITE_MODE, mode)
        try:
            self.spark.sql(statement.sql).collect()
            if isinstance(statement, Compact):
                Daemon(self.lake).run_waiting()
        except (PySparkException, Py4JJavaError) as error:
            if not wanted or wanted not in str(error):
                raise DifferentError(f"expected {wanted or 'no error'}, not {str(error)[:2000]}") from error
            return True
        if wanted:
            raise DifferentError(f"expected {wanted}")
        return False

    # -- what is there

    def _look(self, shape: Shape) -> None:
        wanted = self.oracle.content(shape)
        same("rows", self._rows(self.spark.sql(f"SELECT * FROM {shape.name}")), wanted)
        kind = self.chance.random()
        if kind < 0.2:
            table = self.lake.table(f"{self.space}.{shape.name}")
            same("rows that Python reads", self._rows(table.read()), wanted)
        elif kind < 0.4:
            version = self.chance.choice(list(shape.versions))
            old = self.spark.sql(f"SELECT * FROM {shape.name} VERSION AS OF {version}")
            same(f"rows of version {version}", self._rows(old), self.oracle.content(shape, version))
        elif kind < 0.5 and not shape.key:
            found = self._rows(self.spark.sql(f"SELECT count(DISTINCT _row_id), count(_row_id) FROM {shape.name}"))
            same("different row ids", found, [(len(wanted), len(wanted))])
        elif kind < 0.6:
            for other in self.statements.tables.values():
                same(f"rows of {other.name}", self._rows(self.spark.table(other.name)), self.oracle.content(other))
        elif kind < 0.7:
            one = self.chance.choice(shape.columns)
            sql = f"SELECT {one.sql}, count(*) FROM {shape.name} GROUP BY {one.sql}"
            same(sql, self._rows(self.spark.sql(sql)), self.oracle.rows(sql))

    def _head(self, table: str) -> int:
        return self.lake.client.get_table(name=f"{self.space}.{table}").head_version

    def _rows(self, frame: DataFrame) -> list[Row]:
        try:
            found = frame.toArrow()
        except (PySparkException, Py4JJavaError) as error:
            raise DifferentError(f"it could not be read: {str(error)[:2000]}") from error
        return [canonical(row) for row in zip(*(one.to_pylist() for one in found.columns), strict=True)]


def same(what: str, found: Sequence[Row], wanted: Sequence[Row], query: Query | None = None) -> None:
    is_ordered = query is not None and query.is_ordered
    if list(found) == list(wanted) if is_ordered else Counter(found) == Counter(wanted):
        return
    many, few = list((Counter(found) - Counter(wanted)).elements()), list((Counter(wanted) - Counter(found)).elements())
    told = "\n".join(f"  {one}" for one in many[:ROWS_SHOWN])
    missing = "\n".join(f"  {one}" for one in few[:ROWS_SHOWN])
    raise DifferentError(f"{what}\ntoo many ({len(many)} of {len(found)}):\n{told}\nmissing ({len(few)}):\n{missing}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.sql_random", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from SEED on")
    parser.add_argument("--statements", type=int, default=STATEMENTS, help="after those that create the tables")
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="laketx-sql-") as folder, connect(folder, small_session()) as lake:
        for seed in range(given.seed, given.seed + given.seeds):
            began = time.monotonic()
            game = Game(lake, folder, seed)
            try:
                game.play(given.statements)
                print(f"seed {seed}: {given.statements} statements, {time.monotonic() - began:.0f} s", flush=True)
            except DifferentError as error:
                failed += 1
                print(f"seed {seed}: {error}\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
