"""The tutorial's cells run from top to bottom, and do what the text beside them says."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.house.tree import ROOT

NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    listed = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in listed if cell["cell_type"] == kind]


def test_it_is_kept_without_outputs() -> None:
    assert [cell["id"] for cell in cells("code") if cell["outputs"] or cell["execution_count"] is not None] == []
    assert len({cell["id"] for cell in cells("code") + cells("markdown")}) == len(cells("code") + cells("markdown"))


@pytest.mark.long
def test_its_cells_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    for cell in cells("code"):
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name} {cell['id']}", "exec"), names)
    assert names["spark"] is spark
    assert (names["first"].version, names["second"].version) == (1, 2)
    assert names["merged"] == [(1, "paid", 10.0), (2, "open", 25.0), (3, "paid", 33.0), (9, None, 90.0)]
    assert (names["before"], names["one_ago"], names["restored"].version) == ([1, 2, 3, 4], 3, 6)
    assert names["kinds"] == [
        *((1, "update_postimage"), (1, "update_preimage"), (2, "update_postimage"), (2, "update_preimage")),
        *((4, "delete"), (9, "insert")),
    ]
    assert (names["total"], names["paid"]) == (103.0, 1)
    assert names["lost"].table == "shop.orders"
    assert names["again"].attempts == 1
    assert names["by_day"] == {"2026-11-01": 2, "2026-11-02": 1}
    assert [commit.table for commit in names["txn"].commits] == ["shop.orders", "web.events"]
    assert sorted(path.name for path in (names["folder"] / "out").iterdir()) == ["day=2026-11-01", "day=2026-11-02"]
