"""The jar that makes a lake's tables known to Spark 4.3: `python -m laketx_spark_4_3` prints its path."""

from pathlib import Path
from typing import Final

JAR: Final = str(Path(__file__).resolve().parent / "laketx-spark-4.3.jar")
