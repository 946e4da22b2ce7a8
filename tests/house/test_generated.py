"""What is generated is what it is generated from, and the `.proto` files say something about everything."""

from collections.abc import Callable

import pytest

from tests.house.tree import ROOT
from tools import gen_api_docs, gen_protos, gen_rule_docs, gen_timeline

DOCUMENTS = ["the reference", "the rule tables", "the picture"]


def test_generated_code_is_fresh() -> None:
    assert gen_protos.list_stale(ROOT) == []


@pytest.mark.parametrize("generate", [gen_api_docs.main, gen_rule_docs.main, gen_timeline.main], ids=DOCUMENTS)
def test_documents_are_fresh(generate: Callable[[list[str]], int]) -> None:
    assert generate(["--check"]) == 0, "run `make docs`"


def test_every_element_of_the_wire_has_a_comment() -> None:
    uncommented = gen_api_docs.list_uncommented(ROOT)
    assert [f"{each.file}:{each.line} {each.kind} {each.name}" for each in uncommented] == []
