"""One Spark and one lake for all tests of the worker; each test has tables of its own."""

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from worker import Lake, connect

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark needs Java 17 or later, which is not installed here")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of Spark's Python workers
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark")))
        .config("spark.local.dir", str(tmp_path_factory.mktemp("local")))
        .getOrCreate()
    )
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
