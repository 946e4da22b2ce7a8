"""One Spark and one lake for all tests of the worker; each test has tables of its own."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from tests.spark.held_races import Races
from tests.spark.sessions import shared_session, shared_settings
from tests.spark.sql import SqlReads

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = shared_session()
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def leaves_the_session_as_it_was() -> Iterator[None]:
    """Tests run in any order: what one sets in the shared session, another would find."""
    before = shared_settings()
    yield
    if before is not None:
        assert shared_settings() == before


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


@pytest.fixture(scope="session")
def lake_sql(lake: Lake) -> SqlReads:
    """The lake in SQL, with the namespace of `new_name`."""
    lake.client.create_namespace("tests", if_not_exists=True)
    return SqlReads(lake)


@pytest.fixture
def races(lake: Lake, lake_sql: SqlReads, tmp_path: Path, new_name: Callable[[], str]) -> Races:
    return Races(lake, lake_sql, tmp_path, new_name)
