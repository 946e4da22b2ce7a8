"""The one Spark that all tests of a process share."""

import os
import shutil
import sys

import pytest
from pyspark.sql import SparkSession


def shared_session() -> SparkSession:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark needs Java 17 or later, which is not installed here")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of Spark's Python workers
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
