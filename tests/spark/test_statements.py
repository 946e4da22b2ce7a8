"""The statements in tests/sql, each file in a session of its own over the shared lake."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import Lake
from tests.spark.statements import files, play
from worker.base.spark_jar import catalog_settings


@pytest.fixture(scope="module")
def known(spark: SparkSession, lake: Lake, lake_folder: Path) -> dict[str, str]:
    """Settings of the catalog `lake`."""
    return catalog_settings("lake", str(lake_folder), str(lake_folder))


@pytest.mark.parametrize(("path", "kind"), [pytest.param(*one, id=f"{one[0].stem}-{one[1]}") for one in files()])
def test_statements(spark: SparkSession, known: dict[str, str], path: Path, kind: str) -> None:
    session = spark.newSession()
    for key, value in known.items():
        session.conf.set(key, value)
    failures = play(session, path, kind)
    assert not failures, "\n\n".join(failures)
