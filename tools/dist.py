"""`make dist`: what a release publishes, in dist/, tried before it is shown.

Two wheels and the source, a software bill of materials (CycloneDX) of the service and one of the worker, SHA256SUMS.
The wheel is installed into an empty environment with the hashed packages of the service's lock file, and must pass
tools/smoke.py there. The source must give the same wheel.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools import wheels
from tools.deploy_tools import NotCheckedError, python_tool
from tools.lock import LOCKS

ROOT: Final = wheels.ROOT
SERVICE, WORKER, *_ = LOCKS
SMOKE: Final = ROOT / "tools" / "smoke.py"
SUMS: Final = "SHA256SUMS"
EPOCH: Final = "SOURCE_DATE_EPOCH"
PIP: Final = ("-m", "pip", "--disable-pip-version-check")


class UnsoundError(Exception):
    """What was built is not what it should be."""


def main(arguments: Sequence[str]) -> int:
    """The folder is `dist` unless another is given; it is emptied."""
    target = Path(arguments[0]) if arguments else ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    os.environ.setdefault(EPOCH, time_of_commit())  # the same commit gives the same wheels
    if wheels.main([str(target)]):
        return 1
    try:
        source = wheels.build_source(target)
        compare(source, wheel_of_laketx(target))
        with tempfile.TemporaryDirectory() as folder:
            python = install(target, Path(folder) / "clean")
            smoke(python, Path(folder))
            bills(python, target)
    except (UnsoundError, NotCheckedError) as error:
        print(error, file=sys.stderr)
        return 1
    write_sums(target)
    for path in sorted(target.iterdir()):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    return 0


def time_of_commit() -> str:
    """Zip knows no time before 1980, which a tree without git gets."""
    command = ["git", "log", "-1", "--format=%ct"]
    said = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    return said.stdout.strip() or "315532800"


def wheel_of_laketx(target: Path) -> Path:
    (found,) = target.glob("laketx-*.whl")
    return found


def compare(source: Path, wheel: Path) -> None:
    """The wheel that the source gives holds the same files."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*command, "--wheel-dir", folder, str(source)], check=True)
        again, first = content(wheel_of_laketx(Path(folder))), content(wheel)
    if differ := sorted(name for name in again.keys() | first.keys() if again.get(name) != first.get(name)):
        raise UnsoundError(f"{source.name} and {wheel.name} differ: {', '.join(differ)}")


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as one:
        return {name: one.read(name) for name in one.namelist()}


def install(target: Path, folder: Path, base: str = sys.executable) -> Path:
    """An empty environment with the service, as its image has it; the interpreter."""
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(SERVICE.path)], check=True)
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel_of_laketx(target))], check=True)
    return python


def smoke(python: Path, folder: Path) -> None:
    shutil.copy(SMOKE, folder)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LAKETX_"))}
    said = subprocess.run([str(python), "-I", SMOKE.name], check=False, cwd=folder, env=environment)
    if said.returncode:
        raise UnsoundError("the installed LakeTX does not pass tools/smoke.py")


def bills(python: Path, target: Path) -> None:
    """CycloneDX 1.6: the service as it is installed, the worker as it is locked."""
    version = wheel_of_laketx(target).name.split("-")[1]
    tool = [str(python_tool("cyclonedx-py"))]
    common = ["--output-reproducible", "--spec-version", "1.6", "--output-format", "JSON"]
    about = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"]
    for kind, name, source in (("environment", SERVICE.name, python), ("requirements", WORKER.name, WORKER.path)):
        bill = target / f"laketx-{name}-{version}.cdx.json"
        subprocess.run([*tool, kind, *common, *about, "--output-file", str(bill), str(source)], check=True)


def write_sums(target: Path) -> None:
    paths = sorted(path for path in target.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (target / SUMS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
