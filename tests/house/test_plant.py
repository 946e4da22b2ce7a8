"""What `make plant` plants can still be planted, and the tests that it runs for a bug are there."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from _pytest.mark.expression import Expression

from tests.house.tree import ROOT
from tests.plant.__main__ import PAGE, read_page, write_page
from tests.plant.bug import Bug
from tests.plant.bugs import BUGS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_finds_its_place(bug: Bug) -> None:
    places = [*((bug.file, old) for old, _ in bug.swaps), *((file, old) for file, old, _ in bug.also)]
    assert [old for file, old in places if (ROOT / file).read_text(encoding="utf-8").count(old) != 1] == []


def test_the_page_has_a_row_for_each_bug() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert list(read_page(page)) == [bug.name for bug in BUGS]
    assert write_page(read_page(page)) == page


def named(test: str) -> Callable[..., bool]:
    """Whether a test has a word in its name, as `-k` asks."""
    return lambda word, /, **_: word in test


def test_own_tests_of_a_bug_are_there_and_not_long() -> None:
    chosen = [bug for bug in BUGS if bug.own_tests]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not long"]
    said = subprocess.run(
        [*command, *sorted({bug.own_tests[0] for bug in chosen})], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tests = [line for line in said.stdout.splitlines() if "::" in line]
    for bug in chosen:
        file, words = bug.own_tests[0], Expression.compile(bug.own_tests[2] if bug.own_tests[1:] else "py")
        assert any(test.startswith(file) and words.evaluate(named(test)) for test in tests), bug.name
