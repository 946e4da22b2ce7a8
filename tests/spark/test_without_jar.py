"""A session that was started without the jar says so where a statement names the lake's catalog."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

STORY = """
import sys
from worker.base import spark_jar
spark_jar.BUILT, spark_jar.PACKAGE = spark_jar.Path("nowhere"), "no_such_package_here"  # as if it weren't installed
import laketx
with laketx.connect(sys.argv[1]) as lake:
    lake.create_table("t", "id bigint").append([{"id": 1}])
    print(lake.table("t").read().count())
    for call in (lambda: lake.spark.sql("SELECT * FROM lake.t"), lake.as_catalog):
        try:
            call()
        except Exception as error:
            print(str(error).splitlines()[:2])
"""


@pytest.mark.long
def test_a_statement_in_a_session_without_the_jar_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STORY, str(tmp_path / "lake")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows, sql, catalog = done.stdout.splitlines()
    assert rows == "1"
    assert "which is in the jar of LakeTX (pip install laketx-spark-4.3" in sql
    assert "JAR_MISSING" in catalog
