"""A service, a gate before it, and the doors of both ways: without Spark, and with a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from laketx import connect
from tests.iceberg.servers import catalog_of, served
from tests.integration.service import service
from tests.races.compactions import Compactions
from tests.races.doors import Arrow, Frames, Iceberg, Sql, Verbs, WithoutSpark, connect_without_spark
from tests.races.gate import Gate
from tests.races.pairs import Course
from worker.spark.catalog_jar import catalog_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER, EARLIER = "later", "earlier"  # catalogs: through the gate, and past it


@contextmanager
def course_without_spark(folder: Path) -> Iterator[Course]:
    with service(folder / "service") as (running, _), Gate(running.address) as gate:
        warehouse = _warehouse(folder)
        with (
            connect_without_spark(f"laketx://{gate.address}", warehouse) as later,
            connect_without_spark(f"laketx://{running.address}", warehouse) as earlier,
        ):
            held = [Arrow(later), Compactions(later)]
            yield Course(gate, earlier, held, [Arrow(earlier), Compactions(earlier)])


@contextmanager
def course_of_iceberg(folder: Path) -> Iterator[Course]:
    """An Iceberg catalog behind the gate, for the statement that waits; the other one goes past it."""
    with service(folder / "service") as (running, _), Gate(running.address) as gate:
        warehouse = _warehouse(folder)
        where = ["--server", gate.address, "iceberg", "serve", "--listen", "127.0.0.1:0", "--warehouse", warehouse]
        with connect_without_spark(f"laketx://{running.address}", warehouse) as plain:
            plain.mark_warehouse()
            with served(*where) as server:
                free = [Arrow(plain, copies=False), Compactions(plain)]
                yield Course(gate, plain, [Iceberg(catalog_of(server, 2))], free)


@contextmanager
def course_with_spark(folder: Path, spark: SparkSession) -> Iterator[Course]:
    """The statement that waits has a session of its own, and so has the other."""
    with service(folder / "service") as (running, _), Gate(running.address) as gate:
        warehouse = _warehouse(folder)
        uris = {LATER: f"laketx://{gate.address}", EARLIER: f"laketx://{running.address}"}
        sessions = {name: session_with(spark, name, uri, warehouse) for name, uri in uris.items()}
        with (
            connect_without_spark(uris[EARLIER], warehouse) as plain,
            connect(uris[LATER], sessions[LATER], warehouse=warehouse, user="races") as later,
            connect(uris[EARLIER], sessions[EARLIER], warehouse=warehouse, user="races") as earlier,
        ):
            held = [Sql(sessions[LATER], LATER), Frames(sessions[LATER], LATER), Verbs(later, sessions[LATER], LATER)]
            free = [
                Arrow(plain, copies=False),
                Sql(sessions[EARLIER], EARLIER),
                Verbs(earlier, sessions[EARLIER], EARLIER),
            ]
            yield Course(gate, plain, held, free, sessions[LATER])


@contextmanager
def gated_session(
    folder: Path, spark: SparkSession, catalog: str, *arguments: str
) -> Iterator[tuple[SparkSession, Gate, WithoutSpark]]:
    """A session whose catalog is behind a gate, and a lake past it; `arguments` are the service's."""
    warehouse = _warehouse(folder)
    with service(folder / "service", *arguments) as (running, _), Gate(running.address) as gate:
        session = session_with(spark, catalog, f"laketx://{gate.address}", warehouse)
        with connect_without_spark(f"laketx://{running.address}", warehouse) as other:
            yield session, gate, other


def _warehouse(folder: Path) -> str:
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    return str(warehouse)


def session_with(spark: SparkSession, catalog: str, uri: str, warehouse: str) -> SparkSession:
    made = spark.newSession()
    for key, value in catalog_settings(catalog, uri, warehouse, "races").items():
        made.conf.set(key, value)
    return made
