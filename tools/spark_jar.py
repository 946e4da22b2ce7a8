"""`make spark-jar`: builds the jar of the Spark catalog with Maven, where its sources changed since the last time.

The sources are worker/spark_catalog and the protos; they are compiled against the jars of the pyspark that is installed
here, none of which gets into the jar. tools/toolchain.py has the JDK and Maven where the machine has none.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.rpc import status_pb2

from tools.toolchain import ToolchainError, java_version, maven_command
from worker.spark.catalog_jar import BUILT, SPARK_MINOR, jar_name
from worker.spark.java import JAVA_MIN, missing_java

ROOT: Final = Path(__file__).resolve().parent.parent
PROJECT: Final = ROOT / "worker" / "spark_catalog"
PROTOS: Final = ROOT / "protos" / "laketx" / "v1"
NOT_CALLED: Final = ("access.proto", "admin.proto")  # by the catalog: its classes would only make the jar larger
OF_REFUSALS: Final = ("status.proto", "error_details.proto")  # what the trailers of a refused call hold
STAMP: Final = BUILT / "sources.sha256"
LOG: Final = BUILT / "maven.log"
NOT_BUILT: Final = "the jar of the Spark catalog is not built (tables with Spark need it; with Arrow they do not)"
JAR_BYTES_MAX: Final = 9 << 20
LOG_LINES_SHOWN: Final = 30
FROM_SPARK: Final = (
    "spark-sql",
    "spark-sql-api",
    "spark-catalyst",
    "spark-core",
    "spark-common-utils",
    "spark-common-utils-java",
    "spark-unsafe",
    "spark-variant",
    "scala-library",
    "arrow-vector",
    "arrow-memory-core",
    "arrow-format",
    "hadoop-client-api",
    "parquet-column",
    "parquet-hadoop",
    "parquet-common",
    "RoaringBitmap",
    "jackson-core",
    "jackson-databind",
    "kryo-shaded",
    "slf4j-api",
)
OPTIONS: Final = """
option java_package = "io.laketx.v1";
option java_multiple_files = true;
option java_outer_classname = "{name}Proto";
"""


def main(arguments: list[str]) -> int:
    """`--require` makes a machine that can't build it a failure."""
    missing = what_is_missing()
    if missing:
        print(f"{NOT_BUILT}: {missing}")
        return 1 if "--require" in arguments else 0
    digest = digest_of_sources()
    jar = BUILT / jar_name()
    if jar.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == digest:
        return 0
    print("building the jar of the Spark catalog …", flush=True)
    copy_protos()
    try:
        is_built = build()
    except ToolchainError as error:
        print(f"{NOT_BUILT}: {error}")
        return 1 if "--require" in arguments else 0
    if not is_built:
        lines = LOG.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line for line in lines if "ERROR" in line] or lines
        print("\n".join(errors[:LOG_LINES_SHOWN]))
        print(f"Maven could not build it; all that it said is in {LOG.relative_to(ROOT)}", file=sys.stderr)
        return 1
    size = jar.stat().st_size
    if size > JAR_BYTES_MAX:
        print(f"{jar.name} has {size:,} bytes, more than {JAR_BYTES_MAX:,}: see what came in", file=sys.stderr)
        return 1
    STAMP.write_text(digest, encoding="utf-8")
    print(f"{jar.relative_to(ROOT)}: {size:,} bytes")
    return 0


def what_is_missing() -> str:
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed here"
    version = importlib.metadata.version("pyspark")
    if not version.startswith(f"{SPARK_MINOR}."):
        return f"it is for Spark {SPARK_MINOR}, and pyspark {version} is installed here"
    java = java_version()
    if java < JAVA_MIN:
        return f"it needs Java {JAVA_MIN} or later, and " + (f"Java here is {java}" if java else missing_java())
    return ""


def sources() -> Iterator[Path]:
    yield PROJECT / "pom.xml"
    yield from sorted((PROJECT / "src").rglob("*.*"))
    yield from sorted(PROTOS.glob("*.proto"))
    yield Path(__file__)


def digest_of_sources() -> str:
    found = hashlib.sha256(importlib.metadata.version("pyspark").encode())
    for path in sources():
        if path.is_file():
            found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def copy_protos() -> None:
    """With Java's names in them, into an empty folder; one class a message, the outer ones meet none of their names."""
    shutil.rmtree(BUILT, ignore_errors=True)
    target = BUILT / "protos"
    (target / "protos" / "laketx" / "v1").mkdir(parents=True)
    for path in PROTOS.glob("*.proto"):
        if path.name in NOT_CALLED:
            continue
        text = path.read_text(encoding="utf-8")
        options = OPTIONS.format(name=path.stem.capitalize())
        named = text.replace("package laketx.v1;\n", f"package laketx.v1;\n{options}", 1)
        (target / "protos" / "laketx" / "v1" / path.name).write_text(named, encoding="utf-8")
    (target / "google" / "rpc").mkdir(parents=True)
    for name in OF_REFUSALS:
        shutil.copy(Path(status_pb2.__file__).parent / name, target / "google" / "rpc")


def build() -> bool:
    given = [f"-Djar.{name}={jar_of_spark(name)}" for name in FROM_SPARK]
    command = [*maven_command(), "--file", str(PROJECT / "pom.xml"), f"-Dspark.minor={SPARK_MINOR}", *given, "package"]
    with LOG.open("wb") as log:
        done = subprocess.run(command, check=False, stdout=log, stderr=subprocess.STDOUT)
    return done.returncode == 0


def jar_of_spark(name: str) -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pyspark")
    jars = Path(spec.origin).parent / "jars"
    (found,) = (one for one in jars.iterdir() if re.fullmatch(rf"{name}(_2\.13)?-\d[\d.]*\.jar", one.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
