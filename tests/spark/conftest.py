"""One Spark and one lake for all tests of the worker; each test has tables of its own."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.spark.sessions import shared_session

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = shared_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def lake(spark: SparkSession, lake_folder: Path) -> Iterator[Lake]:
    with connect(lake_folder, spark, user="tests") as opened:
        yield opened


@pytest.fixture
def new_name() -> Callable[[], str]:
    """A table name that nobody has."""
    return lambda: f"tests.t{next(_numbers)}"
