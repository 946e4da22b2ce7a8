"""A session that was started without the jar says so at the first call that needs it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

BEGIN = """
import os, sys
from worker.spark import catalog_jar
catalog_jar.BUILT, catalog_jar.PACKAGE = catalog_jar.Path("nowhere"), "no_such_package_here"  # as if there were none
import laketx

def show(*calls):
    for call in calls:
        try:
            call()
        except Exception as error:
            print(str(error).splitlines()[:2])
"""
CLASSIC = """
with laketx.connect(sys.argv[1]) as lake:
    table = lake.create_table("t", "id bigint")
    table.append([{"id": 1}])
    print(table.to_arrow().num_rows)
    show(  # the first one starts Spark
        lambda: table.update({"id": "abs(id)"}, where="id % 2 = 1"), table.read,
        lambda: table.changes(since=0), lambda: table.export(sys.argv[1] + "-out"), lake.as_catalog,
        lambda: lake.spark.sql("SELECT * FROM lake.t"),
    )
"""
CONNECT = """
os.environ["SPARK_TESTING"] = "1"  # a port that is free
from pyspark.sql import SparkSession
own = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.remote("local[1]").config(map=own).getOrCreate()
with laketx.connect(sys.argv[1], spark) as lake:
    table = lake.create_table("t", "id bigint")
    table.append([{"id": 1}])
    print(table.to_arrow().num_rows)
    show(table.read, lambda: table.changes(since=0))
"""


def lines_of(story: str, folder: Path) -> list[str]:
    command = [sys.executable, "-c", BEGIN + story, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_a_classic_session_without_the_jar_says_what_is_missing(tmp_path: Path) -> None:
    rows, *refused, sql = lines_of(CLASSIC, tmp_path / "lake")
    assert rows == "1"
    assert len(refused) == 5
    assert all("JAR_MISSING" in line for line in refused), refused
    assert "which is in the jar of LakeTX (pip install laketx-spark-4.3" in sql


@pytest.mark.long
def test_a_server_of_spark_connect_without_the_jar(tmp_path: Path) -> None:
    if importlib.util.find_spec("zstandard") is None:
        pytest.skip("Spark Connect needs zstandard, which is not installed here")
    rows, *refused = lines_of(CONNECT, tmp_path / "lake")
    assert rows == "1"
    assert len(refused) == 2
    assert all("JAR_MISSING" in line for line in refused), refused
