"""What `make plant` plants can still be planted, and the tests that it runs for a bug are there."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

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


def is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def planted_files(bug: Bug) -> dict[str, str]:
    """The files that a bug changes, with the bug in them."""
    planted: dict[str, str] = {}
    for file, old, new in [*((bug.file, old, new) for old, new in bug.swaps), *bug.also]:
        source = planted.get(file) or (ROOT / file).read_text(encoding="utf-8")
        planted[file] = source.replace(old, new)
    return planted


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_file_is_python(bug: Bug) -> None:
    """A file that isn't fails every test, so it proves nothing about them."""
    planted = planted_files(bug)
    assert [file for file, source in planted.items() if file.endswith(".py") and not is_python(source)] == []


def test_a_bug_uses_only_names_that_its_file_has(tmp_path: Path) -> None:
    """A planted line with an unknown name fails every test that reaches it, too."""
    for number, bug in enumerate(BUGS):
        for at, (file, source) in enumerate(planted_files(bug).items()):
            if file.endswith(".py"):
                (tmp_path / f"{number}-{at}.py").write_text(source, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", "--quiet"]
    checked = subprocess.run([*ruff, str(tmp_path)], capture_output=True, text=True, check=False)
    assert checked.stdout == "", checked.stdout
    unknown = [
        (bug.name, attribute)
        for bug in BUGS
        for file, old, new in [*((bug.file, old, new) for old, new in bug.swaps), *bug.also]
        for attribute in re.findall(r"\bself\._\w+", new)
        if attribute not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert unknown == []


def test_the_page_has_a_row_for_each_bug() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert list(read_page(page)) == [bug.name for bug in BUGS]
    assert write_page(read_page(page)) == page


def named(test: str) -> Callable[..., bool]:
    """Whether a test has a word in its name, as `-k` asks."""
    return lambda word, /, **_: word in test


@cache
def written(place: str) -> list[str]:
    """The tests of a file or a folder, long ones left out, as they are written: without their parameters."""
    at = ROOT / place
    found = []
    for file in [at] if at.is_file() else sorted(at.rglob("test_*.py")):
        for one in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
                is_long = any("mark.long" in ast.unparse(mark) for mark in one.decorator_list)
                found += [] if is_long else [f"{file.relative_to(ROOT)}::{one.name}"]
    return found


def collected(session: pytest.Session, places: Collection[str]) -> list[str]:
    """Likewise with their parameters, as pytest finds them, which takes seconds: a run of all tests has done it."""
    if session.config.args_source is pytest.Config.ArgsSource.TESTPATHS and not session.config.option.keyword:
        return [item.nodeid for item in session.items if item.get_closest_marker("long") is None]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not long", *places]
    plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    said = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if "::" in line]


def has_own(bug: Bug, tests: Collection[str]) -> bool:
    file, words = bug.own_tests[0], Expression.compile(bug.own_tests[2] if bug.own_tests[1:] else "py")
    return any(test.startswith(file) and words.evaluate(named(test)) for test in tests)


def test_own_tests_of_a_bug_are_there_and_not_long(request: pytest.FixtureRequest) -> None:
    chosen = [bug for bug in BUGS if bug.own_tests]
    by_parameter = [bug for bug in chosen if not has_own(bug, written(bug.own_tests[0]))]
    tests = collected(request.session, sorted({bug.own_tests[0] for bug in by_parameter})) if by_parameter else []
    assert [bug.name for bug in by_parameter if not has_own(bug, tests)] == []
