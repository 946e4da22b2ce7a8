"""The documents' rule tables and pictures are the code's."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tools import gen_iceberg_matrix, gen_rule_docs, gen_timeline

SHARED = ROOT / "tests/conformance/cases/outcome_table.csv"
CLASSES = {
    "INSERT_OVERWRITE": "INSERT OVERWRITE, TRUNCATE, RESTORE",
    "INSERT_INTO": "INSERT INTO",
    "UPDATE_DELETE": "UPDATE, DELETE, MERGE",
    "MINOR_COMPACT": "MINOR COMPACT, CLUSTERING",
    "MAJOR_COMPACT": "MAJOR COMPACT",
}


@pytest.mark.parametrize(
    "generate", [gen_rule_docs.main, gen_timeline.main, gen_iceberg_matrix.main], ids=["tables", "picture", "readers"]
)
def test_documents_are_fresh(generate: Callable[[list[str]], int]) -> None:
    assert generate(["--check"]) == 0, "run `make docs`"


def test_every_table_stands_in_a_document_once() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in gen_rule_docs.DOCUMENTS]
    found = [name for text in texts for name in gen_rule_docs.names_in(text)]
    assert sorted(found) == sorted(gen_rule_docs.BLOCKS)
    assert sum(text.count("<!-- generated: ") for text in texts) == len(found)


def test_the_outcome_table_is_the_one_that_was_asked_for() -> None:
    head, _, *rows = gen_rule_docs.outcome_table().splitlines()
    later = [cell.strip() for cell in head.split("|")[2:-1]]
    shown: dict[tuple[str, str], bool] = {}
    for row in rows:
        earlier, *cells = [cell.strip(" *") for cell in row.split("|")[1:-1]]
        shown |= {(earlier, mine): cell == "commits" for mine, cell in zip(later, cells, strict=True)}
    with SHARED.open(encoding="utf-8") as lines:
        asked = {
            (CLASSES[row["earlier"]], CLASSES[row["later"]]): row["later_stands"] == "yes"
            for row in csv.DictReader(lines)
        }
    assert shown == asked


def test_a_document_goes_stale_and_is_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    for name in gen_rule_docs.DOCUMENTS:
        (tmp_path / name).touch()
    document = tmp_path / gen_rule_docs.DOCUMENTS[0]
    document.write_text("Before.\n\n<!-- generated: follows -->\nold\n<!-- end -->\n\nAfter.\n", encoding="utf-8")
    assert gen_rule_docs.main(["--check"], tmp_path) == 1
    assert "make docs" in capsys.readouterr().err
    assert gen_rule_docs.main([], tmp_path) == 0
    assert gen_rule_docs.main(["--check"], tmp_path) == 0
    text = document.read_text(encoding="utf-8")
    assert text.startswith("Before.\n")
    assert text.endswith("\n<!-- end -->\n\nAfter.\n")
    assert "| MAJOR COMPACT | MINOR COMPACT, CLUSTERING |" in text
    assert "old" not in text
