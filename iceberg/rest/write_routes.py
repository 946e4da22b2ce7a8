"""Requests of Iceberg's clients that change something, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from iceberg.commits.requests import Wanted, read_commit
from iceberg.rest.answers import (
    NAMESPACE,
    NAMESPACES,
    RENAME,
    TABLE,
    TABLES,
    TRANSACTION,
    Answer,
    as_json,
    staged_answer,
    table_answer,
)
from iceberg.rest.bodies import json_of
from iceberg.rest.catalog import SEPARATOR, Catalog, namespace_of
from iceberg.rest.problems import RestError
from iceberg.rest.tables import commit_answer
from iceberg.rest.transactions import Transactions
from iceberg.rest.writes import Writes


def create_namespace(catalog: Catalog, request: Request) -> Response:
    body = body_of(request)
    listed = body.get("namespace")
    if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], str):
        raise RestError(400, "BadRequestException", "namespaces have one part here")
    properties = Writes(catalog).create_namespace(listed[0], texts(body.get("properties")))
    return as_json({"namespace": listed, "properties": properties})


def drop_namespace(catalog: Catalog, request: Request) -> Response:
    Writes(catalog).drop_namespace(namespace_of(request.path_params["namespace"]))
    return Response(status_code=204)


def create_table(catalog: Catalog, request: Request) -> Response:
    namespace, body = namespace_of(request.path_params["namespace"]), body_of(request)
    try:
        name, staged = str(body["name"]), bool(body.get("stage-create"))
        spec, order = body.get("partition-spec"), body.get("write-order")
        wanted = Wanted(
            schemas=[body["schema"]],
            specs=[spec] if spec else [],
            orders=[order] if order else [],
            properties=texts(body.get("properties")),
            location=str(body.get("location") or ""),
        )
    except (KeyError, TypeError) as error:
        raise RestError(400, "BadRequestException", f"the request lacks {error}") from error
    if not staged:
        return table_answer(catalog, request, *Writes(catalog).create_table(namespace, name, wanted))
    return staged_answer(catalog, request, Writes(catalog).stage_table(namespace, name, wanted))


def commit_table(catalog: Catalog, request: Request) -> Response:
    namespace, table = namespace_of(request.path_params["namespace"]), request.path_params["table"]
    _, loaded = Writes(catalog).commit(namespace, table, read_commit(body_of(request)))
    return Response(commit_answer(loaded), media_type="application/json")


def commit_transaction(catalog: Catalog, request: Request) -> Response:
    listed = body_of(request).get("table-changes")
    if not isinstance(listed, list):
        raise RestError(400, "BadRequestException", "the request lacks table-changes, a list")
    changes = []
    for one in listed:
        try:
            where = one["identifier"]
            namespace, name = namespace_of(SEPARATOR.join(where["namespace"])), str(where["name"])
        except (KeyError, TypeError) as error:
            raise RestError(400, "BadRequestException", f"a change of a table lacks {error}") from error
        changes.append((namespace, name, read_commit(one)))
    Transactions(catalog).commit(changes)
    return Response(status_code=204)


def drop_table(catalog: Catalog, request: Request) -> Response:
    """Whether or not a purge is asked for: the purge deletes the files when the table can no longer be undropped."""
    Writes(catalog).drop_table(namespace_of(request.path_params["namespace"]), request.path_params["table"])
    return Response(status_code=204)


def rename_table(catalog: Catalog, request: Request) -> Response:
    Writes(catalog).rename_table(*renaming_of(request))
    return Response(status_code=204)


WRITES: Final[tuple[tuple[str, str, Answer], ...]] = (
    ("POST", NAMESPACES, create_namespace),
    ("DELETE", NAMESPACE, drop_namespace),
    ("POST", TABLES, create_table),
    ("POST", TABLE, commit_table),
    ("DELETE", TABLE, drop_table),
    ("POST", RENAME, rename_table),
    ("POST", TRANSACTION, commit_transaction),
)


def body_of(request: Request) -> Mapping[str, Any]:
    return json_of(request.state.body)


def renaming_of(request: Request) -> tuple[tuple[str, str], tuple[str, str]]:
    """The namespace and name of what is renamed, and the new ones."""
    body = body_of(request)
    try:
        source, target = (
            (namespace_of(SEPARATOR.join(body[one]["namespace"])), str(body[one]["name"]))
            for one in ("source", "destination")
        )
    except (KeyError, TypeError) as error:
        raise RestError(400, "BadRequestException", f"the request lacks {error}") from error
    return source, target


def texts(given: Any) -> dict[str, str]:
    if given is not None and not isinstance(given, dict):
        raise RestError(400, "BadRequestException", "properties are a JSON object")
    return {str(name): str(value) for name, value in (given or {}).items()}
