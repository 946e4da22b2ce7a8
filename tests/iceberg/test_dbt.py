"""dbt builds tables of LakeTX through Spark with Iceberg's jar, and builds them anew (--full-refresh)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from laketx import Lake, Table
from tests.iceberg.engines.environment import SPARK_SETTINGS, dbt_or_skip, spark_catalog
from tests.iceberg.servers import Server

TOTALS: Final = """
{{ config(materialized='table', file_format='iceberg', partition_by=['day']) }}
SELECT id, DATE '2026-11-01' AS day FROM range({{ var('rows') }})
"""
ADDED: Final = """
{{ config(materialized='incremental', file_format='iceberg', incremental_strategy='append') }}
SELECT id, day FROM {{ ref('totals') }}
"""
PROJECT: Final = {"name": "visits", "version": "1.0", "profile": "visits", "model-paths": ["models"]}


@pytest.mark.long
def test_dbt_builds_and_refreshes(lake: Lake, server: Server, tmp_path: Path) -> None:
    python = dbt_or_skip()
    settings = SPARK_SETTINGS | spark_catalog("lake", server.url, "v2") | {"spark.sql.defaultCatalog": "lake"}
    settings["spark.hadoop.javax.jdo.option.ConnectionURL"] = "jdbc:derby:memory:dbt;create=true"
    output = {"type": "spark", "method": "session", "schema": "daily", "host": "NA", "server_side_parameters": settings}
    profiles = {"visits": {"target": "dev", "outputs": {"dev": output}}}
    (tmp_path / "models").mkdir()
    for name, text in (
        ("profiles.yml", json.dumps(profiles)),
        ("dbt_project.yml", json.dumps(PROJECT)),
        ("models/totals.sql", TOTALS),
        ("models/added.sql", ADDED),
    ):
        (tmp_path / name).write_text(text)

    def run(rows: int, *options: str) -> None:
        words = [str(python.parent / "dbt"), "run", *options, "--vars", json.dumps({"rows": rows})]
        quiet = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
        done = subprocess.run(words, cwd=tmp_path, env=quiet, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout

    run(3)
    run(2)
    assert (numbers(lake.table("daily.totals")), numbers(lake.table("daily.added"))) == ([0, 1], [0, 0, 1, 1, 2])
    run(4, "--full-refresh")
    totals = lake.table("daily.totals")
    assert (numbers(totals), numbers(lake.table("daily.added"))) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert sorted(totals.to_arrow(version=1).column("id").to_pylist()) == [0, 1, 2], "its history stays"


def numbers(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())
