"""Checks of a merge: queries that must answer true on the branch, by Spark if the lake uses it, otherwise by DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.spark.catalog_jar import CATALOG

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyspark.sql import SparkSession
else:
    duckdb = LazyModule("duckdb")


SETTINGS: Final = (  # whoever may alter a table chooses what others run: it reads rows, no files and no network
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class CheckedLake(Protocol):
    """The lake of a branch."""

    @property
    def uses_spark(self) -> bool: ...

    @property
    def spark(self) -> SparkSession: ...

    def own_catalog(self) -> str: ...


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The answer of a query."""

    answer: str
    holds: bool


def run_query(lake: CheckedLake, branch: str, query: str, read: Callable[[str], pa.Table]) -> CheckResult:
    """Runs a query on a branch. `read` returns the rows of the table of a name, which may say another branch."""
    if lake.uses_spark:
        return _by_spark(lake, branch, query)
    return _by_duckdb(query, read)


def _by_spark(lake: CheckedLake, branch: str, query: str) -> CheckResult:
    call = f"CALL {lake.own_catalog()}.system.check_branch(name => :branch, checks => array(:query))"
    [row] = lake.spark.sql(call, {"branch": branch, "query": query}).collect()
    return CheckResult(row.answer, row.holds)


def _by_duckdb(query: str, read: Callable[[str], pa.Table]) -> CheckResult:
    try:
        connection = duckdb.connect()
    except ModuleNotFoundError as error:
        hint = "SQL checks without Spark need DuckDB: pip install duckdb, or give a function of the branch"
        raise InputError("DUCKDB_MISSING", hint) from error
    with connection:
        connection.execute(f"ATTACH ':memory:' AS {CATALOG}").execute(f"USE {CATALOG}")
        for setting in SETTINGS:
            connection.execute(setting)
        for number, (namespace, table) in enumerate(sorted(set(_tables(connection, query)))):
            name = f"{namespace}.{table}" if namespace else table
            rows = read(name)
            if namespace:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(namespace)}")
            view = f"{_quoted(namespace)}.{_quoted(table)}" if namespace else _quoted(table)
            place = f"rows_{number}"
            connection.register(place, rows)
            connection.execute(f"CREATE VIEW {view} AS FROM temp.{place}")
        try:
            rows = connection.execute(query).fetchmany(2)
        except duckdb.Error as error:
            raise InputError("CHECK_INVALID", f"{query}: {error}") from error
    if len(rows) != 1 or len(rows[0]) != 1:
        return CheckResult("more than one value" if rows else "no row", holds=False)
    answer = rows[0][0]
    return CheckResult(str(answer).lower() if isinstance(answer, bool) else str(answer), holds=answer is True)


def _tables(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[tuple[str, str]]:
    """The tables that a query names, as namespace and name; a name of its own WITH is none."""
    [text] = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone() or ("{}",)
    tree = json.loads(text)
    if tree.get("error") or len(tree["statements"]) != 1:
        raise InputError("CHECK_INVALID", f"{query}: {tree.get('error_message', 'a check is one query')}")
    named = {entry["key"].lower() for node in _nodes(tree) for entry in node.get("cte_map", {}).get("map", ())}
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE" and (node["schema_name"] or node["table_name"].lower() not in named):
            yield node["schema_name"], node["table_name"]


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(part)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
