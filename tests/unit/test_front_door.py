"""The package `laketx`: every name that it offers is there, and Spark is loaded only where it is needed."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from packaging.version import Version

import laketx
from tests.house.tree import ROOT

WITHOUT_SPARK = """\
import sys
import laketx
laketx.MetaClient, laketx.ConflictError, laketx.InputError, laketx.LakeTXError, laketx.uuid7(), laketx.__version__
found = [name for name in ("pyspark", "pyarrow", "polars", "pandas") if name in sys.modules]
sys.exit(f"loaded: {found}" if found else 0)
"""


@pytest.mark.parametrize("name", laketx.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(laketx, name) is not None
    assert name in dir(laketx)


def test_a_name_that_is_not_offered_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = laketx.nothing


def test_spark_is_not_loaded_for_the_client_and_the_errors() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_version_is_the_project_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert laketx.__version__ == str(Version(project["version"]))  # as pip writes it: 0.2.0.dev0 for 0.2.0-dev
