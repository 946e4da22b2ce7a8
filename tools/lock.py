"""`make lock`: the lock files of the images, and of the Java that `make setup` installs where there is none.

They have the hash of every file that an index may answer with. The versions are those of constraints.txt; the service
has Arrow beside it, the worker Spark. uv resolves them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tools.deploy_tools import NotCheckedError, python_tool
from tools.wire import ROOT
from worker.spark.java import WHEEL as JAVA_WHEEL

FOLDER: Final = "deploy/image"
PYTHON: Final = "3.11"  # of the images; each lock holds hashes of the files for every Python and machine
HEADER: Final = "# Made by `make lock` from pyproject.toml and constraints.txt.\n"


class Lock(NamedTuple):
    """What a lock file locks: extras of LakeTX, or what a build needs."""

    name: str
    extras: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    folder: str = FOLDER

    @property
    def path(self) -> Path:
        return ROOT / self.folder / f"{self.name}.txt"


LOCKS: Final = (
    Lock("service", ("arrow", "console", "iceberg", "oidc", "otel", "s3", "sts")),
    Lock("worker", ("pyspark", "views")),  # the jar is built beside it
    Lock("build", (), ("setuptools",)),
    Lock("java", (), (JAVA_WHEEL,), "tools"),
)


def main() -> int:
    try:
        uv = python_tool("uv")
    except NotCheckedError as error:
        print(f"nothing is locked: {error}", file=sys.stderr)
        return 1
    for lock in LOCKS:
        lock.path.write_text(HEADER + resolve(uv, lock), encoding="utf-8")
        print(f"{lock.path.relative_to(ROOT)}: {len(versions(lock))} packages")
    return 0


def resolve(uv: Path, lock: Lock) -> str:
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "asked.in"
        asked.write_text("\n".join(lock.requires), encoding="utf-8")
        source = asked if lock.requires else ROOT / "pyproject.toml"
        extras = [word for extra in lock.extras for word in ("--extra", extra)]
        command = [str(uv), "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON, "--generate-hashes"]
        command += ["--no-header", "--no-annotate", "--constraint", str(ROOT / "constraints.txt"), *extras, str(source)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def versions(lock: Lock) -> dict[str, str]:
    """By name."""
    lines = lock.path.read_text(encoding="utf-8").splitlines()
    pins = (line.partition(";")[0].rstrip(" \\") for line in lines if line[:1].isalnum())
    return {name: version for name, _, version in (pin.partition("==") for pin in pins)}


if __name__ == "__main__":
    sys.exit(main())
