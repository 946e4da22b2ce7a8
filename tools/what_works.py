"""`make setup` ends with this: what works on this machine, and what is missing for the rest."""

from __future__ import annotations

import importlib.metadata
import sys

from tools.spark_jar import what_is_missing
from tools.toolchain import find_maven, java_version
from worker.spark.catalog_jar import find_jar
from worker.spark.java import JAVA_MIN, LAUNCHER, WHEEL, find_java, missing_java


def main() -> int:
    release = importlib.metadata.version("laketx")
    python = ".".join(map(str, sys.version_info[:3]))
    java = java_version()
    lines = [("LakeTX", f"{release} with Python {python}: the service, `laketx`, tables without Spark")]
    lines.append(("Spark", spark_line(java)))
    lines.append(("jar", jar_line(java)))
    lines.append(("Maven", "here: it builds the jar" if find_maven() else "not here: `make spark-jar` downloads it"))
    for name, said in lines:
        print(f"  {name:7}{said}")
    return 0


def spark_line(java: int) -> str:
    spark = importlib.metadata.version("pyspark")
    if java >= JAVA_MIN:
        of_wheel = f" of {WHEEL}, since the machine has none" if find_java() == LAUNCHER else ""
        return f"{spark} with Java {java}{of_wheel}: tables in Python"
    why = f"Java here is {java}" if java else missing_java()
    return f"{spark} does not start: it needs Java {JAVA_MIN} or later, and {why}"


def jar_line(java: int) -> str:
    if find_jar() is not None:
        return "built: tables in `spark.sql` and `laketx sql`" + ("" if java >= JAVA_MIN else ", once there is a Java")
    return f"not built, so no tables with Spark: {what_is_missing() or '`make spark-jar` builds it'}"


if __name__ == "__main__":
    sys.exit(main())
