"""The SQL statements of materialized views, from text."""

from __future__ import annotations

import pytest

from worker.base.errors import InputError
from worker.views.statements import (
    AlterView,
    CreateView,
    DropView,
    ExplainView,
    RefreshView,
    ShowViews,
    Statement,
    parse_view_statement,
)

QUERY = "SELECT day, 'as x' AS note FROM shop.orders"
FULL_FORM = f"""create materialized view if not exists lake.shop.`my view`
comment 'it''s mine' partitioned by (`day`, b)
refresh incremental strict schedule every 5 minutes with no data as
{QUERY};"""


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (f"CREATE MATERIALIZED VIEW shop.daily AS {QUERY}", CreateView("shop.daily", QUERY)),
        (
            FULL_FORM,
            CreateView(
                "lake.shop.my view",
                QUERY,
                if_not_exists=True,
                comment="it's mine",
                partition_by=("day", "b"),
                strict=True,
                schedule="every 5 minutes",
                with_data=False,
            ),
        ),
        (f"CREATE MATERIALIZED VIEW v SCHEDULE ON COMMIT AS {QUERY}", CreateView("v", QUERY, schedule="ON COMMIT")),
        (
            f"CREATE MATERIALIZED VIEW v TARGET LAG '1 minute' REFRESH INCREMENTAL AS {QUERY}",
            CreateView("v", QUERY, target_lag="1 minute"),
        ),
        (f"CREATE MATERIALIZED VIEW v TARGET LAG DOWNSTREAM AS {QUERY}", CreateView("v", QUERY, schedule="DOWNSTREAM")),
        ("REFRESH MATERIALIZED VIEW v", RefreshView("v")),
        ("refresh  materialized view shop.v FULL ;", RefreshView("shop.v", full=True)),
        ("REFRESH MATERIALIZED VIEW v INCREMENTAL", RefreshView("v", incremental=True)),
        ("EXPLAIN MATERIALIZED VIEW v", ExplainView("v")),
        ("ALTER MATERIALIZED VIEW v SUSPEND", AlterView("v", "suspend")),
        ("ALTER MATERIALIZED VIEW v RESUME", AlterView("v", "resume")),
        ("ALTER MATERIALIZED VIEW v SET SCHEDULE EVERY HOUR", AlterView("v", schedule="EVERY HOUR")),
        ("ALTER MATERIALIZED VIEW v SET TARGET LAG '90 seconds'", AlterView("v", target_lag="90 seconds")),
        ("DROP MATERIALIZED VIEW IF EXISTS v", DropView("v", if_exists=True)),
        ("SHOW MATERIALIZED VIEWS", ShowViews()),
        ("SHOW MATERIALIZED VIEWS IN shop", ShowViews("shop")),
    ],
)
def test_statements(text: str, statement: Statement) -> None:
    assert parse_view_statement(text) == statement


@pytest.mark.parametrize(
    "text", ["SELECT 1", "CREATE VIEW v AS SELECT 1", "REFRESH TABLE t", "SELECT 'create materialized view'", ""]
)
def test_other_statements_are_none(text: str) -> None:
    assert parse_view_statement(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "CREATE MATERIALIZED VIEW v",
        "CREATE MATERIALIZED VIEW v AS",
        f"CREATE MATERIALIZED VIEW v REFRESH FULL AS {QUERY}",
        f"CREATE MATERIALIZED VIEW v COMMENT 'a' COMMENT 'b' AS {QUERY}",
        f"CREATE MATERIALIZED VIEW v SCHEDULE AS {QUERY}",
        f"CREATE OR REPLACE MATERIALIZED VIEW v AS {QUERY}",
        "REFRESH MATERIALIZED VIEW",
        "ALTER MATERIALIZED VIEW v RENAME TO w",
        "DROP MATERIALIZED VIEW v CASCADE",
        "SHOW MATERIALIZED VIEW v",
    ],
)
def test_wrong_statements_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="VIEW_STATEMENT_INVALID"):
        parse_view_statement(text)
