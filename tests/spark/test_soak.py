"""A minute of soak, and that its oracle would notice; `make soak MINUTES=…` goes on for longer."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from protos.laketx.v1 import common_pb2, read_pb2
from tests.spark.oracle import Oracle, State, ViolationError, add_up, adding, changing, replacing, rows_of

ROOT = Path(__file__).parents[2]


def version(number: int, read: int, operation: common_pb2.Operation.ValueType) -> read_pb2.Version:
    return read_pb2.Version(version=number, read_version=read, operation=operation)


def test_the_oracle_applies_commits_in_the_order_of_versions() -> None:
    oracle = Oracle()
    oracle.did(3, changing(lambda key, _: (key, 9) if key[0] == 1 else (key, 0) if key[0] == 3 else None))
    oracle.did(1, adding({(1, "a"): 1, (2, "a"): 2}))
    oracle.saw(version(1, 0, common_pb2.OPERATION_INSERT))
    oracle.saw(version(2, 1, common_pb2.OPERATION_INSERT))
    oracle.saw(version(3, 1, common_pb2.OPERATION_UPDATE))
    oracle.saw(version(4, 1, common_pb2.OPERATION_MAJOR_COMPACT))
    assert len(oracle.states) == 2
    oracle.did(2, adding({(3, "b"): 3}))
    assert oracle.at(4) == {(1, "a"): 9, (3, "b"): 3}, "a row that was not read stays as it is"
    assert oracle.compactions == 1
    with pytest.raises(ViolationError, match="two commits"):
        oracle.did(3, replacing(lambda day: day == "a", {}))


def test_the_oracle_refuses_a_commit_that_hides_what_it_had_not_read() -> None:
    step = changing(lambda _key, _amount: None)
    assert step({(1, "a"): 1}, {(1, "a"): 1, (2, "a"): 1}) == {(2, "a"): 1}
    others: list[State] = [{(1, "a"): 2}, {}]
    for now in others:
        with pytest.raises(ViolationError, match="than it had read"):
            step({(1, "a"): 1}, now)


def test_increments_that_lack_or_double_a_row_do_not_add_up() -> None:
    rows = rows_of({(1, "a"): 1})
    gone = {"id": 1, "day": "a", "amount": 1, "_change_type": "update_preimage"}
    new = {"id": 1, "day": "a", "amount": None, "_change_type": "update_postimage"}
    assert add_up(rows, [gone, new]) == rows_of({(1, "a"): None})
    assert add_up(rows, [gone, gone]) == Counter({(1, "a", 1): -1})
    assert add_up(rows, [new, new, gone]) == Counter({(1, "a", None): 2})


@pytest.mark.long
def test_a_minute_of_soak(tmp_path: Path) -> None:
    shown = tmp_path / "soak.json"
    command = [sys.executable, "-m", "tests.spark.soak", "--minutes", "1", "--seed", "7", "--json", str(shown)]
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout[:6000]}\n…\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    counts = Counter(json.loads(shown.read_text()))
    assert min(counts[what] for what in ("kills", "compactions", "purged", "reads", "increments", "audits")) > 0, counts
    assert counts["violations"] == 0
