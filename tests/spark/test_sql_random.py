"""Random statements of Spark SQL beside DuckDB; `python -m tests.spark.sql_random --seed N` plays a seed again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.spark.sql_random import Game


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, folder: Path) -> Iterator[Lake]:
    """Of its own: the games run the compactions that wait there."""
    with connect(folder, spark, user="tests") as opened:
        yield opened


@pytest.mark.parametrize(
    ("seed", "statements"),
    [(1, 25), *(pytest.param(seed, 60, marks=pytest.mark.long) for seed in range(100, 110))],
)
def test_random_statements(lake: Lake, folder: Path, seed: int, statements: int) -> None:
    assert Game(lake, str(folder), seed).play(statements) > statements
