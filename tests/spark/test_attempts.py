"""Files of tasks that did not end well are no files of the table. A process of its own has executors that can die."""

import json
import subprocess
import sys

import pytest

from tests.house.tree import ROOT


@pytest.mark.long
def test_a_task_that_runs_twice_counts_once() -> None:
    command = [sys.executable, "-m", "tests.spark.attempts"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    failed, killed = found["fails"], found["killed"]
    assert failed == {"attempts": 2, "files": 20, "missing": 0, "left over": 0, "rows are right": True}
    assert killed.pop("left over") > 0
    assert killed == {"attempts": 2, "files": 20, "missing": 0, "rows are right": True}
