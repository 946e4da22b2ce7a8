"""A part of the pairs of `make races`: every statement is in it that fits into its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.races.courses import course_of_iceberg, course_with_spark, course_without_spark
from tests.races.gate import Boundary
from tests.races.known import outdated, unknown
from tests.races.pairs import Course, Pair, Result, sampled
from tests.spark.sessions import shared_session, shared_settings

SEED = 20261125


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = shared_session()
    before = shared_settings()
    yield session
    assert shared_settings() == before


@pytest.fixture(scope="module")
def with_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    with course_with_spark(tmp_path_factory.mktemp("races"), spark) as course:
        yield course


@pytest.fixture(scope="module")
def without_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    with course_without_spark(tmp_path_factory.mktemp("races")) as course:
        yield course


@pytest.fixture(scope="module")
def of_iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    with course_of_iceberg(tmp_path_factory.mktemp("races")) as course:
        yield course


def check(course: Course, seed: int, count: int) -> list[Result]:
    results = [course.play(pair) for pair in sampled(list(course.pairs()), seed, count)]
    assert not unknown(results), "\n".join(map(str, unknown(results)))
    return results


def test_races_without_spark(without_spark: Course) -> None:
    check(without_spark, SEED, 40)


def test_races_of_iceberg(of_iceberg: Course) -> None:
    check(of_iceberg, SEED, 4)


def test_second_tries_of_iceberg(of_iceberg: Course) -> None:
    """pyiceberg looks at what removed the rows that it read, and the catalog at new rows beside those of an upsert."""
    names = [("OVERWRITE all, copy", "TRUNCATE"), ("UPDATE", "DELETE"), ("MERGE insert only", "INSERT values")]
    pairs = [
        replace(pair, inlined=inlined)
        for pair in of_iceberg.pairs()
        if (pair.later.name, pair.earlier.name) in names and pair.place == "same row"
        if pair.profile == "delta_serializable" and pair.boundary is Boundary.BEGIN
        for inlined in (False, True)
    ]
    results = [of_iceberg.play(pair) for pair in pairs]
    assert [str(one) for one in results if not one.is_right] == []
    assert [one.outcome for one in results] == ["conflicts"] * 2 * len(names)


def test_races_with_spark(with_spark: Course) -> None:
    check(with_spark, SEED, 5)


def reruns(course: Course, *names: str) -> Iterator[Pair]:
    """What reads rows that an UPDATE changes before it commits; `names`: of these doors and statements alone."""
    for pair in course.pairs():
        is_met = pair.earlier.name == "UPDATE by value" and pair.place == "same partition" and not pair.keyed
        is_asked = not names or f"{pair.door}: {pair.later.name}" in names
        if is_met and is_asked and pair.profile == "delta_serializable" and pair.boundary is Boundary.COMMIT:
            yield replace(pair, policy="rerun")


def test_rerun_repeats_statements_and_dataframes(with_spark: Course) -> None:
    names = (
        "Spark SQL: TRUNCATE",
        "Spark SQL: REPLACE TABLE, own rows",
        "Spark DataFrames: REPLACE TABLE, own rows",
        "Spark DataFrames: INSERT copy",
        "Spark DataFrames: MERGE own rows",
    )
    results = [with_spark.play(pair) for pair in reruns(with_spark, *names)]
    assert [str(one) for one in results if not one.is_right] == []
    assert [one.outcome for one in results] == ["commits"] * len(names)


@pytest.mark.long
def test_rerun_repeats_whatever_reads(with_spark: Course) -> None:
    results = [with_spark.play(pair) for pair in reruns(with_spark)]
    assert not unknown(results), "\n".join(map(str, unknown(results)))


@pytest.mark.long
def test_many_races_without_spark(without_spark: Course) -> None:
    results = check(without_spark, SEED + 1, 2_000)
    assert not outdated(results), f"take it off the list in known.py: {outdated(results)}"


@pytest.mark.long
def test_many_races_of_iceberg(of_iceberg: Course) -> None:
    results = check(of_iceberg, SEED + 1, 500)
    assert not outdated(results), f"take it off the list in known.py: {outdated(results)}"


@pytest.mark.long
def test_many_races_with_spark(with_spark: Course) -> None:
    results = check(with_spark, SEED + 1, 500)
    assert not outdated(results), f"take it off the list in known.py: {outdated(results)}"
