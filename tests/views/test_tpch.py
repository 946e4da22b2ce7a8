"""TPC-H's 22 queries as views, while orders come and go as its refresh functions have it.

The tables and queries are those of DuckDB's extension. LIMIT is left out: a view has
all rows, and its readers take the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from laketx import Lake, MaterializedView, connect
from tests.iceberg.readers import extension_of

pytestmark = pytest.mark.long

SCALE: Final = 0.01
ROUNDS: Final = 6
LATER: Final = range(0, ROUNDS, 2)
TYPES: Final = {"INTEGER": "int", "VARCHAR": "string"}
KEYS: Final = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
OFTEN: Final = 0.9  # so many refreshes with a change are incremental, at least


@pytest.fixture(scope="module")
def made() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as database:
        database.execute(f"LOAD '{extension_of('tpch')}'")
        database.execute(f"CALL dbgen(sf={SCALE})")
        yield database


@pytest.fixture(scope="module")
def lake(made: duckdb.DuckDBPyConnection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The tables without the orders that come later."""
    with connect(tmp_path_factory.mktemp("tpch")) as opened:
        for [table] in made.execute("SHOW TABLES").fetchall():
            described = made.execute(f"DESCRIBE {table}").fetchall()
            columns = ", ".join(f"{name} {TYPES.get(kind, kind.lower())}" for name, kind, *_ in described)
            rows = f"FROM {table} WHERE {KEYS[table]} % 32 NOT IN {tuple(LATER)}" if table in KEYS else f"FROM {table}"
            opened.create_table(table, columns).append(made.execute(rows).to_arrow_table())
        yield opened


def query_of(text: str) -> str:
    tree = sqlglot.parse_one(text, dialect="duckdb")
    assert isinstance(tree, exp.Query)
    tree.set("limit", None)
    for at, output in enumerate(tree.selects):
        if not output.alias_or_name:
            output.replace(exp.alias_(output.copy(), f"c{at}"))
    return tree.sql(dialect="duckdb")


def test_its_queries_are_refreshed_incrementally_and_hold(made: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    queries = made.execute("SELECT query_nr, query FROM tpch_queries()").fetchall()
    views = [lake.create_materialized_view(f"tpch.q{number}", query_of(text)) for number, text in queries]
    assert len(views) == 22
    kinds, reasons = Counter[str](), Counter[str]()
    for step in range(ROUNDS):
        for table, key in KEYS.items():
            if step % 2:  # orders of before and of the step before go
                gone = made.execute(
                    f"SELECT DISTINCT {key} FROM {table} WHERE {key} % 32 = {step - 1} OR {key} % 500 = {step}"
                )
                listed = ", ".join(str(number) for [number] in gone.fetchall())
                lake.table(table).delete(f"{key} IN ({listed})")
            else:
                lake.table(table).append(made.execute(f"FROM {table} WHERE {key} % 32 = {step}").to_arrow_table())
        for view in views:
            done = view.refresh(incremental=True)
            kinds[done.kind] += 1
            reasons[f"{view.name}: {done.reason}"] += bool(done.reason)
            check(view)
    assert kinds["incremental"] >= OFTEN * (kinds["incremental"] + kinds["full"]), reasons
    assert kinds["incremental"] > 15 * ROUNDS


def check(view: MaterializedView) -> None:
    proof = view.verify()
    assert proof.holds, proof
