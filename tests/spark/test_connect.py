"""The front door on Spark Connect, in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.spark.sessions import require_java

TIMEOUT_S = 240.0


# A table with a key, what is refused, and what is seen of jobs.
QUICK = ["keyed", "refusals", "seen"]


@pytest.mark.parametrize("parts", [QUICK, pytest.param([], marks=pytest.mark.long)], ids=["some", "all"])
def test_a_connect_session_does_it_all(tmp_path: Path, parts: list[str]) -> None:
    require_java()
    if importlib.util.find_spec("zstandard") is None:
        pytest.skip("Spark Connect needs zstandard, which is not installed here")
    environment = {**os.environ, "SPARK_TESTING": "1"}  # a port that is free
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.whole_session", "connect", str(tmp_path), *parts],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    assert done.stdout.splitlines()[-1].startswith("seen: ")
