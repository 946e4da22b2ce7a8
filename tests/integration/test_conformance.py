"""The service keeps every rule of the case files in the tree."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "conformance" / "cases"
TIMEOUT_S = 300


@pytest.mark.parametrize(
    ("file", "cases"),
    [("outcome_table.csv", 25), ("maxcompute_pairs.jsonl", 25), ("delta_profiles.jsonl", 90), ("row_level.jsonl", 39)],
)
def test_every_case_ends_as_it_says(file: str, cases: int) -> None:
    command = [sys.executable, "-m", "tests.conformance", str(CASES / file)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.stdout.splitlines()[-1:] == [f"{cases} passed, 0 failed"], ended.stdout + ended.stderr
    assert ended.returncode == 0
