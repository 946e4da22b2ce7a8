"""Iceberg's REST compatibility kit: tests of its Java library for catalogs, against one of ours.

`kit/failures.json` has the tests that fail by design, by their reason. docs/iceberg.md shows how many each reason has.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from tests.house.tree import ROOT
from tests.iceberg.servers import served_folder
from tests.spark.sessions import require_java
from tools.toolchain import ToolchainError, maven_command

KIT: Final = Path(__file__).resolve().parent / "kit"
FAILURES: Final = KIT / "failures.json"
PAGE: Final = ROOT / "docs" / "iceberg.md"
BROKEN: Final = ("failure", "error")
TESTS: Final = 157
OPTIONAL: Final = 11  # for what catalogs need not have: they are skipped


def failing() -> Mapping[str, Sequence[str]]:
    """The tests that fail by design, by their reason."""
    found: dict[str, list[str]] = json.loads(FAILURES.read_text(encoding="utf-8"))
    return found


@pytest.mark.long
def test_the_kit_fails_where_it_is_known_to(tmp_path: Path) -> None:
    require_java()
    try:
        maven = maven_command()
    except ToolchainError as error:
        pytest.skip(f"the kit needs Maven: {error}")
    built = shutil.copytree(KIT, tmp_path / "kit")
    with served_folder(tmp_path / "lake") as server:
        done = subprocess.run(
            [*maven, "--quiet", "test"],
            cwd=built,
            env={**os.environ, "KIT_URI": server.url},
            capture_output=True,
            text=True,
            check=False,
        )
    reports = list((built / "target" / "surefire-reports").glob("*.xml"))
    if not reports:
        pytest.skip(f"Maven can't fetch or build the kit here: {done.stdout[-2_000:]}")
    outcomes = {
        f"{case.get('classname', '').removeprefix('kit.')}.{case.get('name')}": any(
            case.find(one) is not None for one in BROKEN
        )
        for report in reports
        for case in ET.parse(report).getroot().iter("testcase")
    }
    failed = {test for test, is_failed in outcomes.items() if is_failed}
    by_design = {test for tests in failing().values() for test in tests}
    assert (sorted(failed - by_design), sorted(by_design - failed)) == ([], [])
    assert len(outcomes) == TESTS


def test_the_page_says_how_many_fail_for_which_reason() -> None:
    page = PAGE.read_text(encoding="utf-8")
    counts = {reason: len(tests) for reason, tests in failing().items()}
    for reason, count in counts.items():
        assert f"| {reason} | {count} |" in page
    assert f"Of {TESTS} tests, {TESTS - OPTIONAL - sum(counts.values())} pass, and {OPTIONAL} test optional" in page
