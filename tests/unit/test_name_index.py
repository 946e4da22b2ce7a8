"""Names in order, and which of them contain a text; the names on each branch, and the branches that left another."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from metaservice.core.table.branches import Branch
from metaservice.core.table.model import Principal
from metaservice.service.decider.names import BranchNames, NameIndex, TableNames

names_of_two_branches = st.sampled_from(["a", "b", "a@x", "A@X", "b@x", "b@xy", "c@Xy"])
letters = st.text(alphabet="aAb.\n\u0130", max_size=4)


@given(names=st.sets(letters, max_size=12), prefix=letters, after=letters, part=letters)
@example(names={"a", "b"}, prefix="", after="", part="a\nb")  # no text of two names
@example(names={"a\na", "aa"}, prefix="a", after="a", part="a")
def test_the_names_are_those_of_a_look_at_each(names: set[str], prefix: str, after: str, part: str) -> None:
    expected = sorted(
        each for each in names if each > after and each.startswith(prefix) and part.lower() in each.lower()
    )
    assert list(NameIndex(names).find(prefix, after, part)) == expected


@given(st.lists(st.tuples(names_of_two_branches, st.booleans()), max_size=20))
def test_a_branch_has_the_names_that_end_with_it(changes: list[tuple[str, bool]]) -> None:
    names = TableNames()
    for name, stays in changes:
        names[name] = name
        if not stays:
            del names[name]
    for branch in ("x", "XY", "a"):
        assert sorted(names.on(branch)) == sorted(each for each in names if each.lower().endswith(f"@{branch.lower()}"))


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "a", "b"]), st.booleans()), max_size=20))
def test_the_children_of_a_branch_are_those_that_left_it(changes: list[tuple[str, str, bool]]) -> None:
    branches = BranchNames()
    for name, parent, stays in changes:
        if name not in branches:
            branches[name] = Branch(name, name, parent, 1, Principal("", ""), "", 0)
        elif not stays:
            del branches[name]
    for parent in "abcd":
        assert list(branches.children(parent)) == [each.name for each in branches.values() if each.parent == parent]
