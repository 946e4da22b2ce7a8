"""The front door on a standalone Spark, whose executors are processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.spark.processes import Cluster

TIMEOUT_S = 600.0
PARTS = ["keyed", "appended", "several_tables", "refusals", "conflicts", "in_and_out", "compacted"]


@pytest.mark.long
def test_a_cluster_does_it_all(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.whole_session", cluster.address, str(tmp_path / "lake"), *PARTS],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        cluster.kill()
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    assert done.stdout.splitlines()[-1].startswith("compacted: ")
