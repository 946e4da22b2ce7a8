"""What is generated from the `.proto` files is what they say, and they say something about everything."""

from tests.house.tree import ROOT
from tools import gen_api_docs, gen_cli_docs, gen_protos, gen_python_docs, gen_spark_internals


def test_generated_code_is_fresh() -> None:
    assert gen_protos.list_stale(ROOT) == []


def test_the_api_reference_is_fresh() -> None:
    assert gen_api_docs.is_fresh(ROOT), "run `make docs`"


def test_every_element_of_the_wire_has_a_comment() -> None:
    uncommented = gen_api_docs.list_uncommented(ROOT)
    assert [f"{each.file}:{each.line} {each.kind} {each.name}" for each in uncommented] == []


def test_the_command_reference_is_fresh() -> None:
    assert gen_cli_docs.is_fresh(ROOT), "run `make docs`"


def test_the_python_reference_is_fresh() -> None:
    assert (ROOT / gen_python_docs.TARGET).read_text(encoding="utf-8") == gen_python_docs.document(), "run `make docs`"


def test_every_command_and_option_says_what_it_is() -> None:
    assert gen_cli_docs.list_unexplained() == []


def test_the_page_of_sparks_internals_is_fresh() -> None:
    assert (ROOT / gen_spark_internals.TARGET).read_text(encoding="utf-8") == gen_spark_internals.document(), (
        "run `make docs`"
    )
