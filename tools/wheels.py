"""`make wheels`: two wheels in a folder, LakeTX and the jar of its Spark catalog. `make dist` adds the source.

Each is built from a copy: what an earlier build left in the tree gets into none.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools import spark_jar
from worker.spark.catalog_jar import BUILT, PACKAGE, jar_name

ROOT: Final = Path(__file__).resolve().parent.parent
JAR_PROJECT: Final = ROOT / "worker" / "spark_catalog" / "wheel"
PACKAGES: Final = ("laketx", "metaservice", "protos", "worker")
SOURCES: Final = ("pyproject.toml", "README.md", "LICENSE", *PACKAGES)
LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "spark_catalog")


def main(arguments: Sequence[str]) -> int:
    """The folder is `dist` unless another is given."""
    if spark_jar.main(["--require"]):
        return 1
    target = Path(arguments[0]) if arguments else ROOT / "dist"
    with tempfile.TemporaryDirectory() as folder:
        build(copy_of_laketx(Path(folder) / "laketx"), target)
        build(copy_of_jar(Path(folder) / "jar"), target)
    for wheel in sorted(target.glob("*.whl")):
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes")
    return 0


def build_source(target: Path) -> Path:
    """The sdist of LakeTX, from which the same wheel can be built."""
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_laketx(Path(folder) / "laketx")
        command = [sys.executable, "-c", code, str(target.resolve())]
        said = subprocess.run(command, check=True, cwd=copy, stdout=subprocess.PIPE, text=True)
    return target / said.stdout.splitlines()[-1]


def copy_of_laketx(folder: Path) -> Path:
    folder.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=LEFT_OUT)
        else:
            shutil.copy(source, folder)
    return folder


def copy_of_jar(folder: Path) -> Path:
    shutil.copytree(JAR_PROJECT, folder, ignore=LEFT_OUT)
    shutil.copy(ROOT / "LICENSE", folder)
    shutil.copy(BUILT / jar_name(), folder / PACKAGE)
    return folder


def build(project: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(target), str(project)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
