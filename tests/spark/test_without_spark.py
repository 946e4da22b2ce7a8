"""Calls that need no Spark answer the same with a session and where Spark isn't installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import laketx
from tests.house.tree import ROOT
from tests.spark import story_without_spark

HERE = """
import json, sys
from pathlib import Path
for name in ("pyspark", "py4j"):
    sys.modules[name] = None  # as if it weren't installed
import laketx
from tests.spark import story_without_spark
with laketx.connect(sys.argv[1]) as lake:
    found = [story_without_spark.play(lake, Path(sys.argv[1], "files")), story_without_spark.refusals(lake)]
print(json.dumps(found))
"""


def test_calls_without_spark_answer_as_with_it(spark: SparkSession, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HERE, str(tmp_path / "without")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    without = json.loads(done.stdout)
    with laketx.connect(tmp_path / "with", spark) as lake:
        found = [story_without_spark.play(lake, tmp_path / "with" / "files"), story_without_spark.refusals(lake)]
        assert without == json.loads(json.dumps(found))
        assert "none" not in without[1]
        table = lake.table("shop.orders")
        rows = [row.asDict() for row in table.changes(since=1, mode="log").drop("_commit_time").collect()]
        assert sorted(map(repr, rows)) == story_without_spark.rows_of(table.to_arrow(since=1, mode="log"))
