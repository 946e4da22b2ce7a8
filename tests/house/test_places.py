"""The files that the tree names are its own, and exist: no folder of a machine, no source of packages."""

import re

import pytest

from tests.house.tree import ROOT, list_written_by_hand, name_of

MACHINE_FOLDERS = ("root", "work")
MACHINE_PATH = re.compile(rf"(?<![\w.~)}}>*/-])/(?:{'|'.join(MACHINE_FOLDERS)})(?![\w-])")
OWN_FILE = re.compile(r"(?<![\w./-])(?:benchmarks|examples|laketx|metaservice|tests|tools|worker)/[a-z_/]+\.py\b")
ELSEWHERE = {  # files that a recipe makes, and one of pyiceberg's tree
    "metaservice/cli/hello.py",
    "metaservice/core/table/working_days.py",
    "tests/integration/test_rest_catalog.py",
    "tests/unit/test_working_days.py",
}
PACKAGE_SOURCE = re.compile(r"(?i)index[-_]url|find[-_]links|trusted[-_]host")


@pytest.mark.parametrize(
    ("text", "names_a_machine"),
    [
        ("cd /{}/main", True),
        ('open("/{}/x")', True),
        ("see `/{}`", True),
        ("tests/{}/x", False),
        ("$HOME/{}", False),
        ("/{}ers", False),
    ],
)
def test_what_counts_as_a_machine_path(text: str, names_a_machine: bool) -> None:
    found = [MACHINE_PATH.search(text.format(folder)) is not None for folder in MACHINE_FOLDERS]
    assert found == [names_a_machine] * len(MACHINE_FOLDERS)


def test_no_file_names_a_machine_path() -> None:
    assert lines_with(MACHINE_PATH) == []


def test_every_file_that_is_named_exists() -> None:
    named = {name for path, text in list_written_by_hand() for name in OWN_FILE.findall(text)}
    assert sorted(name for name in named - ELSEWHERE if not (ROOT / name).is_file()) == []


def test_no_file_says_where_packages_come_from() -> None:
    assert lines_with(PACKAGE_SOURCE) == []


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path, text in list_written_by_hand()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]
