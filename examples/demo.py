"""A guided tour for newcomers: `python -m examples.demo`; with the word `metadata` the one without Spark."""

from __future__ import annotations

import sys
from typing import Final

from examples import demo_metadata
from examples.telling import say, title
from worker.spark.catalog_jar import find_jar
from worker.spark.java import JAVA_MIN, prepare_java

METADATA: Final = "metadata"


def main(words: list[str]) -> None:
    title("LakeTX in two minutes")
    say(
        "LakeTX decides, one at a time, whether a change to a table may follow the changes before it. Every change "
        "that may becomes a version. A change that may not is told who was faster, by which rule, and what to do."
    )
    if METADATA in words:
        demo_metadata.tell()
    elif why_not := without_spark():
        say(f"[yellow]{why_not}: here is the tour without Spark, on metadata alone.[/]")
        demo_metadata.tell()
    else:
        from examples import demo_spark  # noqa: PLC0415 - it imports Spark

        demo_spark.tell()


def without_spark() -> str:
    """Why Spark can't run here; nothing if it can."""
    if not prepare_java():
        return f"Spark needs Java {JAVA_MIN} or later, which is not installed here"
    try:
        import pyspark  # noqa: F401, PLC0415 - is it there?
    except ImportError:
        return "pyspark is not installed here (`pip install 'laketx\\[spark]'`)"
    if find_jar() is None:
        return "the jar of the Spark catalog is not installed here (`make spark-jar` builds it)"
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
