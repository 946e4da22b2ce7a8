"""Prints the path of the jar, for `spark-submit --jars`."""

import sys
from pathlib import Path

(JAR,) = Path(__file__).resolve().parent.glob("*.jar")
sys.stdout.write(f"{JAR}\n")
