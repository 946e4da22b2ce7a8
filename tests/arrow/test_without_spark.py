"""Reads where neither Spark nor Java is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys
for name in ("pyspark", "py4j"):
    sys.modules[name] = None  # as if it weren't installed
"""
STORY = """
import laketx
import pyarrow as pa

with laketx.connect("lake") as lake:
    table = lake.create_table("shop.orders", "id bigint, amount double, tags array<string>", primary_key=["id"])
    assert table.to_arrow().num_rows == table.count() == 0
    other = lake.create_table("shop.events", pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
    assert [column.type for column in other.meta.columns] == ["bigint", "timestamp"]
    assert lake.tables() == ["shop.events", "shop.orders"]
    try:
        table.read()
    except laketx.InputError as error:
        assert error.reason == "SPARK_MISSING", error
"""


def run(story: str, folder: Path) -> tuple[int, str, str]:
    command, env = [sys.executable, "-c", story], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr


def test_tables_are_read_without_spark(tmp_path: Path) -> None:
    assert run(WITHOUT + STORY, tmp_path) == (0, "", "")


def test_an_empty_table_is_read_without_loading_polars(tmp_path: Path) -> None:
    look = "import sys; print([name for name in ('pyspark', 'polars') if name in sys.modules])"
    story = f"import laketx; laketx.connect('lake').create_table('t', 'id bigint').to_arrow(); {look}"
    assert run(story, tmp_path) == (0, "[]", "")


def test_a_few_rows_are_read_without_loading_what_is_slow(tmp_path: Path) -> None:
    made = "import laketx; laketx.connect('lake').create_table('t', 'id bigint, v string').append([{'id': 1}])"
    assert run(made, tmp_path) == (0, "", "")
    slow = ["pyspark", "polars", "pandas", "pyarrow.compute", "pyarrow.dataset", "google.rpc.error_details_pb2"]
    look = f"import sys; print(count, [name for name in {slow} if name in sys.modules])"
    story = f"import laketx; count = laketx.connect('lake').table('t').to_arrow(limit=1).num_rows; {look}"
    assert run(story, tmp_path) == (0, "1 []", "")
