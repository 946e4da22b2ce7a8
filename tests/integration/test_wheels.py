"""The wheels: LakeTX, and beside it the jar for one minor version of Spark."""

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tools import wheels
from worker.spark import catalog_jar

FIND = "from worker.spark.catalog_jar import find_jar; print(find_jar())"


def project_of(pyproject: Path) -> dict[str, str]:
    found: dict[str, str] = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return found


def test_spark_brings_the_jar_of_the_same_version() -> None:
    laketx = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    jar = f"laketx-spark-{catalog_jar.SPARK_MINOR}=={laketx['version']}"
    assert laketx["optional-dependencies"]["spark"] == ["laketx[pyspark]", jar]


def test_the_jar_has_the_version_of_laketx_and_the_name_of_its_spark() -> None:
    jar, laketx = project_of(wheels.JAR_PROJECT / "pyproject.toml"), project_of(ROOT / "pyproject.toml")
    assert jar["name"] == f"laketx-spark-{catalog_jar.SPARK_MINOR}"
    assert jar["version"] == laketx["version"]
    text = (wheels.JAR_PROJECT / catalog_jar.PACKAGE / "__init__.py").read_text(encoding="utf-8")
    assert f'"{catalog_jar.jar_name()}"' in text


def test_the_jar_of_a_wheel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none was built; a wheel without its jar is none."""
    monkeypatch.setattr(catalog_jar, "BUILT", tmp_path / "nothing")
    monkeypatch.setattr(catalog_jar, "PACKAGE", "laketx_spark_of_a_test")
    monkeypatch.syspath_prepend(tmp_path)
    assert catalog_jar.find_jar() is None
    assert catalog_jar.jar_setting() == {}
    package = tmp_path / "laketx_spark_of_a_test"
    package.mkdir()
    (package / "__init__.py").touch()
    assert catalog_jar.find_jar() is None
    jar = package / catalog_jar.jar_name()
    jar.touch()
    assert catalog_jar.find_jar() == jar
    assert catalog_jar.jar_setting()["spark.jars"] == str(jar)


@pytest.mark.long
def test_wheels_in_an_empty_environment(tmp_path: Path) -> None:
    assert wheels.main([str(tmp_path / "dist")]) == 0
    found = sorted((tmp_path / "dist").glob("*.whl"))
    assert [wheel.name.partition("-")[0] for wheel in found] == ["laketx", "laketx_spark_4_3"]
    with zipfile.ZipFile(found[0]) as one:
        names = one.namelist()
    assert not [name for name in names if "spark_catalog" in name or name.startswith("tests/")]
    assert {"worker/spark/catalog_jar.py", "protos/laketx/v1/read_pb2.py"} <= set(names)
    venv.create(tmp_path / "clean")
    python = str(tmp_path / "clean" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", "--no-deps", *map(str, found)], check=True, cwd=tmp_path)
    (launcher,) = (tmp_path / "clean").rglob("worker/spark/java_home/bin/java")
    assert os.access(launcher, os.X_OK)
    for command in (["-c", FIND], ["-m", catalog_jar.PACKAGE]):
        said = subprocess.run([python, *command], check=True, cwd=tmp_path, capture_output=True, text=True).stdout
        jar = Path(said.strip())
        assert jar.is_relative_to(tmp_path / "clean")
        assert jar.read_bytes() == (catalog_jar.BUILT / catalog_jar.jar_name()).read_bytes()
