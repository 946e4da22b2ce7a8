"""The jar of the Spark catalog: where it lies, and the settings that make a lake's tables known to `spark.sql`.

A session has it from its start or never: a jar that is added later is loaded by a class loader of its own, and writes
fail on classes that are there twice.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

SPARK_MINOR: Final = "4.3"
CATALOG_CLASS: Final = "io.laketx.spark.LakeCatalog"
CATALOG: Final = "lake"  # the name that a session knows it by, where nothing else is said
BUILT: Final = Path(__file__).resolve().parents[1] / "spark_catalog" / "target"
JARS: Final = "spark.jars"
NO_JAR: Final = (
    "the Spark session was started without the jar of LakeTX: `laketx spark-jar` says where it lies and with which "
    "settings to start a session; one that `connect` starts itself has it, where the jar was built (`make spark-jar`)"
)


def jar_name() -> str:
    return f"laketx-spark-{SPARK_MINOR}.jar"


def find_jar() -> Path | None:
    """None where it was not built: `make spark-jar` says why."""
    found = BUILT / jar_name()
    return found if found.is_file() else None


def jar_setting() -> dict[str, str]:
    """What a session has to start with; nothing where there is no jar."""
    jar = find_jar()
    return {} if jar is None else {JARS: str(jar)}


def catalog_settings(name: str, uri: str, warehouse: str, user: str = "") -> dict[str, str]:
    """Of a catalog of that name; a session takes them at any time until it first uses the catalog."""
    prefix = f"spark.sql.catalog.{name}"
    found = {prefix: CATALOG_CLASS, f"{prefix}.uri": uri, f"{prefix}.warehouse": warehouse}
    if user:
        found[f"{prefix}.user"] = user
    if "://" not in uri:
        found[f"{prefix}.python"] = sys.executable
    return found
