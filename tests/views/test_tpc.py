"""The queries of TPC-H and TPC-DS as views, while rows come and go as their refresh functions have it.

The tables and queries are those of DuckDB's extensions. LIMIT is left out: a view has all rows, and its readers
take the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from laketx import InputError, Lake, connect
from tests.iceberg.readers import extension_of

pytestmark = pytest.mark.long

OFTEN: Final = 0.9  # so many refreshes with a change are incremental, at least
TYPES: Final = {"INTEGER": "int", "VARCHAR": "string"}


@dataclass(frozen=True)
class Benchmark:
    """A set of tables and queries. Rows of `keys` come and go by the values of a column."""

    name: str
    generate: str
    keys: dict[str, str]
    parts: int  # of the rows, one comes in each round
    rounds: int
    queries: int  # that are views
    incremental: int  # of these, at least


H = Benchmark("tpch", "CALL dbgen(sf=0.01)", {"orders": "o_orderkey", "lineitem": "l_orderkey"}, 32, 6, 22, 22)
DS = Benchmark(
    "tpcds",
    "CALL dsdgen(sf=0.01)",
    {
        "store_sales": "ss_ticket_number",
        "store_returns": "sr_ticket_number",
        "catalog_sales": "cs_order_number",
        "catalog_returns": "cr_order_number",
        "web_sales": "ws_order_number",
        "web_returns": "wr_order_number",
    },
    50,
    2,
    99,
    86,
)


def generated(of: Benchmark) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    database.execute(f"LOAD '{extension_of(of.name)}'")
    database.execute(of.generate)
    return database


def query_of(text: str) -> str:
    tree = sqlglot.parse_one(text, dialect="duckdb")
    assert isinstance(tree, exp.Query)
    tree.set("limit", None)
    names: set[str] = set()
    for at, output in enumerate(tree.selects):
        is_named = isinstance(output, exp.Alias | exp.Column) and output.alias_or_name not in names
        if not is_named and not isinstance(output, exp.Star):
            output.replace(exp.alias_(output.unalias().copy(), f"c{at}"))
        names.add(output.alias_or_name)
    return tree.sql(dialect="duckdb")


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lake]]:
    opened: list[Lake] = []

    def lake(name: str) -> Lake:
        opened.append(connect(tmp_path_factory.mktemp(name)))
        return opened[-1]

    yield lake
    for each in opened:
        each.close()


@contextmanager
def suppress_reason(reason: str) -> Iterator[None]:
    """Any refusal but this one fails the test."""
    try:
        yield
    except InputError as error:
        if error.reason != reason:
            raise


def rows_of(database: duckdb.DuckDBPyConnection, table: str, where: str) -> pa.Table:
    return database.execute(f"FROM {table} WHERE {where}").to_arrow_table()


@pytest.mark.parametrize("of", [H, DS], ids=lambda of: of.name)
@pytest.mark.timeout(3_600)
def test_its_queries_are_refreshed_incrementally_and_hold(lakes: Callable[[str], Lake], of: Benchmark) -> None:
    lake, made = lakes(of.name), generated(of)
    later = tuple(range(0, of.rounds, 2))
    for [table] in made.execute("SHOW TABLES").fetchall():
        described = made.execute(f"DESCRIBE {table}").fetchall()
        columns = ", ".join(f"{name} {TYPES.get(kind, kind.lower())}" for name, kind, *_ in described)
        held = f"{of.keys[table]} % {of.parts} IN ({', '.join(map(str, later))})" if table in of.keys else "FALSE"
        lake.create_table(table, columns).append(rows_of(made, table, f"NOT ({held})"))
    texts = made.execute(f"SELECT query_nr, query FROM {of.name}_queries() ORDER BY query_nr").fetchall()
    assert len(texts) == of.queries
    views = []
    for number, text in texts:
        with suppress_reason("VIEW_NOT_INCREMENTAL"):
            views.append(lake.create_materialized_view(f"{of.name}.q{number}", query_of(text), strict=True))
    assert len(views) >= of.incremental
    kinds, reasons = Counter[str](), Counter[str]()
    for step in range(of.rounds):
        for table, key in of.keys.items():
            if step % 2:  # rows of the round before go, and some that were there from the begin
                gone = made.execute(
                    f"SELECT DISTINCT {key} FROM {table} WHERE {key} % {of.parts} = {step - 1} OR {key} % 500 = {step}"
                )
                listed = ", ".join(str(number) for [number] in gone.fetchall())
                lake.table(table).delete(f"{key} IN ({listed})")
            else:
                lake.table(table).append(rows_of(made, table, f"{key} % {of.parts} = {step}"))
        for view in views:
            done = view.refresh(incremental=True)
            kinds[done.kind] += 1
            reasons[f"{view.name}: {done.reason}"] += bool(done.reason)
            proof = view.verify()
            assert proof.holds, (view.name, proof)
    assert kinds["incremental"] >= OFTEN * (kinds["incremental"] + kinds["full"]), reasons
