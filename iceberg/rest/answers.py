"""Paths of requests, and the forms of answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from iceberg.rest.catalog import Catalog
from iceberg.rest.tables import Loaded, answer_of
from worker.base.table_view import TableView

Answer = Callable[[Catalog, Request], Response]
NAMESPACES: Final = "/v1/{prefix}/namespaces"
NAMESPACE: Final = NAMESPACES + "/{namespace}"
TABLES: Final = NAMESPACE + "/tables"
TABLE: Final = TABLES + "/{table}"
VIEWS: Final = NAMESPACE + "/views"
RENAME: Final = "/v1/{prefix}/tables/rename"
DELEGATION: Final = "x-iceberg-access-delegation"


def as_json(body: Mapping[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(body), status, media_type="application/json")


def table_answer(catalog: Catalog, request: Request, view: TableView, loaded: Loaded) -> Response:
    """A table, with keys for its files if they are asked for."""
    wants_keys = "vended-credentials" in request.headers.get(DELEGATION, "")
    keys = catalog.credentials(view) if wants_keys else []
    config = catalog.config() | (keys[0]["config"] if keys else {})
    body = answer_of(loaded, config, keys)
    return Response(body, media_type="application/json", headers={"etag": f'"{loaded.etag}"'})
