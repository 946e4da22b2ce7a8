"""What `make plant` plants can still be planted."""

import pytest

from tests.house.tree import ROOT
from tests.plant.bugs import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_finds_its_place(bug: Bug) -> None:
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    assert [old for old, _ in bug.swaps if text.count(old) != 1] == []
