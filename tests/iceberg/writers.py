"""Commits of Iceberg's clients, as requests that a test can send when and as often as it likes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import httpx
import pyarrow as pa

from laketx import Table
from tests.arrow.tables import texts
from tests.iceberg.readers import duckdb_of_iceberg
from tests.iceberg.servers import Server, catalog_of, warehouse_of

Ducks = Mapping[int, duckdb.DuckDBPyConnection]  # by the format that they see tables in


@dataclass(slots=True)
class Request:
    """A commit of a table, ready to be sent."""

    path: str
    body: dict[str, Any]

    def send(self, server: Server) -> httpx.Response:
        return server.ask("POST", self.path, json=self.body)

    @property
    def snapshot(self) -> dict[str, Any]:
        [found] = [one["snapshot"] for one in self.body["updates"] if one["action"] == "add-snapshot"]
        return dict(found)


def prepared(table: Any, change: Callable[[Any], None], form: int = 2, branch: str = "") -> Request:
    """What pyiceberg would send for the changes of a transaction: its files are written by then."""
    transaction = table.transaction()
    change(transaction)
    namespace, name = table.name()
    return Request(
        f"/v1/{warehouse_of(form, branch)}/namespaces/{namespace}/tables/{name}",
        {
            "requirements": [json.loads(one.model_dump_json()) for one in transaction._requirements],
            "updates": [json.loads(one.model_dump_json()) for one in transaction._updates],
        },
    )


def appended(table: Any, rows: Any, form: int = 2, branch: str = "") -> Request:
    return prepared(table, lambda transaction: transaction.append(rows), form, branch)


def numbers(ids: list[int], **columns: list[Any]) -> Any:
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [f"n{one}" for one in ids]} | columns)


NO_TOKEN: Final = "AUTHORIZATION_TYPE 'none'"
SCHEMA: Final = numbers([0]).schema
REBASED: Final = {"iceberg.append_rebase": "true"}  # properties of a table whose appends never try again


def attached(
    server: Server, form: int = 3, *before: str, options: str = NO_TOKEN, branch: str = ""
) -> duckdb.DuckDBPyConnection:
    """DuckDB with the catalog as `lake`; `before`: statements that come first, such as a secret."""
    connection = duckdb_of_iceberg()
    for statement in before:
        connection.execute(statement)
    warehouse = warehouse_of(form, branch)
    connection.execute(f"ATTACH '{warehouse}' AS lake (TYPE iceberg, ENDPOINT '{server.checked_url}', {options})")
    return connection


def created(transaction: Any, name: str) -> Request:
    """The commit of a table that pyiceberg has staged as `namespace.name`."""
    namespace, _, table = name.partition(".")
    updates = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in transaction._updates]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    return Request(f"/v1/v2/namespaces/{namespace}/tables/{table}", body)


def made(server: Server, name: str, schema: pa.Schema = SCHEMA, **options: Any) -> Any:
    """A new table in the namespace `shop`, as pyiceberg makes it."""
    return catalog_of(server, 2).create_table(f"shop.{name}", schema, **options)


def head(table: Table) -> int:
    return int(table.view.client.resolve_version(table.table_id).version)


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


def by_duckdb_shop(server: Server, name: str) -> list[str]:
    with attached(server) as connection:
        return texts(connection.execute(f"SELECT * FROM lake.shop.{name}").to_arrow_table())


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    said: Mapping[str, Any] = answer.json()["error"]
    return answer.status_code, said["type"], said["message"]
