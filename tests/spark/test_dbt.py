"""The dbt project in examples/dbt, in an environment of its own, with a Spark of its own."""

import os
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from laketx import connect
from tests.house.tree import ROOT
from tests.integration.service import service
from tests.integration.terminal import Shell
from tests.spark.sql import catalog_of
from tools.environment import ensure
from worker.spark.catalog_jar import find_jar

PROJECT = ROOT / "examples" / "dbt"
TIMEOUT_S = 600.0
VIEWS = ("config.materialized:view", "config.materialized:laketx_view")
FIRST, SECOND = date(2026, 11, 1), date(2026, 11, 2)


def build(uri: str, folder: Path, until: date) -> None:
    done = dbt(uri, folder, "build", "--vars", f"until: '{until}'")
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


def dbt(uri: str, folder: Path, *words: str, branch: str = "") -> subprocess.CompletedProcess[str]:
    python = ensure("dbt", ("dbt-core", "dbt-spark", "pyspark"), PROJECT / "constraints.txt")
    command = [str(python.parent / "dbt"), "--no-use-colors", *words]
    command += ["--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT), "--target-path", str(folder / "target")]
    own = {
        "LAKETX_URI": uri,
        "LAKETX_WAREHOUSE": str(folder / "files"),
        "LAKETX_JAR": str(find_jar()),
        "LAKETX_BRANCH": branch,
        "PYSPARK_PYTHON": sys.executable,  # of Spark's workers, which build the materialized views
        "PYTHONPATH": str(PROJECT / "python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        [*command, "--log-path", str(folder / "logs")],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.long
def test_dbt_builds_twice(spark: SparkSession, tmp_path: Path) -> None:
    """Seeds and tables anew, what came since by MERGE, and the snapshot's history."""
    with (
        service(tmp_path / "store") as (running, _),
        connect(f"laketx://{running.address}", spark, warehouse=str(tmp_path / "files")) as lake,
    ):
        uri, name = f"laketx://{running.address}", catalog_of(lake)

        def rows(statement: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in spark.sql(statement.replace("{lake}", f"{name}.analytics")).collect()]

        orders = "SELECT id, state, amount FROM {lake}.orders ORDER BY id"
        daily = "SELECT * FROM {lake}.daily ORDER BY day"
        states = "SELECT id, state, dbt_valid_to IS NULL FROM {lake}.order_states ORDER BY id, dbt_valid_from"
        arrivals = "SELECT arrived, count(*), sum(amount) FROM {lake}.arrivals GROUP BY arrived ORDER BY arrived"
        by_state = "SELECT * FROM {lake}.states ORDER BY state"
        amounts = "SELECT id, dbt_valid_from, dbt_valid_to FROM {lake}.order_amounts WHERE id > 2 ORDER BY id, arrived"
        build(uri, tmp_path, FIRST)
        begun = [(1, "open", Decimal("10.00")), (2, "open", Decimal("20.00")), (3, "open", Decimal("30.00"))]
        assert rows(orders) == begun
        assert rows(daily) == [(FIRST, 3, Decimal("60.00"))]
        assert rows(states) == [(1, "open", True), (2, "open", True), (3, "open", True)]

        assert rows(arrivals) == [(FIRST, 3, Decimal("60.00"))]
        assert rows(by_state) == [("open", 3, Decimal("60.00"))]
        assert rows(amounts) == [(3, FIRST, None)]

        build(uri, tmp_path, SECOND)
        assert rows(orders) == [
            (1, "open", Decimal("10.00")),
            (2, "paid", Decimal("20.50")),
            (3, "cancelled", Decimal("0.00")),
            (4, "open", Decimal("40.00")),
        ]
        assert rows(daily) == [(FIRST, 1, Decimal("10.00")), (SECOND, 3, Decimal("60.50"))]
        assert rows(states) == [
            (1, "open", True),
            (2, "open", False),
            (2, "paid", True),
            (3, "open", False),
            (3, "cancelled", True),
            (4, "open", True),
        ]
        assert rows(arrivals) == [(FIRST, 3, Decimal("60.00")), (SECOND, 3, Decimal("60.50"))]
        assert rows(amounts) == [(3, FIRST, SECOND), (3, SECOND, None), (4, SECOND, None)]
        assert rows("SELECT id FROM {lake}.open_orders ORDER BY id") == [(1,), (4,)]
        assert rows(by_state) == [("cancelled", 1, 0), ("open", 2, 50), ("paid", 1, Decimal("20.50"))]
        view = lake.materialized_view("analytics.states")
        assert (view.status().kind, view.status().schedule) == ("incremental", "every 10 minutes")
        assert view.verify().holds
        assert rows("SELECT operation FROM {lake}.orders.history WHERE version > 1 ORDER BY version") == [("merge",)]
        assert rows(daily.replace("daily", "daily VERSION AS OF 1")) == [(FIRST, 3, Decimal("60.00"))]


@pytest.mark.long
def test_a_run_on_a_branch_is_merged_when_its_tests_pass(spark: SparkSession, tmp_path: Path) -> None:
    """As the example's page has it: the lake sees nothing of the run before the merge, and all of it then."""
    with (
        service(tmp_path / "store") as (running, _),
        connect(f"laketx://{running.address}", spark, warehouse=str(tmp_path / "files")) as lake,
    ):
        uri, shell = f"laketx://{running.address}", Shell(running.address)
        build(uri, tmp_path, FIRST)
        before = {name: lake.table(name).meta.head_version for name in lake.tables("analytics")}
        assert shell.run("branch", "create", "nightly").code == 0
        words = ("build", *("--exclude", *VIEWS, "resource_type:seed"), "--vars", f"until: '{SECOND}'")
        done = dbt(uri, tmp_path, *words, branch="nightly")
        assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
        assert {name: lake.table(name).meta.head_version for name in lake.tables("analytics")} == before

        wrong = {"id": 1, "state": "lost", "amount": Decimal("1.00"), "arrived": SECOND}
        lake.table("analytics.orders@nightly").insert(pa.Table.from_pylist([wrong]))
        assert dbt(uri, tmp_path, "test", "--select", "orders", branch="nightly").returncode == 1
        lake.table("analytics.orders@nightly").insert(pa.Table.from_pylist([wrong | {"state": "open"}]))
        assert dbt(uri, tmp_path, "test", "--select", "orders", branch="nightly").returncode == 0

        assert shell.run("branch", "merge", "nightly").code == 0
        states = {row["id"]: row["state"] for row in lake.table("analytics.orders").to_arrow().to_pylist()}
        assert states == {1: "open", 2: "paid", 3: "cancelled", 4: "open"}
        assert lake.table("analytics.order_states").count() == 6  # with what they were before
        assert dbt(uri, tmp_path, "run", "--select", *VIEWS).returncode == 0
