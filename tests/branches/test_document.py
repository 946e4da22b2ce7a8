"""docs/branches.md does what it says: write, audit and publish with pandas. tests/spark has its SQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import laketx
from tests.house.tree import ROOT

PAGE: Final = (ROOT / "docs/branches.md").read_text(encoding="utf-8")
PANDAS: Final = re.compile(r"^```python\n(import pandas as pd\n.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_lines_with_pandas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (lines,) = PANDAS.findall(PAGE)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(lines, "branches.md", "exec"), names)
    lake = names["lake"]
    assert isinstance(lake, laketx.Lake)
    with lake:
        assert "check 1 of 1 does not hold on the branch load-7" in capsys.readouterr().out
        assert lake.table("shop.orders").to_arrow().to_pylist() == [{"id": 1, "amount": 10.0}]
        assert lake.branches() == []
