"""Every package that an install brings is pinned, the indirect ones too."""

from packaging.utils import canonicalize_name

from tests.house.dependencies import needed
from tests.house.tree import ROOT


def test_all_dependencies_are_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    assert needed("laketx", "test", "bench", "pyspark") - pinned == set()
