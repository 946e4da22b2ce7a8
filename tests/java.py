"""The options of every Java that tests start: they live for minutes, and there are many."""

import sys
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"  # empty where Java can't make it
BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the second compiler and threads for garbage don't pay


def java_options() -> str:
    """With Spark's classes as `python -m tests.spark.archive` has put them down, a Java starts in half the time."""
    if not ARCHIVE.exists() or not ARCHIVE.stat().st_size:
        return BRIEF
    return f"{BRIEF} -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:disable"  # one of another Java is no warning
