"""What the console shows of the documents and the rules is what they say."""

import re

from tests.house.tree import ROOT
from tools.gen_console import PAGE, RULES, main, meanings, runbooks


def test_they_are_fresh() -> None:
    assert main(["--check"]) == 0, "run `make docs`"


def test_a_link_leads_into_the_page_or_becomes_a_name() -> None:
    page = runbooks("# T\n\n## One two\n\nSee [a](#one-two), [b](operations.md#backup), `<b>` and {{ x }}.\n")
    assert '<h2 id="one-two">' in page
    assert '<a href="#one-two">a</a>' in page
    assert "b (<code>docs/operations.md</code>)" in page
    assert "<code>&lt;b&gt;</code>" in page
    links = re.findall(r'href="([^"]*)"', (ROOT / PAGE).read_text(encoding="utf-8"))
    assert [link for link in links if not link.startswith("#")] == []


def test_each_rule_of_the_wire_has_a_meaning() -> None:
    assert {"OUTCOME_TABLE", "CONCURRENT_ROW_CHANGE"} <= meanings().keys()
    assert all(text.endswith(".") for text in meanings().values())
    assert (ROOT / RULES).is_file()
