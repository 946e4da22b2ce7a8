"""Views beside Spark: those of LakeTX's SQL are read with Iceberg's own jar, and those made with it by LakeTX's SQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laketx import Lake, connect
from metaservice.client import add_column, drop_column
from tests.iceberg.engines.environment import run_statements
from tests.iceberg.servers import served_folder
from tests.spark.sessions import shared_session
from tests.spark.sql import SqlReads

pytestmark = pytest.mark.long
OURS = (
    """CREATE VIEW {lake}.shop.totals (day COMMENT 'of the order', total) COMMENT 'by day'
       AS SELECT day, sum(amount) AS s FROM orders GROUP BY day""",
    "CREATE VIEW {lake}.shop.stars AS SELECT * FROM orders -- all",
    "CREATE VIEW {lake}.shop.nested AS SELECT tags, get(tags, 0).A AS first FROM shop.orders",
    "CREATE VIEW {lake}.shop.of_view AS WITH t AS (SELECT total FROM totals) SELECT max(total) AS most FROM t",
    "CREATE VIEW {lake}.shop.spans AS SELECT INTERVAL 1 DAY AS span",
)
READS = (
    "SHOW VIEWS IN lake.shop",
    "SELECT * FROM lake.shop.totals ORDER BY day",
    "SELECT * FROM lake.shop.stars ORDER BY id",
    "SELECT first FROM lake.shop.nested WHERE first IS NOT NULL",
    "SELECT * FROM lake.shop.of_view",
    "SELECT * FROM lake.shop.spans",
    "DESCRIBE TABLE lake.shop.totals",
)
WRITES = (
    "USE lake.shop",
    "CREATE VIEW made (day COMMENT 'of the order', n) AS SELECT day, count(*) FROM shop.orders GROUP BY day",
    "CREATE VIEW replaced AS SELECT 1 AS one",
    "CREATE OR REPLACE VIEW replaced AS SELECT 2 AS one",
    "ALTER VIEW replaced SET TBLPROPERTIES ('k' = 'v')",
    "CREATE VIEW gone AS SELECT 1 AS one",
    "ALTER VIEW gone RENAME TO lake.shop.later",
    "DROP VIEW later",
)


ROWS = [
    {"id": 1, "day": "2026-11-01", "amount": 2.5, "tags": [{"A": 7}]},
    {"id": 2, "day": "2026-11-02", "amount": 4.0, "tags": []},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("views")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with connect(folder / "lake", shared_session()) as made:
        made.client.create_namespace("shop")
        orders = made.create_table("shop.orders", "id int, day string, amount double, tags array<struct<A: int>>")
        orders.append(ROWS)
        yield made


@pytest.fixture(scope="module")
def sql(lake: Lake) -> Iterator[SqlReads]:
    """Names are found in `shop`, as a session that works with the lake has it."""
    found = SqlReads(lake)
    found("USE {lake}.shop")
    yield found
    found("USE spark_catalog.default")


def test_views_of_spark_sql_are_read_and_made_with_icebergs_jar(
    lake: Lake, sql: SqlReads, folder: Path, tmp_path: Path
) -> None:
    for statement in OURS:
        sql(statement)
    orders = lake.table("shop.orders")
    with served_folder(folder / "lake") as server:
        *read, spans, described = run_statements(server.url, tmp_path, "v3", READS)
        assert [one.get("rows") for one in read] == [
            [["shop", name, False] for name in ("nested", "of_view", "stars", "totals")],
            [["2026-11-01", 2.5], ["2026-11-02", 4.0]],
            [[1, "2026-11-01", 2.5, [[7]]], [2, "2026-11-02", 4.0, []]],
            [[7]],
            [[4.0]],
        ]
        assert "ICEBERG_VIEW" in spans["error"]
        assert described["rows"] == [["day", "string", "of the order"], ["total", "double", ""]]
        orders.view.client.alter_columns(orders.table_id, drop_column("amount"))
        orders.view.client.alter_columns(orders.table_id, add_column("amount", "double"), add_column("more", "int"))
        [moved] = run_statements(server.url, tmp_path, "v3", ["SELECT * FROM lake.shop.stars ORDER BY id"])
        assert [row[:2] + row[3:] for row in moved["rows"]] == [[1, "2026-11-01", [[7]]], [2, "2026-11-02", []]]
        done = run_statements(server.url, tmp_path, "v3", WRITES)
        assert [one.get("error", "") for one in done] == [""] * len(WRITES)
    assert sql.rows("SELECT * FROM made ORDER BY day") == [("2026-11-01", 1), ("2026-11-02", 1)]
    assert sql.rows("SELECT * FROM replaced") == [(2,)]
    kept = lake.client.get_view("shop.replaced")
    assert kept.properties["k"] == "v"
    assert {one.name for one in lake.client.list_views()} >= {"shop.made", "shop.replaced", "shop.spans"}
    assert not {one.name for one in lake.client.list_views()} & {"shop.gone", "shop.later"}
