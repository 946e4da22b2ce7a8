"""The README's lines on Spark do what the README says, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import laketx
from tests.house.tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(import laketx\n.*?)^```.*?^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_the_lines_on_spark_do_what_they_say(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = BLOCK.search(README)
    assert found is not None
    lines, says = found.groups()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(lines, "README.md", "exec"), names)
    lake, orders = names["lake"], names["orders"]
    assert isinstance(lake, laketx.Lake)
    assert isinstance(orders, laketx.Table)
    with lake:
        printed = capsys.readouterr().out
        assert ID.sub("ID", printed).endswith(ID.sub("ID", says))
        assert sorted(map(tuple, orders.read(version=1).collect())) == [(1, 10.0), (2, 20.0)]
        assert sorted(map(tuple, orders.read().collect())) == [(2, 25.0), (3, 30.0)]
        assert (tmp_path / "warehouse").is_dir()
