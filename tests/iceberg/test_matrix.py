"""Engines read every kind of table in every state, at the head, an old snapshot and a tag: rows are the oracle's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.iceberg.engines.environment import others_or_skip, spark_or_skip
from tests.iceberg.matrix.results import Tried, saved
from tests.iceberg.matrix.run import FAR, FORMS, NEAR, run
from tests.iceberg.matrix.tables import KINDS, LEFT_OUT, MOMENTS, STATES

READS = len(MOMENTS) * (len(KINDS) * len(STATES) - len(LEFT_OUT))


def failed(found: list[Tried]) -> set[tuple[str, str, int, str, str, str]]:
    """What can't be read, without the engines' words."""
    return {
        (one.engine, one.version, one.form, each.kind, each.state, each.moment)
        for one in found
        for each in one.failures
    }


@pytest.mark.parametrize("forms", [(3,), pytest.param(FORMS, marks=pytest.mark.long)], ids=["newest", "all"])
def test_pyiceberg_polars_and_duckdb_read_all_tables(tmp_path: Path, forms: tuple[int, ...]) -> None:
    found = run(tmp_path, NEAR, forms)
    assert [each for one in found for each in one.failures] == []
    assert [one.reads for one in found] == [READS] * len(NEAR) * len(forms)
    known = {(one.engine, one.version) for one in saved()}
    assert {(one.engine, one.version) for one in found} <= known, "run `make iceberg-matrix`"


@pytest.mark.long
@pytest.mark.parametrize("engine", ["pyiceberg", "duckdb"])
def test_tables_of_a_branch_are_read_as_those_of_the_lake(tmp_path: Path, engine: str) -> None:
    """They begin in the lake, which empties them then; all else happens on the branch."""
    found = run(tmp_path, (engine,), (3,), branch="matrix")
    assert [each for one in found for each in one.failures] == []
    assert [one.reads for one in found] == [READS]


@pytest.mark.long
def test_spark_reads_tables_of_a_branch_as_those_of_the_lake(tmp_path: Path) -> None:
    spark_or_skip()
    found = run(tmp_path, ("spark",), branch="matrix")
    assert failed(found) == failed([one for one in saved() if one.engine == "spark"])


@pytest.mark.long
def test_other_engines_read_what_the_documents_say(tmp_path: Path) -> None:
    spark_or_skip()
    others_or_skip()
    found = run(tmp_path, FAR)
    assert failed(found) == failed([one for one in saved() if one.engine in FAR])
    assert {one.engine for one in found} == set(FAR)
