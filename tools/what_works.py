"""`make setup` ends with this: what works on this machine, and what is missing for the rest."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.spark_jar import JAVA_MIN, what_is_missing
from worker.base.spark_jar import find_jar


def main() -> int:
    release = importlib.metadata.version("laketx")
    python = ".".join(map(str, sys.version_info[:3]))
    java = java_here()
    lines = [("LakeTX", f"{release} with Python {python}: the service, `laketx`, tables without Spark")]
    lines.append(("Spark", spark_line(java)))
    lines.append(("jar", jar_line(java)))
    lines.append(("Maven", "here: it builds the jar" if shutil.which("mvn") else "not here: it would build the jar"))
    for name, said in lines:
        print(f"  {name:7}{said}")
    return 0


def java_here() -> int:
    """The version of the Java that Spark would start; 0: there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        return 0
    said = subprocess.run([java, "-version"], check=False, capture_output=True, text=True)
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else 0


def spark_line(java: int) -> str:
    spark = importlib.metadata.version("pyspark")
    if java >= JAVA_MIN:
        return f"{spark} with Java {java}: tables in Python"
    found = f"Java here is {java}" if java else "there is no Java here"
    return f"{spark} does not start: it needs Java {JAVA_MIN} or later, and {found}"


def jar_line(java: int) -> str:
    if find_jar() is not None:
        return "built: tables in `spark.sql` and `laketx sql`" + ("" if java >= JAVA_MIN else ", once there is a Java")
    return f"not built, so no `spark.sql`: {what_is_missing() or '`make spark-jar` builds it'}"


if __name__ == "__main__":
    sys.exit(main())
