"""`on_conflict`, where a plain statement isn't all: procedures, several inserts, writers, batches of streams.

A statement waits at its commit while another commit comes; see test_sql_isolation.py for plain ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from laketx import Table
from tests.races.courses import gated_session
from tests.races.doors import WithoutSpark
from tests.races.gate import Boundary, Gate
from tests.spark.held_races import ON_CONFLICT, Names, adds, ids, rows, setting, values

RESTORE: Final = "CALL reruns.system.restore(table => '{n}', version => 2)"
COMMITS: Final = "commits"


class Reruns:
    """A catalog `reruns` behind a gate."""

    def __init__(self, session: SparkSession, gate: Gate, lake: WithoutSpark, new_name: Names) -> None:
        self.session, self.gate, self.lake, self.new_name = session, gate, lake, new_name

    def table(self, profile: str = "delta_serializable") -> Table:
        """Version 2 has the ids 1 and 2, each in a partition of its own."""
        made = self.lake.create_table(
            self.new_name(), "id bigint, v bigint, p int", partition_by=["p"], profile=profile
        )
        for key in (1, 2):
            made.append([{"id": key, "v": key * 10, "p": key}])
        return made

    def lose(self, statement: str | Callable[[str], Any], table: Table, policy: str = "rerun") -> str:
        """Another row comes in before it commits. The answer is "commits", or the message of the refusal."""
        name = f"reruns.{table.name}"

        def work() -> None:
            self.session.createDataFrame(
                [], "id int"
            )  # makes the session that of the thread, where `save` looks for it
            statement(name) if callable(statement) else self.session.sql(filled(statement, table)).collect()

        hold = self.gate.hold(Boundary.COMMIT)
        with setting(self.session, ON_CONFLICT, policy), ThreadPool(1) as pool:
            running = pool.apply_async(work)
            try:
                assert hold.reached.wait(60), running.get(0)
                adds(table)
            finally:
                self.gate.open()
            try:
                running.get(120)
            except PySparkException as error:
                return str(error)
            return COMMITS


def filled(text: str, table: Table) -> str:
    return text.replace("{t}", f"reruns.{table.name}").replace("{n}", table.name)


@pytest.fixture(scope="module")
def gated(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SparkSession, Gate, WithoutSpark]]:
    with gated_session(tmp_path_factory.mktemp("reruns"), spark, "reruns") as (session, gate, lake):
        lake.client.create_namespace("tests")
        yield session, gate, lake


@pytest.fixture
def reruns(gated: tuple[SparkSession, Gate, WithoutSpark], new_name: Names) -> Reruns:
    return Reruns(*gated, new_name)


# -- procedures


def test_a_restore_runs_again(reruns: Reruns) -> None:
    table = reruns.table()
    assert reruns.lose(RESTORE, table) == COMMITS
    assert ids(table) == [1, 2]


def test_a_restore_that_lost_says_to_whom(reruns: Reruns) -> None:
    table = reruns.table()
    for policy in ("fail", "resubmit"):  # as a setting it is for the inserts of a session
        found = reruns.lose(RESTORE, table, policy)
        assert "LOST_RACE" in found
        assert "winner: INSERT" in found
    assert ids(table) == [1, 2, 3, 3]


def test_a_restore_is_told_what_to_do_after_a_lost_race(reruns: Reruns) -> None:
    table = reruns.table()
    as_argument = RESTORE.replace(")", ", on_conflict => '{p}')")
    with pytest.raises(PySparkException, match="POLICY_INVALID"):
        reruns.session.sql(filled(as_argument, table).replace("{p}", "resubmit"))
    assert "LOST_RACE" in reruns.lose(as_argument.replace("{p}", "fail"), table)
    assert reruns.lose(as_argument.replace("{p}", "rerun"), table, "fail") == COMMITS
    assert ids(table) == [1, 2]


def test_a_rollback_that_runs_again_counts_from_the_newest_commit(reruns: Reruns) -> None:
    table = reruns.table()
    assert reruns.lose("CALL reruns.system.rollback(table => '{n}')", table) == COMMITS
    assert ids(table) == [1, 2]


# -- statements that are more than one write, or none of rows


def test_of_several_inserts_the_one_that_lost_runs_again(reruns: Reruns) -> None:
    table, other = reruns.table(), reruns.table()
    several = "FROM {t} INSERT OVERWRITE {t} SELECT id, v + 1, p INSERT INTO {o} SELECT id + 10, v, p"
    assert reruns.lose(several.replace("{o}", f"reruns.{other.name}"), table) == COMMITS
    assert rows(table) == [(1, 11, 1), (2, 21, 2), (3, 31, 1)]
    assert ids(other) == [1, 2, 11, 12]


@pytest.mark.parametrize(
    ("text", "left"),
    [("TRUNCATE TABLE IDENTIFIER(:t)", []), ("TRUNCATE TABLE IDENTIFIER(:t) PARTITION (p = 1)", [2])],
)
def test_a_truncate_with_parameters_runs_again(reruns: Reruns, text: str, left: list[int]) -> None:
    table = reruns.table()
    assert reruns.lose(lambda name: reruns.session.sql(text, {"t": name}), table) == COMMITS
    assert ids(table) == left


# -- writers of DataFrames, alone and in a batch of a stream


def _next(session: SparkSession, name: str) -> DataFrame:
    return session.table(name).selectExpr("id", "v + 1 AS v", "p")


WRITES: Final[dict[str, Callable[[SparkSession, str], Any]]] = {
    "replace by SQL": lambda session, name: session.sql(
        f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (p) AS SELECT id, v + 1 AS v, p FROM {name}"
    ),
    "createOrReplace": lambda session, name: _next(session, name).writeTo(name).partitionedBy("p").createOrReplace(),
    "insertInto": lambda session, name: _next(session, name).write.insertInto(name, overwrite=True),
    "save": lambda session, name: _next(session, name).write.format("laketx").mode("overwrite").save(name),
    "saveAsTable": lambda session, name: (
        _next(session, name).write.mode("overwrite").partitionBy("p").saveAsTable(name)
    ),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_writer_computes_again(reruns: Reruns, write: str) -> None:
    table = reruns.table()
    assert reruns.lose(lambda name: WRITES[write](reruns.session, name), table) == COMMITS
    assert values(table) == [11, 21, 31]


@pytest.mark.parametrize(
    "write", [one if at < 2 else pytest.param(one, marks=pytest.mark.long) for at, one in enumerate(WRITES)]
)
def test_a_writer_in_a_batch_of_a_stream_computes_again(reruns: Reruns, tmp_path: Path, write: str) -> None:
    table, source = reruns.table(), reruns.table()

    def batch(frame: DataFrame, _: int) -> None:
        WRITES[write](frame.sparkSession, f"reruns.{table.name}")

    def stream(_: str) -> None:
        read = reruns.session.readStream.table(f"reruns.{source.name}").writeStream.foreachBatch(batch)
        read.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()

    assert reruns.lose(stream, table) == COMMITS
    assert values(table) == [11, 21, 31]
