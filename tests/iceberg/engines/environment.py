"""The engines' environments: made on first use, with pinned packages. Spark's jar comes when its session starts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tools.environment import FOLDER, ensure
from worker.spark.java import JAVA_MIN, prepare_java

PINS: Final = Path(__file__).resolve().parent
SPARK: Final = ("pyspark", "pyarrow", "pandas")
OTHERS: Final = ("chdb", "daft", "pyiceberg", "pyarrow")
DBT: Final = ("dbt-core", "dbt-spark", "pyspark")
PYICEBERG_TESTS: Final = (
    "pyiceberg[pyarrow,sql-sqlite,hive]",
    "boto3",
    "moto[server]",
    "pytest",
    "pytest-lazy-fixtures",
)
ICEBERG: Final = "1.12.0"
ICEBERG_JAR: Final = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}"  # by Spark's and Scala's version
ICEBERG_AWS_JAR: Final = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}"
STATEMENTS: Final = PINS / "statements.py"
SPARK_SETTINGS: Final = {
    "spark.jars.packages": ICEBERG_JAR,
    "spark.jars.ivy": str(FOLDER / "ivy-iceberg"),
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def ensure_spark() -> Path:
    """The interpreter of Spark with Iceberg."""
    return ensure("iceberg-spark", SPARK, PINS / "constraints-spark.txt")


def ensure_others() -> Path:
    """The interpreter of chdb and daft."""
    return ensure("iceberg-readers", OTHERS, PINS / "constraints-readers.txt")


def ensure_dbt() -> Path:
    """The interpreter of dbt with Spark."""
    return ensure("iceberg-dbt", DBT, PINS / "constraints-dbt.txt")


def ensure_pyiceberg_tests() -> Path:
    """The interpreter for pyiceberg's own tests."""
    return ensure("pyiceberg-tests", PYICEBERG_TESTS, PINS / "constraints-pyiceberg-tests.txt")


def spark_catalog(name: str, url: str, warehouse: str = "v3", **properties: str) -> dict[str, str]:
    """The settings of a session that has the REST catalog at `url` under `name`."""
    known = {"type": "rest", "uri": url, "warehouse": warehouse, **properties}
    known.setdefault("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{one}": text for one, text in known.items()}


def run_statements(
    url: str, folder: Path, form: str, statements: Sequence[str], *jars: str, **properties: str
) -> list[dict[str, Any]]:
    """What Spark with Iceberg says of each statement, whose catalog `lake` is at `url`: its error, or its rows."""
    interpreter, asked = spark_or_skip(), folder / "asked.json"
    settings = SPARK_SETTINGS | spark_catalog("lake", url, form, **properties)
    settings["spark.jars.packages"] = ",".join([ICEBERG_JAR, *jars])
    asked.write_text(json.dumps({"settings": settings, "statements": list(statements)}))
    answer = subprocess.run([str(interpreter), str(STATEMENTS), str(asked)], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in answer.stdout.splitlines()]


def spark_or_skip() -> Path:
    """The same for a test, which is left out where Spark with Iceberg can't be had."""
    return _with_java_or_skip(ensure_spark)


def dbt_or_skip() -> Path:
    return _with_java_or_skip(ensure_dbt)


def others_or_skip() -> Path:
    return _or_skip(ensure_others)


def pyiceberg_tests_or_skip() -> Path:
    return _or_skip(ensure_pyiceberg_tests)


def _with_java_or_skip(made: Callable[[], Path]) -> Path:
    if not prepare_java():
        pytest.skip(f"Spark needs Java {JAVA_MIN} or later, which is not installed here")
    return _or_skip(made)


def _or_skip(made: Callable[[], Path]) -> Path:
    try:
        return made()
    except subprocess.CalledProcessError:
        pytest.skip("the engine's packages can't be installed here: pip failed")
