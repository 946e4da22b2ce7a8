"""DuckDB as the engine of views: what one query does to those after it."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pyarrow as pa

from worker.base.errors import InputError
from worker.views.engine import Engine

FAILS_INSIDE = "SELECT g FROM b WHERE g NOT IN (SELECT g FROM c WHERE c.k = b.k AND c.d > 0)"  # of DuckDB 1.5


def test_a_query_that_duckdb_fails_on_inside_leaves_later_ones_alone() -> None:
    """Such an error invalidates the whole database, which a process shares among its views."""
    kind = pa.decimal128(6, 2)
    rows = [{"k": 0, "g": "", "d": Decimal("0.10")}, {"k": None, "g": None, "d": Decimal("0.10")}]
    with Engine() as engine:
        engine.add("b", pa.table({"k": [0, 3, 3], "g": ["", None, ""]}))
        engine.add("c", pa.Table.from_pylist(rows, pa.schema([("k", pa.int64()), ("g", pa.string()), ("d", kind)])))
        with suppress(InputError):
            engine.run(FAILS_INSIDE)
    with Engine() as engine:
        engine.add("b", pa.table({"k": [1, 2]}))
        assert engine.run("SELECT sum(k) AS s FROM b").to_pylist() == [{"s": 3}]
