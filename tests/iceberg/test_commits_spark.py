"""Spark with Iceberg's own jar writes tables of LakeTX through the REST catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from laketx import Lake
from tests.iceberg.engines.environment import run_statements
from tests.iceberg.servers import Server
from tests.iceberg.writers import head, ids

pytestmark = pytest.mark.long
WRITES = (
    "CREATE NAMESPACE lake.{0}",
    "CREATE TABLE lake.{0}.a (id BIGINT, note STRING, day DATE) USING iceberg PARTITIONED BY (day)",
    "INSERT INTO lake.{0}.a VALUES (1, 'x', DATE '2026-11-01'), (2, 'y', DATE '2026-11-02')",
    "INSERT INTO lake.{0}.a SELECT id, 'z', DATE '2026-11-03' FROM range(10, 13)",
    "CREATE TABLE lake.{0}.b USING iceberg AS SELECT * FROM lake.{0}.a",
    "ALTER TABLE lake.{0}.a ADD COLUMN w DOUBLE",
    "INSERT INTO lake.{0}.a VALUES (20, 'w', DATE '2026-11-04', 1.5)",
)
REFUSED = (
    "DELETE FROM lake.{0}.a WHERE id = 1",
    "UPDATE lake.{0}.a SET note = 'q'",
    "INSERT OVERWRITE lake.{0}.a SELECT * FROM lake.{0}.a",
)
READS = ("SELECT id FROM lake.{0}.a ORDER BY id", "SELECT id FROM lake.{0}.b ORDER BY id")


@pytest.mark.parametrize("form", ["v2", "v3"])
def test_spark_creates_inserts_and_adds_columns(lake: Lake, server: Server, tmp_path: Path, form: str) -> None:
    answers = run_statements(server.url, tmp_path, form, [one.format(form) for one in (*WRITES, *REFUSED, *READS)])
    done, refused, read = answers[: len(WRITES)], answers[len(WRITES) : -len(READS)], answers[-len(READS) :]
    assert [one.get("error", "") for one in done] == [""] * len(WRITES)
    assert ["ICEBERG_WRITE" in one.get("error", "") for one in refused] == [True] * len(REFUSED)
    assert [[row[0] for row in one["rows"]] for one in read] == [[1, 2, 10, 11, 12, 20], [1, 2, 10, 11, 12]]
    first, second = lake.table(f"{form}.a"), lake.table(f"{form}.b")
    assert (ids(first), ids(second)) == ([1, 2, 10, 11, 12, 20], [1, 2, 10, 11, 12])
    assert (head(first), head(second)) == (4, 1)
    assert list(first.meta.partition_columns) == ["day"]
    assert first.to_arrow(where="w = 1.5").column("id").to_pylist() == [20]
