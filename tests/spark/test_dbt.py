"""The dbt project in examples/dbt, in an environment of its own, with a Spark of its own."""

import os
import subprocess
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from laketx import connect
from tests.house.tree import ROOT
from tests.integration.service import service
from tests.spark.sql import catalog_of
from tools.environment import ensure
from worker.spark.catalog_jar import find_jar

PROJECT = ROOT / "examples" / "dbt"
TIMEOUT_S = 600.0
FIRST, SECOND = date(2026, 11, 1), date(2026, 11, 2)


def build(uri: str, folder: Path, until: date) -> None:
    python = ensure("dbt", ("dbt-core", "dbt-spark", "pyspark"), PROJECT / "constraints.txt")
    command = [str(python.parent / "dbt"), "--no-use-colors", "build", "--vars", f"until: '{until}'"]
    command += ["--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT), "--target-path", str(folder / "target")]
    own = {
        "LAKETX_URI": uri,
        "LAKETX_WAREHOUSE": str(folder / "files"),
        "LAKETX_JAR": str(find_jar()),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [*command, "--log-path", str(folder / "logs")],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


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
        amounts = "SELECT id, dbt_valid_from, dbt_valid_to FROM {lake}.order_amounts WHERE id > 2 ORDER BY id, arrived"
        build(uri, tmp_path, FIRST)
        begun = [(1, "open", Decimal("10.00")), (2, "open", Decimal("20.00")), (3, "open", Decimal("30.00"))]
        assert rows(orders) == begun
        assert rows(daily) == [(FIRST, 3, Decimal("60.00"))]
        assert rows(states) == [(1, "open", True), (2, "open", True), (3, "open", True)]

        assert rows(arrivals) == [(FIRST, 3, Decimal("60.00"))]
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
        assert rows("SELECT operation FROM {lake}.orders.history WHERE version > 1 ORDER BY version") == [("merge",)]
        assert rows(daily.replace("daily", "daily VERSION AS OF 1")) == [(FIRST, 3, Decimal("60.00"))]
