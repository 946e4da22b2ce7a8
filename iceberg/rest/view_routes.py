"""Requests about views, and their answers."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from iceberg.rest.answers import RENAME_VIEW, VIEW, VIEWS, Answer, as_json, listing
from iceberg.rest.catalog import Catalog, namespace_of
from iceberg.rest.problems import RestError
from iceberg.rest.views import Views
from iceberg.rest.write_routes import body_of, renaming_of


def list_views(catalog: Catalog, request: Request) -> Response:
    namespace = namespace_of(request.path_params["namespace"])
    return listing(request, namespace, Views(catalog).names(namespace))


def load_view(catalog: Catalog, request: Request) -> Response:
    return as_json(Views(catalog).load(*_named(request)))


def has_view(catalog: Catalog, request: Request) -> Response:
    Views(catalog).find(*_named(request))
    return Response(status_code=204)


def create_view(catalog: Catalog, request: Request) -> Response:
    namespace, body = namespace_of(request.path_params["namespace"]), body_of(request)
    name = body.get("name")
    if not isinstance(name, str):
        raise RestError(400, "BadRequestException", "the request lacks the view's name")
    return as_json(Views(catalog).create(namespace, name, body))


def replace_view(catalog: Catalog, request: Request) -> Response:
    return as_json(Views(catalog).replace(*_named(request), body_of(request)))


def drop_view(catalog: Catalog, request: Request) -> Response:
    Views(catalog).drop(*_named(request))
    return Response(status_code=204)


def rename_view(catalog: Catalog, request: Request) -> Response:
    Views(catalog).rename(*renaming_of(request))
    return Response(status_code=204)


OF_VIEWS: Final[tuple[tuple[str, str, Answer], ...]] = (
    ("GET", VIEWS, list_views),
    ("POST", VIEWS, create_view),
    ("HEAD", VIEW, has_view),  # before GET, which would answer it too
    ("GET", VIEW, load_view),
    ("POST", VIEW, replace_view),
    ("DELETE", VIEW, drop_view),
    ("POST", RENAME_VIEW, rename_view),
)


def _named(request: Request) -> tuple[str, str]:
    return namespace_of(request.path_params["namespace"]), request.path_params["view"]
