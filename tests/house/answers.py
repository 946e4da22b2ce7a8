"""What docs/answers.md says of each call."""

import re

from tests.house.tree import ROOT

ROW = re.compile(r"\| `(?P<call>[A-Za-z]+)` \| (?P<way>[a-z]+) \| [^|]+ \|")


def documented() -> dict[str, str]:
    """Each call, and the way that its answer is cut."""
    text = (ROOT / "docs/answers.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    found = [match for row in rows if (match := ROW.fullmatch(row)) is not None]
    assert len(found) == len(rows), "a row is `| `Call` | pages, parts or whole | what bounds it |`"
    assert len({row["call"] for row in found}) == len(found), "a call stands there twice"
    return {row["call"]: row["way"] for row in found}
