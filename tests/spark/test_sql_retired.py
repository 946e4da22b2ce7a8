"""A table that moves on, and forgets its old versions at once, between a statement's look at it and its first plan."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.pool import ThreadPool

import pytest
from pyspark.sql import SparkSession

from laketx import Lake
from metaservice.client import GoneError
from tests.integration.service import wait_until
from tests.races.courses import gated_session
from tests.races.gate import Boundary, Gate

Race = tuple[SparkSession, Gate, Lake]


@pytest.fixture(scope="module")
def race(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Race]:
    folder = tmp_path_factory.mktemp("retired")
    with gated_session(folder, spark, "retired", "--purge-delay-ms", "0") as (session, gate, other):
        other.client.create_namespace("shop")
        yield session, gate, other


@pytest.mark.parametrize(
    ("name", "statement", "left"),
    [
        ("read", "SELECT id FROM retired.shop.read", [1, 2]),
        ("twice", "SELECT DISTINCT a.id FROM retired.shop.twice a JOIN retired.shop.twice b", [1, 2]),
        ("copied", "INSERT INTO retired.shop.copied SELECT max(id) + 1 FROM retired.shop.copied", [1, 2, 3]),
        ("deleted", "DELETE FROM retired.shop.deleted WHERE id = 2", [1]),
        ("metadata", "SELECT count(*) FROM retired.shop.metadata.files", [1, 2]),
    ],
)
def test_a_statement_reads_the_newest_version_then(race: Race, name: str, statement: str, left: list[int]) -> None:
    session, gate, other = race
    table = other.create_table(f"shop.{name}", "id bigint", properties={"data.retain.hours": "0"})
    table.append([{"id": 1}])
    seen = table.refresh().meta.head_version
    hold = gate.hold(Boundary.ANALYSIS)
    with ThreadPool(1) as pool:
        running = pool.apply_async(lambda: session.sql(statement).collect())
        try:
            assert hold.reached.wait(60)
            table.overwrite([{"id": 1}, {"id": 2}])
            wait_until(lambda: is_retired(other, table.table_id, seen))
        finally:
            gate.open()
        rows = running.get(60)
    assert sorted(table.refresh().to_arrow()["id"].to_pylist()) == left
    if name in ("read", "twice"):
        assert sorted(row[0] for row in rows) == left


def is_retired(lake: Lake, table_id: str, version: int) -> bool:
    try:
        lake.client.resolve_version(table_id, version=version)
    except GoneError:
        return True
    return False
