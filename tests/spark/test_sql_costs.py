"""What a statement costs: the table in docs/spark-sql.md says what is counted here."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metaservice.client import MetaClient
from tests.house.tree import ROOT
from tests.integration.service import Service
from tests.spark.counted_calls import Counted, counted_service, session_on
from tests.spark.processes import wait_until
from worker.spark.jobs import job_tag

SECTION = re.compile(r"^## What it costs$(?P<text>.*?)^## ", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(?P<statement>[^`]+)` \| (?P<calls>\d+) \| (?P<jobs>\d+) \|$", re.MULTILINE)
SETUP = """
CREATE NAMESPACE lake.shop;
CREATE TABLE lake.shop.events (id BIGINT, day DATE, amount DOUBLE) PARTITIONED BY (day);
CREATE TABLE lake.shop.orders (id BIGINT, day DATE, amount DOUBLE, PRIMARY KEY (id)) TBLPROPERTIES ('buckets' = '2');
INSERT INTO lake.shop.events SELECT id, DATE'2026-11-01' + CAST(id % 3 AS INT), id FROM range(30);
INSERT INTO lake.shop.orders SELECT id, DATE'2026-11-01' + CAST(id % 3 AS INT), id FROM range(30);
INSERT INTO lake.shop.orders VALUES (3, DATE'2026-11-01', 0)
"""


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[Counted, str, Service]]:
    """With its address."""
    with counted_service(tmp_path / "store") as found:
        yield found


def settled(spark: SparkSession, client: MetaClient) -> None:
    """No plan holds a version."""
    jvm: Any = spark._jvm

    def are_gone() -> bool:
        gc.collect()
        jvm.System.gc()
        return not list(client.list_pins())

    wait_until(are_gone)


@pytest.mark.long
def test_what_statements_cost(spark: SparkSession, counted: tuple[Counted, str, Service], tmp_path: Path) -> None:
    calls, address, running = counted
    session = session_on(spark, "lake", address, tmp_path / "files")
    for statement in SETUP.split(";"):
        session.sql(statement)
    section = SECTION.search((ROOT / "docs" / "spark-sql.md").read_text(encoding="utf-8"))
    assert section is not None
    rows = list(ROW.finditer(section["text"]))
    assert rows
    with MetaClient(running.address) as client:
        counts = [count(session, row["statement"], calls, lambda: settled(spark, client)) for row in rows]
    found = [
        f"| `{row['statement']}` | {len(asked)} | {jobs} |" for row, (asked, jobs) in zip(rows, counts, strict=True)
    ]
    said = "\n".join(f"{line}  {asked}" for line, (asked, _) in zip(found, counts, strict=True))
    print(said)
    assert found == [row[0] for row in rows], said


def count(session: SparkSession, statement: str, calls: Counted, settle: Callable[[], None]) -> tuple[list[str], int]:
    """Its calls and its jobs."""
    settle()
    calls.taken()
    tracker: Any = session.sparkContext._jsc.sc().statusTracker()
    with job_tag(session, f"costs-{abs(hash(statement))}") as tag:
        session.sql(statement).collect()
        return calls.taken(), len(tracker.getJobIdsForTag(tag))
