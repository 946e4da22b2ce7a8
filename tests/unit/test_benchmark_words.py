"""Benchmarks show their help, and refuse words that they don't know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from benchmarks.words import chosen

FOLDER: Final = Path(__file__).resolve().parent.parent.parent / "benchmarks"
ABOUT: Final = "What commits cost, in 100 % of the cases.\n\nARGS choose."
PROGRAMS: Final = sorted(
    path.relative_to(FOLDER).as_posix()
    for path in FOLDER.rglob("*.py")
    if path.name != "frame.py" and 'Benchmark("' in path.read_text("utf-8")
)


@pytest.mark.parametrize("words", [[], ["load"], ["read", "load"]])
def test_known_words_are_taken(words: list[str]) -> None:
    assert chosen(ABOUT, ["load", "read"], words) == words


@pytest.mark.parametrize("known", [[], ["load", "read"]])
@pytest.mark.parametrize("words", [["laod"], ["load", "laod"], ["--laod"]])
def test_unknown_words_are_refused(known: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        chosen(ABOUT, known, words)
    assert refused.value.code == 2
    assert "laod" in capsys.readouterr().err


def test_the_help_is_the_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as shown:
        chosen(ABOUT, ["load", "read"], ["--help"])
    assert shown.value.code == 0
    said = capsys.readouterr().out
    assert ABOUT in said
    assert "load, read" in said


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_benchmark_reads_its_command_line_so(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    assert len(re.findall(r"chosen\(__doc__", text)) == 1
    assert "sys.argv" not in text.rpartition("def main")[2] or name == "scan.py"  # which has ROWS beside it
