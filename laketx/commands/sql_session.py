"""The Spark of the shell: one that it starts by itself, or a Spark Connect server."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from metaservice.cli.failures import CommandError, Exit, usage_failure
from worker.spark.catalog_jar import jar_setting
from worker.spark.java import keep_spark_quiet
from worker.spark.session import OWN_BAR, is_classic, java_explained

SCHEME: Final = "sc://"
PORT: Final = 15_002
QUIET: Final[Mapping[str, str]] = {
    OWN_BAR: "false",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def started(remote: str, log: Path, timeout_s: float) -> Iterator[SparkSession]:
    """What the JVM says goes to the log, for as long as it lives. The session of a server is released at the end."""
    keep_spark_quiet()
    if remote:
        check_reachable(remote, timeout_s)
        session = SparkSession.builder.remote(remote).getOrCreate()
        try:
            yield session
        finally:
            session.stop()
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with java_explained(), _errors_to(log):
        session = SparkSession.builder.config(map={**QUIET, **jar_setting()}).getOrCreate()
    yield session


def check_reachable(remote: str, timeout_s: float) -> None:
    """Refuse an address that doesn't answer; PySpark itself would try for minutes."""
    try:
        parts = urlsplit(remote.replace(SCHEME, "http://", 1))
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, PORT
    if not remote.startswith(SCHEME) or host is None:
        raise usage_failure(f"--remote is {SCHEME}HOST or {SCHEME}HOST:PORT")
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        message = f"no Spark Connect server answers at {SCHEME}{host}:{port}"
        next_step = "is one running there? docs/spark-sql.md shows how to start one with the jar"
        facts = {"detail": str(error)}
        raise CommandError(Exit.UNAVAILABLE, "SPARK_UNREACHABLE", message, facts, next_step) from error


def cancel(spark: SparkSession) -> None:
    """Ends what runs. A classic session has done so by itself: PySpark cancels jobs at Ctrl-C."""
    if not is_classic(spark):
        spark.interruptAll()


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """A process that is started meanwhile keeps the log as its stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
