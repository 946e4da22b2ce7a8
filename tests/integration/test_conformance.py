"""The service keeps every rule of the case files in the tree."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from tests.conformance.cases import BadCase, Case, read_cases
from tests.conformance.play import Player
from tests.integration.high_availability import pair

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


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_every_case_ends_as_it_says_on_a_store_in_a_bucket(tmp_path: Path, step: int) -> None:
    cases = [case for file in sorted(CASES.iterdir()) for case in read_cases(file)][::step]
    with pair(tmp_path, ["one"]) as alone, grpc.insecure_channel(alone.leader().address) as channel:
        player = Player(channel)
        failed = [(case.case_id, why) for case in cases if (why := _why(player, case))]
    assert failed == []
    assert len(cases) > 170 // step


def _why(player: Player, case: Case | BadCase) -> str | None:
    return case.why if isinstance(case, BadCase) else player.play(case)
