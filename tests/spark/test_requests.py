"""How many requests of Spark follow each other on S3. A process of its own has the session: its jars are others."""

import json
import subprocess
import sys

import pytest

from tests.house.tree import ROOT

ONE_AFTER_THE_OTHER_MAX = 12


@pytest.mark.long
def test_small_statements_take_few_round_trips_and_list_nothing() -> None:
    """The first time it downloads 0.7 GB."""
    command = [sys.executable, "-m", "tests.spark.s3_requests"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found.keys() == {
        "insert",
        "select",
        "delete",
        "select of what is left",
        "table.insert",
        "table.insert by key",
    }
    assert {name: one["listings"] for name, one in found.items() if one["listings"]} == {}
    assert {name: one for name, one in found.items() if one["depth"] > ONE_AFTER_THE_OTHER_MAX} == {}
    assert all(found[name]["requests"] for name in ("insert", "table.insert", "table.insert by key"))
