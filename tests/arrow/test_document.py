"""The examples in docs/arrow.md, played as they are written, without Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BEFORE = """
import sys
sys.modules["pyspark"] = None
import laketx

with laketx.connect("./warehouse") as lake:
    orders = lake.create_table("shop.orders", "id bigint, amount double", primary_key=["id"])
    orders.upsert([{"id": 1, "amount": 10.0}, {"id": 2, "amount": 20.0}])
    orders.upsert([{"id": 2, "amount": 25.0}, {"id": 3, "amount": 30.0}])
"""
AFTER = """
assert orders.to_arrow().num_rows == 6
"""


def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs/arrow.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) >= 3
    command, env = [sys.executable, "-c", "\n".join([BEFORE, *blocks, AFTER])], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "30.0" in done.stdout
