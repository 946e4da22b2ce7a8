"""Requests of Iceberg's clients that change something, and their answers."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.iceberg.commits.requests import CommitRequest, read_commit
from worker.iceberg.rest.answers import (
    NAMESPACE,
    NAMESPACE_PROPERTIES,
    NAMESPACES,
    REGISTER,
    RENAME,
    TABLE,
    TABLES,
    TRANSACTION,
    Answer,
    as_json,
    body_of,
    staged_answer,
    table_answer,
    table_of,
)
from worker.iceberg.rest.catalog import SEPARATOR, Catalog, namespace_of
from worker.iceberg.rest.problems import NO_TABLE, RestError
from worker.iceberg.rest.shapes import (
    COMMIT_TABLE,
    COMMIT_TRANSACTION,
    CREATE_NAMESPACE,
    CREATE_TABLE,
    REGISTER_TABLE,
    RENAMING,
)
from worker.iceberg.rest.shapes import NAMESPACE_PROPERTIES as PROPERTIES
from worker.iceberg.rest.tables import commit_answer
from worker.iceberg.rest.transactions import Transactions
from worker.iceberg.rest.writes import Writes, register


def create_namespace(catalog: Catalog, request: Request) -> Response:
    body = body_of(request, CREATE_NAMESPACE)
    listed = body["namespace"]
    if len(listed) != 1:
        raise RestError(400, "BadRequestException", "namespaces have one part here")
    properties = Writes(catalog).create_namespace(listed[0], body.get("properties") or {})
    return as_json({"namespace": listed, "properties": properties})


def alter_namespace(catalog: Catalog, request: Request) -> Response:
    body = body_of(request, PROPERTIES)
    namespace, removals = namespace_of(request.path_params["namespace"]), body.get("removals") or []
    return as_json(Writes(catalog).alter_namespace(namespace, body.get("updates") or {}, removals))


def drop_namespace(catalog: Catalog, request: Request) -> Response:
    Writes(catalog).drop_namespace(namespace_of(request.path_params["namespace"]))
    return Response(status_code=204)


def create_table(catalog: Catalog, request: Request) -> Response:
    namespace, body = namespace_of(request.path_params["namespace"]), body_of(request, CREATE_TABLE)
    name, spec, order = body["name"], body.get("partition-spec"), body.get("write-order")
    commit_request = CommitRequest(
        schemas=[body["schema"]],
        specs=[spec] if spec else [],
        orders=[order] if order else [],
        properties=dict(body.get("properties") or {}),
        location=body.get("location") or "",
    )
    if not body.get("stage-create"):
        return table_answer(catalog, request, *Writes(catalog).create_table(namespace, name, commit_request))
    return staged_answer(catalog, request, Writes(catalog).stage_table(namespace, name, commit_request))


def commit_table(catalog: Catalog, request: Request) -> Response:
    commit_request = read_commit(body_of(request, COMMIT_TABLE))
    _, loaded = Writes(catalog).commit(*table_of(request), commit_request)
    return Response(commit_answer(loaded), media_type="application/json")


def commit_transaction(catalog: Catalog, request: Request) -> Response:
    changes = []
    for table_change in body_of(request, COMMIT_TRANSACTION)["table-changes"]:
        where = table_change["identifier"]
        namespace = namespace_of(SEPARATOR.join(where["namespace"]), NO_TABLE)
        changes.append((namespace, where["name"], read_commit(table_change)))
    Transactions(catalog).commit(changes)
    return Response(status_code=204)


def drop_table(catalog: Catalog, request: Request) -> Response:
    """Drop a table. LakeTX's purge deletes its files when the table can no longer be undropped, requested or not."""
    Writes(catalog).drop_table(*table_of(request))
    return Response(status_code=204)


def register_table(catalog: Catalog, request: Request) -> Response:
    """Register a dropped table. An existing table of that name stays, even if the request would overwrite it."""
    namespace, body = namespace_of(request.path_params["namespace"]), body_of(request, REGISTER_TABLE)
    register(catalog, namespace, body["name"], body["metadata-location"])
    return table_answer(catalog, request, *catalog.load(namespace, body["name"]))


def rename_table(catalog: Catalog, request: Request) -> Response:
    Writes(catalog).rename_table(*renaming_of(request))
    return Response(status_code=204)


WRITES: Final[tuple[tuple[str, str, Answer], ...]] = (
    ("POST", NAMESPACES, create_namespace),
    ("POST", NAMESPACE_PROPERTIES, alter_namespace),
    ("DELETE", NAMESPACE, drop_namespace),
    ("POST", TABLES, create_table),
    ("POST", TABLE, commit_table),
    ("DELETE", TABLE, drop_table),
    ("POST", RENAME, rename_table),
    ("POST", REGISTER, register_table),
    ("POST", TRANSACTION, commit_transaction),
)


def renaming_of(request: Request, missing: str = NO_TABLE) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the old namespace and name, and the new ones."""
    body = body_of(request, RENAMING)
    source, target = body["source"], body["destination"]
    return (
        (namespace_of(SEPARATOR.join(source["namespace"]), missing), source["name"]),
        (namespace_of(SEPARATOR.join(target["namespace"])), target["name"]),
    )
