"""Spark for tests: small, on loopback, in UTC; and the one that all tests of a process share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Final

import pytest
from pyspark.sql import SparkSession

from worker.base.spark_jar import jar_setting

SMALL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # neither the second compiler nor threads that collect garbage pay in minutes
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def small_session(master: str = "local[2]", more: Mapping[str, str] | None = None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of Spark's Python workers
    return SparkSession.builder.master(master).config(map={**SMALL, **jar_setting(), **(more or {})}).getOrCreate()


_shared: dict[str, SparkSession] = {}


def shared_session() -> SparkSession:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark needs Java 17 or later, which is not installed here")
    if "session" not in _shared:
        _shared["session"] = small_session()
    return _shared["session"]


def shared_settings() -> dict[str, str] | None:
    """What the shared session is set to, catalogs left out; None: there is none yet."""
    session = _shared.get("session")
    if session is None:
        return None
    catalogs = "spark.sql.catalog."
    found = {key: value for key, value in session.conf.getAll.items() if not key.startswith(catalogs)}
    return found | {"current": f"{session.catalog.currentCatalog()}.{session.catalog.currentDatabase()}"}
