"""The statements in tests/sql, each file in a session of its own over the shared lake."""

from itertools import cycle, groupby
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import SparkSession

from laketx import Lake
from tests.spark.statements import KEYS, files, play, records
from worker.spark.catalog_jar import catalog_settings

# What else in `make test` plays the like of these files, which `make test-long` plays.
ELSEWHERE: Final = {
    "change_rows": "test_sql_rows.py, test_write_rows.py, test_merges.py",
    "changes": "test_sql_changes.py",
    "defaults": "test_defaults.py",
    "harmless": "test_sql_harmless.py",
    "moves": "test_moves.py, test_sql_moves.py",
    "nested": "test_nested.py",
    "queries": "test_sql_reads.py, test_sql_random.py",
    "story": "the other files",
    "types": "test_types.py, test_sql_reads.py",
    "versions": "test_sql_reads.py",
}


@pytest.fixture(scope="module")
def known(spark: SparkSession, lake: Lake, lake_folder: Path) -> dict[str, str]:
    """Settings of the catalog `lake`."""
    return catalog_settings("lake", str(lake_folder), str(lake_folder))


def plays() -> list[ParameterSet]:
    """Each file; one for both kinds of table for one of them, in turn. `-m long` plays the other, and long records."""
    found, kinds = [], cycle(KEYS)
    for path, both in groupby(files(), key=lambda one: one[0]):
        played = [kind for _, kind in both]
        quick = next(kinds) if len(played) > 1 else played[0]
        has_long = any(record.is_long for record in records(path.read_text(encoding="utf-8")))
        for kind in played:
            is_quick = kind == quick and path.stem not in ELSEWHERE
            marks = () if is_quick else pytest.mark.long
            found.append(pytest.param(path, kind, not is_quick, id=f"{path.stem}-{kind}", marks=marks))
            if is_quick and has_long:
                found.append(pytest.param(path, kind, True, id=f"{path.stem}-{kind}-whole", marks=pytest.mark.long))
    return found


@pytest.mark.parametrize(("path", "kind", "whole"), plays())
def test_statements(spark: SparkSession, known: dict[str, str], path: Path, kind: str, whole: bool) -> None:
    session = spark.newSession()
    for key, value in known.items():
        session.conf.set(key, value)
    failures = play(session, path, kind, whole=whole)
    assert not failures, "\n\n".join(failures)
