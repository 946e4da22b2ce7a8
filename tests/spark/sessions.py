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


def shared_session() -> SparkSession:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark needs Java 17 or later, which is not installed here")
    return small_session()
