"""The tester's own model: what statements mean, and what the docs promise for two of them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tests.races.outcomes import PROFILES, Expected, Meeting
from tests.races.statements import BASE, TARGETS, Kind, Statement, statements

DOCS = Path(__file__).parents[2] / "docs" / "semantics.md"


def named(name: str, place: str = "same row", *, later: bool = True) -> Statement:
    [found] = [one for one in statements(TARGETS[place][0 if later else 1]) if one.name == name]
    return found


def test_the_outcome_table_is_that_of_the_docs() -> None:
    text = DOCS.read_text(encoding="utf-8").partition("generated: outcome-table -->")[2].partition("<!-- end")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    lines = [[cell.strip(" *") for cell in row] for row in rows]
    classes = {kind.value: kind for kind in Kind} | {"MINOR COMPACT, CLUSTERING": Kind.MINOR}
    examples = {
        Kind.OVERWRITE: "OVERWRITE all",
        Kind.INSERT: "INSERT values",
        Kind.CHANGE: "UPDATE",
        Kind.MINOR: "MINOR",
        Kind.MAJOR: "MAJOR",
    }
    heads = lines[0][1:]
    assert len(heads) == len(lines[2:]) == len(Kind)
    for line in lines[2:]:
        for head, cell in zip(heads, line[1:], strict=True):
            earlier, later = named(examples[classes[line[0]]], later=False), named(examples[classes[head]])
            said = Meeting("maxcompute", False, later, earlier).expected
            assert said.value.startswith(cell), (line[0], head)


@pytest.mark.parametrize("keyed", [False, True])
def test_every_statement_changes_something_somewhere(keyed: bool) -> None:
    for statement in statements(TARGETS["same row"][0]):
        effect = statement.meaning(BASE)
        assert not effect.is_nothing, statement.name
        after = effect.apply(BASE, keyed=keyed)
        assert all(re.fullmatch("[abc]", day) for _, day, _ in after)
        assert not keyed or len({row[:2] for row in after}) == len(after)


@pytest.mark.parametrize(("keyed", "profile"), list(itertools.product([False, True], PROFILES)))
def test_what_must_commit_can_keep_its_promise(keyed: bool, profile: str) -> None:
    """A pair that the docs let commit ends in rows that they promise: the model doesn't contradict itself."""
    for later_target, earlier_target in TARGETS.values():
        for later, earlier in itertools.product(statements(later_target), statements(earlier_target)):
            meeting = Meeting(profile, keyed, later, earlier)
            if meeting.expected is Expected.COMMITS and later.reads and not meeting.won.is_nothing:
                rebased = meeting.own.apply(meeting.after_earlier, keyed=keyed)
                assert rebased in meeting.promised, (later.name, earlier.name)
