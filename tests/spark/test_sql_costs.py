"""What a statement costs: the table in docs/spark-sql.md says what is counted here."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyspark.sql import SparkSession

from metaservice.client import MetaClient
from tests.house.tree import ROOT
from tests.integration.service import Service, service
from tests.spark.processes import wait_until
from worker.base.session import job_tag
from worker.base.spark_jar import catalog_settings

SECTION = re.compile(r"^## What it costs$(?P<text>.*?)^## ", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(?P<statement>[^`]+)` \| (?P<calls>\d+) \| (?P<jobs>\d+) \|$", re.MULTILINE)
BACKGROUND = {"RenewPin", "RenewTransaction", "Unpin"}
SETUP = """
CREATE NAMESPACE lake.shop;
CREATE TABLE lake.shop.events (id BIGINT, day DATE, amount DOUBLE) PARTITIONED BY (day);
CREATE TABLE lake.shop.orders (id BIGINT, day DATE, amount DOUBLE, PRIMARY KEY (id)) TBLPROPERTIES ('buckets' = '2');
INSERT INTO lake.shop.events SELECT id, DATE'2026-11-01' + CAST(id % 3 AS INT), id FROM range(30);
INSERT INTO lake.shop.orders SELECT id, DATE'2026-11-01' + CAST(id % 3 AS INT), id FROM range(30);
INSERT INTO lake.shop.orders VALUES (3, DATE'2026-11-01', 0)
"""


class Counted(grpc.GenericRpcHandler):
    """Passes calls on to a service, and counts them."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._lock = threading.Lock()
        self._calls: list[str] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method
        with self._lock:
            self._calls.append(method.rpartition("/")[2])

        def forward(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            call: Any = self._channel.stream_stream(method)
            own = tuple((key, value) for key, value in context.invocation_metadata() if key.startswith("x-"))
            answers = call(requests, timeout=context.time_remaining(), metadata=own)
            try:
                yield from answers
            except grpc.RpcError:
                context.set_trailing_metadata(answers.trailing_metadata())
                context.abort(answers.code(), answers.details())

        return grpc.stream_stream_rpc_method_handler(forward)

    def taken(self) -> list[str]:
        """Those since the last time, but what goes on in the background."""
        with self._lock:
            found, self._calls = self._calls, []
        return [call for call in found if call not in BACKGROUND]


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[Counted, str, Service]]:
    """With its address."""
    with service(tmp_path / "store") as (running, _):
        calls = Counted(running.address)
        server = grpc.server(ThreadPoolExecutor(16))
        server.add_generic_rpc_handlers((calls,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield calls, f"127.0.0.1:{port}", running
        finally:
            server.stop(None).wait()


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
    session = spark.newSession()
    for key, value in catalog_settings("lake", f"laketx://{address}", str(tmp_path / "files")).items():
        session.conf.set(key, value)
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
    assert found == [row[0] for row in rows], said


def count(session: SparkSession, statement: str, calls: Counted, settle: Callable[[], None]) -> tuple[list[str], int]:
    """Its calls and its jobs."""
    settle()
    calls.taken()
    tracker: Any = session.sparkContext._jsc.sc().statusTracker()
    with job_tag(session, f"costs-{abs(hash(statement))}") as tag:
        session.sql(statement).collect()
        return calls.taken(), len(tracker.getJobIdsForTag(tag))
