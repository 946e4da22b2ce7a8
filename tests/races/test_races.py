"""A part of the pairs of `make races`: every statement is in it that fits into its time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.races.courses import course_of_iceberg, course_with_spark, course_without_spark
from tests.races.known import outdated, unknown
from tests.races.pairs import Course, Result, sampled
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
    check(without_spark, SEED, 100)


def test_races_of_iceberg(of_iceberg: Course) -> None:
    check(of_iceberg, SEED, 8)


def test_races_with_spark(with_spark: Course) -> None:
    check(with_spark, SEED, 10)


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
