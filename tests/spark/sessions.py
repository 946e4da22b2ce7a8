"""Spark for tests: small, on loopback, in UTC; and the one that all tests of a process share."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.java import BRIEF
from worker.spark.catalog_jar import jar_setting
from worker.spark.java import JAVA_MIN, prepare_java

SMALL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": BRIEF,
}

# Compiling a plan takes longer than a test's few rows do. Spark in other processes of tests compiles, as users' does.
INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def small_session(master: str = "local[2]", more: Mapping[str, str] | None = None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of Spark's Python workers
    prepare_java()
    return SparkSession.builder.master(master).config(map={**SMALL, **jar_setting(), **(more or {})}).getOrCreate()


_shared: dict[str, SparkSession] = {}


def require_java() -> None:
    if not prepare_java():
        pytest.skip(f"Spark needs Java {JAVA_MIN} or later, which is not installed here")


def shared_session() -> SparkSession:
    require_java()
    if "session" not in _shared:
        old_sessions = {"spark.driver.memory": "2g"}  # Spark keeps all of them
        _shared["session"] = small_session(more={**INTERPRETED, **old_sessions})
    return _shared["session"]


def shared_settings() -> dict[str, str] | None:
    """What the shared session is set to, catalogs left out; None: there is none yet."""
    session = _shared.get("session")
    if session is None:
        return None
    catalogs = "spark.sql.catalog."
    found = {key: value for key, value in session.conf.getAll.items() if not key.startswith(catalogs)}
    return found | {"current": f"{session.catalog.currentCatalog()}.{session.catalog.currentDatabase()}"}
