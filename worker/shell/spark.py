"""The Spark of the shell: one that it starts by itself, or a Spark Connect server."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from worker.base.session import OWN_BAR, is_classic
from worker.base.spark_jar import jar_setting

QUIET: Final[Mapping[str, str]] = {
    OWN_BAR: "false",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start(remote: str, log: Path) -> SparkSession:
    """What the JVM says goes to the log, for as long as it lives."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # PySpark's: every refusal as a page of JSON
    if remote:
        return SparkSession.builder.remote(remote).getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _errors_to(log):
        return SparkSession.builder.config(map={**QUIET, **jar_setting()}).getOrCreate()


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
