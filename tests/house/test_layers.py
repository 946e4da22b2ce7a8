"""The import contracts hold, and each of them catches what it is there for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

PACKAGES = ("laketx", "metaservice", "worker", "iceberg", "imports", "protos")


UNDER_TYPE_CHECKING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_imports_follow_the_layers() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("where", "planted", "broken"),
    [
        ("metaservice/core", "import time", "core is pure"),
        ("metaservice/core", "from google.protobuf import message", "core is pure"),
        ("metaservice/core", "import protos.laketx.v1", "core is pure"),
        ("metaservice/core", "import metaservice.client", "core is pure"),
        ("metaservice/store", "import metaservice.service", "MetaService is layered"),
        ("metaservice/service", "import rocksdict", "one file imports rocksdict"),
        ("metaservice/service", "import metaservice.wiring", "nobody below wiring"),
        ("metaservice/service", "import protos.laketx.storage.v1", "storage records"),
        ("metaservice/rpc", "import metaservice.store", "the edge reaches the store"),
        ("metaservice/client", "import metaservice.core", "the client knows the wire alone"),
        ("metaservice/cli", "import metaservice.core", "the CLI and workers"),
        ("worker/base", "import metaservice.service", "the CLI and workers"),
        ("worker/read", "import worker.write.transaction", "the worker is layered"),
        ("worker/base", f"{UNDER_TYPE_CHECKING}    import worker.api.table", "the worker is layered"),
        ("worker/files", "import worker.base.spark_types", "jobs on files do without Spark"),
        ("iceberg/metadata", "import metaservice.client", "Iceberg's metadata is made from facts"),
        ("protos/laketx/v1", "import metaservice.core", "the wire is generated"),
    ],
)
def test_a_planted_import_breaks_its_contract(tmp_path: Path, where: str, planted: str, broken: str) -> None:
    expect_broken(tmp_path, {f"{where}/planted.py": planted}, broken)


@pytest.mark.parametrize("place", ["worker/base", "worker/api"])
def test_a_planted_circle_of_types_breaks_its_contract(tmp_path: Path, place: str) -> None:
    package = place.replace("/", ".")
    circle = {
        f"{place}/one.py": f"import {package}.other",
        f"{place}/other.py": f"{UNDER_TYPE_CHECKING}    import {package}.one",
    }
    expect_broken(tmp_path, circle, "in a circle")


def expect_broken(root: Path, planted: dict[str, str], broken: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", root)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in planted.items():
        (root / path).write_text(f"{text}\n", encoding="utf-8")

    result = lint_imports(root)

    verdicts = " ".join(result.stdout.split()).split("Broken contracts")[-1]
    assert result.returncode == 1, result.stdout + result.stderr
    assert broken in verdicts, result.stdout
