"""The peers' own environment: made on first use, made again when its pins or the Python change."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PINS = Path(__file__).resolve().parent
REQUIREMENTS = ("deltalake", "pyiceberg[sql-sqlite,pyarrow]")
DELTA_SPARK = ("delta-spark", "setuptools")
DELTA_JAR = "io.delta:delta-spark_4.2_2.13:4.4.0"  # for this Spark and Scala; its session fetches it


def ensure_python() -> Path:
    """The environment's interpreter, everything installed."""
    return _ensure("peers", REQUIREMENTS, PINS / "constraints.txt")


def ensure_delta_spark() -> Path:
    """The same for Delta on Spark, whose Spark is another."""
    return _ensure("delta-spark", DELTA_SPARK, PINS / "constraints-delta-spark.txt")


def _ensure(name: str, requirements: tuple[str, ...], constraints: Path) -> Path:
    folder = ROOT / ".bench" / name
    python, stamp = folder / "bin" / "python", folder / "ready"
    asked = f"{platform.python_version()} {requirements} {constraints.read_text(encoding='utf-8')}"
    wanted = hashlib.sha256(asked.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing {name} …", file=sys.stderr)
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(constraints), *requirements], check=True, stdout=sys.stderr)
    stamp.write_text(wanted, encoding="utf-8")
    return python
