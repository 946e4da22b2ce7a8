"""The import contracts hold, and each of them catches what it is there for."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

PACKAGES = ("laketx", "metaservice", "worker", "protos")


UNDER_TYPE_CHECKING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    wide = {**os.environ, "COLUMNS": "300"}  # a title on one line
    return subprocess.run(command, cwd=root, env=wide, capture_output=True, text=True, check=False)


def test_imports_follow_the_layers() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


PLANTED = [
    ("metaservice/core", "import time", "core is pure"),
    ("metaservice/core", "from google.protobuf import message", "core is pure"),
    ("metaservice/core", "import protos.laketx.v1", "core is pure"),
    ("metaservice/core", "import metaservice.client", "core is pure"),
    ("metaservice/store", "import metaservice.service", "MetaService is layered"),
    ("metaservice/service", "import rocksdict", "the files of the store on disk import rocksdict"),
    ("metaservice/service", "import metaservice.server.wiring", "MetaService is layered"),
    ("metaservice/rpc", "import metaservice.client", "know neither the CLI, nor clients"),
    ("metaservice/rpc/auth", "import metaservice.rpc.services.calls", "rpc's rooms"),
    ("metaservice/store/records", "import metaservice.store.engines.rocks", "the store's rooms"),
    ("metaservice/shared", "import protos.laketx.v1", "shared imports nothing of ours"),
    ("metaservice/service", "import protos.laketx.storage.v1", "storage records"),
    ("metaservice/rpc", "import metaservice.store", "the edge reaches the store"),
    ("metaservice/client", "import metaservice.core", "the client knows the wire alone"),
    ("metaservice/cli", "import metaservice.core", "the CLI and workers"),
    ("worker/base", "import metaservice.service", "the CLI and workers"),
    ("worker/files", "import worker.commit.transaction", "the worker is layered"),
    ("worker/base", f"{UNDER_TYPE_CHECKING}    import laketx.table", "nobody inside imports the front door"),
    ("worker/files", "import worker.spark.column_types", "jobs on files do without Spark"),
    ("worker/iceberg/metadata", "import metaservice.client", "Iceberg's metadata is made from facts"),
    ("protos/laketx/v1", "import metaservice.core", "the wire is generated"),
    ("worker/base", "import worker.base.other", "in a circle"),
    ("laketx", "import laketx.other", "in a circle"),
]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of each contract in a tree with all that is planted."""
    root = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / "pyproject.toml", root)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    for number, (where, planted, _) in enumerate(PLANTED):
        name = f"planted_{number}"
        (root / where / f"{name}.py").write_text(f"{planted}\n", encoding="utf-8")
        if planted.endswith(".other"):  # a circle of types
            back = f"{UNDER_TYPE_CHECKING}    import {where.replace('/', '.')}.{name}\n"
            (root / where / "other.py").write_text(back, encoding="utf-8")
    result = lint_imports(root)
    assert result.returncode == 1, result.stdout + result.stderr
    _, *parts = re.split(r"^(.+)\n-+\n\n", result.stdout, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=lambda number: PLANTED[number][2])
def test_a_planted_import_breaks_its_contract(verdicts: dict[str, str], number: int) -> None:
    (said,) = [text for title, text in verdicts.items() if PLANTED[number][2] in title]
    assert re.search(rf"\bplanted_{number}\b", said), said
