"""Names in order, and which of them contain a text."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from metaservice.service.decider.name_index import NameIndex

letters = st.text(alphabet="aAb.\n\u0130", max_size=4)


@given(names=st.sets(letters, max_size=12), prefix=letters, after=letters, part=letters)
@example(names={"a", "b"}, prefix="", after="", part="a\nb")  # no text of two names
@example(names={"a\na", "aa"}, prefix="a", after="a", part="a")
def test_the_names_are_those_of_a_look_at_each(names: set[str], prefix: str, after: str, part: str) -> None:
    expected = sorted(
        each for each in names if each > after and each.startswith(prefix) and part.lower() in each.lower()
    )
    assert list(NameIndex(names).find(prefix, after, part)) == expected
