"""DuckDB as the engine of views: what one query does to those after it."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pyarrow as pa
import pytest

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


NAN = float("nan")
FLOATS = pa.table({"id": [1, 2, 3, 4, 5, 6], "f": [0.0, -0.0, NAN, 1.0, NAN, None]})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM {0} WHERE f > 0.5",
        "SELECT id FROM {0} WHERE f IN (0.0, 1.0)",
        "SELECT id FROM {0} WHERE f IN (-0.0, CAST('nan' AS DOUBLE))",
        "SELECT a.id + 10 * b.id AS id FROM {0} a JOIN {0} b ON a.f = b.f AND a.id < b.id",
        "SELECT a.id FROM {0} a JOIN (SELECT f FROM {0} WHERE id = 4) b ON a.f >= b.f",
    ],
)
def test_floats_of_arrow_are_compared_as_floats_of_duckdb(text: str) -> None:
    """Otherwise a row would meet a condition in one step of a plan, and not in another one."""
    with Engine() as engine:
        for rows in (FLOATS, FLOATS.select(["id"]), FLOATS):
            engine.add("rows", rows)
        engine.keep("own", "SELECT * FROM rows")
        given, own = (sorted(engine.run(text.format(name)).column("id").to_pylist()) for name in ("rows", "own"))
        assert given == own
        assert given
        assert str(engine.run("SELECT f FROM rows WHERE id = 2").column("f").to_pylist()) == "[-0.0]"
        assert engine.types_of("rows") == {"id": "BIGINT", "f": "DOUBLE"}
