"""Environments with what one extra of LakeTX brings and nothing more: links to this one, or a wheel and pip."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.dependencies import needed
from tests.house.tree import ROOT
from tools.wheels import PACKAGES

EXTRAS = (
    "",
    "arrow",
    "views",
    "kafka",
    "dlt",
    "spark",
    "iceberg",
    "imports",
    "console",
    "s3",
    "sts",
    "oidc",
    "otel",
)  # "": none
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = ("..", "__pycache__")


def distributions_of(extra: str, *more: str) -> set[str]:
    """The names of what `pip install laketx[extra] more…` brings beside LakeTX itself, by what is installed here."""
    found: set[str] = set()
    for line in [*PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] if extra else ()), *more]:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name == "laketx":
            found |= distributions_of(*sorted(requirement.extras))
            continue
        found |= {name, *needed(name, *sorted(requirement.extras))}
    return found


def link_environment(folder: Path, extra: str, *more: str) -> Path:
    """The interpreter of an environment whose packages are links to those of this one."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/*/site-packages")
    for path in (*_entries_of(distributions_of(extra, *more)), *_of_laketx()):
        link = site / path.name if path.is_absolute() else site / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path if path.is_absolute() else _site() / path)
    return folder / "bin" / "python"


def install_environment(folder: Path, wheels: Iterable[Path], extra: str, *more: str) -> Path:
    """The interpreter of an environment into which pip installed a wheel with an extra."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    laketx, *others = wheels
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--constraint", str(ROOT / "constraints.txt"), f"{laketx}[{extra}]" if extra else str(laketx)]
    subprocess.run([*pip, *map(str, others), *more], check=True, cwd=folder)
    return python


def run_in(
    python: Path, folder: Path, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS` in a folder, where the tree of the source can't be imported from."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LAKETX_", "PYTHON"))}
    folder.mkdir(parents=True, exist_ok=True)
    command, env = [str(python), *words], {**known, **(environment or {})}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def _site() -> Path:
    return Path(str(metadata.distribution("click").locate_file("")))


def _of_laketx() -> list[Path]:
    """The packages of the tree, and what is known of their release: its version and entry points."""
    found = metadata.distribution("laketx")
    return [*(ROOT / name for name in PACKAGES), *sorted(Path(str(found.locate_file(""))).glob("laketx-*.dist-info"))]


def _entries_of(wanted: set[str]) -> list[Path]:
    """Files and folders of the wanted distributions, relative to site-packages; a shared folder comes in parts."""
    whole = {place for place, names in _owners().items() if names <= wanted and place.parts}
    return sorted(Path(place) for place in whole if not set(place.parents) & whole)


@cache
def _owners() -> Mapping[PurePosixPath, set[str]]:
    """The distributions that each file and folder of site-packages is of."""
    found: dict[PurePosixPath, set[str]] = defaultdict(set)
    for one in metadata.distributions():
        name = canonicalize_name(one.metadata["Name"])
        for file in one.files or ():
            if not set(file.parts) & set(LEFT_OUT) and not file.is_absolute():
                for place in (file, *file.parents):
                    found[PurePosixPath(place)].add(name)
    return found
