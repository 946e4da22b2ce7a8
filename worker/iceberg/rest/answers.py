"""Paths of requests, and the forms of answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from worker.connection.table_view import TableView
from worker.iceberg.rest.bodies import json_of
from worker.iceberg.rest.catalog import Catalog, namespace_of, page_of
from worker.iceberg.rest.problems import NO_TABLE, NO_VIEW, RestError
from worker.iceberg.rest.shapes import Shape, check_shape
from worker.iceberg.rest.tables import Loaded, StagedTable, answer_of, staged_body

Answer = Callable[[Catalog, Request], Response]
NAMESPACES: Final = "/v1/{prefix}/namespaces"
NAMESPACE: Final = NAMESPACES + "/{namespace}"
NAMESPACE_PROPERTIES: Final = NAMESPACE + "/properties"
TABLES: Final = NAMESPACE + "/tables"
TABLE: Final = TABLES + "/{table}"
VIEWS: Final = NAMESPACE + "/views"
VIEW: Final = VIEWS + "/{view}"
RENAME: Final = "/v1/{prefix}/tables/rename"
REGISTER: Final = NAMESPACE + "/register"
TRANSACTION: Final = "/v1/{prefix}/transactions/commit"
RENAME_VIEW: Final = "/v1/{prefix}/views/rename"
DELEGATION: Final = "x-iceberg-access-delegation"


# -- requests ----------------------------------------------------------------------------------------------------------


def table_of(request: Request) -> tuple[str, str]:
    """Return the namespace and the name of a table. An unknown namespace is an unknown table."""
    return namespace_of(request.path_params["namespace"], NO_TABLE), request.path_params["table"]


def view_of(request: Request) -> tuple[str, str]:
    """Return the namespace and the name of a view."""
    return namespace_of(request.path_params["namespace"], NO_VIEW), request.path_params["view"]


def body_of(request: Request, shape: Shape) -> Mapping[str, Any]:
    """Return the body of a request. Refuse one of another shape."""
    body = json_of(request.state.body)
    check_shape(body, shape)
    return body


# -- answers -----------------------------------------------------------------------------------------------------------


def as_json(body: Mapping[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(body), status, media_type="application/json")


def table_answer(catalog: Catalog, request: Request, view: TableView, loaded: Loaded) -> Response:
    """Answer with a table, and with keys for its files if the client requests them."""
    keys = catalog.credentials(view) if wants_keys(request) else []
    body = answer_of(loaded, catalog.config() | config_of(keys), keys)
    return Response(body, media_type="application/json", headers={"etag": etag_of(loaded)})


def etag_of(loaded: Loaded) -> str:
    """Return a weak ETag: two answers for the same table name different folders for new files."""
    return f'W/"{loaded.etag}"'


def is_held(header: str, etag: str) -> bool:
    """Return whether an `If-None-Match` header contains the ETag. HTTP compares it weakly."""
    listed = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return f'"{etag}"' in listed or "*" in listed


def staged_answer(catalog: Catalog, request: Request, staged: StagedTable) -> Response:
    """Answer with a table that a later commit creates, and with keys for its files."""
    keys = catalog.new_credentials(staged.table_id, staged.name) if wants_keys(request) else []
    body = staged_body(staged.metadata, catalog.config() | config_of(keys), keys)
    return Response(body, media_type="application/json")


def wants_keys(request: Request) -> bool:
    return "vended-credentials" in request.headers.get(DELEGATION, "")


def config_of(keys: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """For clients that look there alone."""
    return dict(keys[0]["config"]) if keys else {}


def listing(request: Request, namespace: str, names: Sequence[str]) -> Response:
    """Answer with a page of the tables or views of a namespace."""
    page = page_of(names, *paging(request))
    listed = [{"namespace": [namespace], "name": name} for name in page.names]
    return as_json({"identifiers": listed} | following(page.next_token))


def paging(request: Request) -> tuple[str | None, int]:
    size = request.query_params.get("pageSize", "0")
    if not size.isdecimal():
        raise RestError(400, "BadRequestException", f"pageSize {size} is no number")
    return request.query_params.get("pageToken"), int(size)


def following(token: str) -> dict[str, str]:
    return {"next-page-token": token} if token else {}
