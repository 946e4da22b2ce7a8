"""`make demo`, on Spark and without, ends well and cleanly and says what it is to say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

CHAPTERS = {
    "with": ["Two jobs at once", "A late overwrite wins", "Time travel", "An increment", "The timeline"],
    "without": ["Races", "Why did the first of them lose?", "A late overwrite wins", "The timeline"],
}


def played(folder: Path, **environment: str) -> str:
    """What it says; nothing of it stays."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    assert [path.name for path in folder.glob("laketx-demo-*")] == []
    return done.stdout


def test_without_java_it_says_so_and_tells_its_story_on_metadata(tmp_path: Path) -> None:
    said = played(tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert "Spark needs Java 17 or later, which is not installed here" in said
    assert [title for title in CHAPTERS["without"] if title not in said] == []


@pytest.mark.long
def test_on_spark(tmp_path: Path) -> None:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark needs Java 17 or later, which is not installed here")
    said = played(tmp_path)
    assert [title for title in CHAPTERS["with"] if title not in said] == []
    assert said.count("conflict with version") >= 6
