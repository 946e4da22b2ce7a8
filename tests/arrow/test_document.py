"""The examples without Spark in README.md and pages of docs, played as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
"""
BEFORE = """
import laketx

with laketx.connect("./warehouse") as lake:
    orders = lake.create_table("shop.orders", "id bigint, amount double", primary_key=["id"])
    orders.upsert([{"id": 1, "amount": 10.0}, {"id": 2, "amount": 20.0}])
    orders.upsert([{"id": 2, "amount": 25.0}, {"id": 3, "amount": 30.0}])
"""
AFTER = """
assert orders.to_arrow().num_rows == 6
"""
README_LINES = 5


def blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def play(folder: Path, *code: str) -> str:
    command, env = [sys.executable, "-c", "\n".join([WITHOUT_SPARK, *code])], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_makes_a_table_in_five_lines(tmp_path: Path) -> None:
    (block,) = blocks("README.md")
    assert len([line for line in block.splitlines() if line.strip()]) == README_LINES
    (says,) = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
    assert play(tmp_path, block) == f"{says}\n"


def test_the_quickstart_runs(tmp_path: Path) -> None:
    (block,) = [each for each in blocks("docs/quickstart.md") if "lake.spark" not in each]
    newest, before, changed, *log = play(tmp_path, block).splitlines()
    assert newest == "[{'id': 2, 'page': '/cart', 'seconds': 40}]"
    assert before == "2"
    assert changed.count("'_change_type'") == 2
    assert [line.split()[0] for line in log] == ["2", "1", "0"]
    assert {line.split()[-1] for line in log} == {"ana"}


def test_the_examples_run(tmp_path: Path) -> None:
    found = blocks("docs/arrow.md")
    assert len(found) >= 3
    assert "30.0" in play(tmp_path, BEFORE, *found, AFTER)


@pytest.mark.parametrize("page", ["ingest", "periodic-tasks"])
def test_what_a_page_prints_is_what_happens(tmp_path: Path, page: str) -> None:
    (tmp_path / "customers.jsonl").write_bytes((ROOT / "tests/arrow/customers.jsonl").read_bytes())
    for block in blocks(f"docs/{page}.md"):
        if "import laketx" in block:
            says = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
            assert play(tmp_path, block).splitlines() == says
            assert says


def test_the_page_of_dlt_says_what_happens(tmp_path: Path) -> None:
    found = blocks("docs/dlt.md")
    says = [one for block in found for one in re.findall(r"^    print\(.*\)  # (.*)$", block, re.MULTILINE)]
    quiet = f"import os\nos.environ.update(DLT_DATA_DIR={str(tmp_path)!r}, RUNTIME__DLTHUB_TELEMETRY='false')"
    assert play(tmp_path, quiet, *found).splitlines() == says
    assert says
