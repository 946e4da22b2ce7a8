"""What the materialization `laketx_view` of the dbt example does in a lake; tests/spark/test_dbt.py runs dbt itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from laketx import InputError, connect
from tests.house.tree import ROOT

MODULE = ROOT / "examples" / "dbt" / "python" / "pyspark_laketx_view.py"
TOTALS = "SELECT day, count(*) AS n, sum(amount) AS total FROM shop.orders GROUP BY day"


def module() -> Any:
    spec = importlib.util.spec_from_file_location(MODULE.stem, MODULE)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_a_model_is_created_refreshed_and_replaced(tmp_path: Path) -> None:
    built = module().built
    with connect(tmp_path) as lake:
        columns, rows = "id bigint, day bigint, amount bigint", [{"id": 1, "day": 1, "amount": 5}]
        lake.create_table("shop.orders", columns).append(rows)
        model = {"name": "shop.totals", "query": f"\n{TOTALS}\n", "schedule": "every hour", "comment": "of a day"}

        def build(**changes: str) -> tuple[str, str]:
            kind, version, reason = built(lake, model | changes)
            view = lake.materialized_view("shop.totals")
            assert view.verify().holds
            assert version == view.status().version
            assert view.table.meta.comment == "of a day"
            return kind, reason

        assert build() == ("created", "")
        lake.table("shop.orders").append([{"id": 2, "day": 1, "amount": 7}])
        assert build() == ("incremental", "")
        head = lake.table("shop.totals").meta.head_version
        assert build() == ("nothing", "")
        assert lake.table("shop.totals").meta.head_version == head
        assert build(full="true") == ("full", "asked for")
        assert lake.materialized_view("shop.totals").status().schedule == "every 1 hour"
        build(schedule="")
        assert lake.materialized_view("shop.totals").status().schedule == ""

        before = lake.table("shop.totals").table_id
        with pytest.raises(InputError, match="VIEW_QUERY_INVALID"):
            build(query="SELECT now() AS at FROM shop.orders")
        assert lake.table("shop.totals").table_id == before
        lake.create_materialized_view("shop.totals_new", TOTALS)  # of a build that was killed
        assert build(query=f"{TOTALS} HAVING count(*) > 1") == ("replaced", "")
        assert build() == ("replaced", "")
        lake.drop_table("shop.orders")
        lake.create_table("shop.orders", columns).append(rows)
        assert build() == ("replaced", "")
        assert lake.table("shop.totals").to_arrow().to_pylist() == [{"day": 1, "n": 1, "total": 5}]
        assert lake.materialized_views() == ["shop.totals"]
