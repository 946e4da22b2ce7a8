"""The statements in tests/sql, each file in a session of its own over the shared lake."""

from itertools import cycle, groupby
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import SparkSession

from laketx import Lake
from tests.spark.statements import KEYS, files, play
from worker.spark.catalog_jar import catalog_settings


@pytest.fixture(scope="module")
def known(spark: SparkSession, lake: Lake, lake_folder: Path) -> dict[str, str]:
    """Settings of the catalog `lake`."""
    return catalog_settings("lake", str(lake_folder), str(lake_folder))


def plays() -> list[ParameterSet]:
    """Each file; one for both kinds of table for one of them, in turn. `-m long` plays it for the other."""
    found, kinds = [], cycle(KEYS)
    for path, both in groupby(files(), key=lambda one: one[0]):
        played = [kind for _, kind in both]
        quick = next(kinds) if len(played) > 1 else played[0]
        for kind in played:
            marks = () if kind == quick else pytest.mark.long
            found.append(pytest.param(path, kind, id=f"{path.stem}-{kind}", marks=marks))
    return found


@pytest.mark.parametrize(("path", "kind"), plays())
def test_statements(spark: SparkSession, known: dict[str, str], path: Path, kind: str) -> None:
    session = spark.newSession()
    for key, value in known.items():
        session.conf.set(key, value)
    failures = play(session, path, kind)
    assert not failures, "\n\n".join(failures)
