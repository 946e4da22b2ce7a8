"""Requests about views, and their answers."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.iceberg.rest.answers import RENAME_VIEW, VIEW, VIEWS, Answer, as_json, body_of, listing, view_of
from worker.iceberg.rest.catalog import Catalog, namespace_of
from worker.iceberg.rest.problems import NO_VIEW
from worker.iceberg.rest.shapes import COMMIT_VIEW, CREATE_VIEW
from worker.iceberg.rest.views import Views
from worker.iceberg.rest.write_routes import renaming_of


def list_views(catalog: Catalog, request: Request) -> Response:
    namespace = namespace_of(request.path_params["namespace"])
    return listing(request, namespace, Views(catalog).names(namespace))


def load_view(catalog: Catalog, request: Request) -> Response:
    return as_json(Views(catalog).load(*view_of(request)))


def has_view(catalog: Catalog, request: Request) -> Response:
    Views(catalog).find(*view_of(request))
    return Response(status_code=204)


def create_view(catalog: Catalog, request: Request) -> Response:
    namespace, body = namespace_of(request.path_params["namespace"]), body_of(request, CREATE_VIEW)
    return as_json(Views(catalog).create(namespace, body["name"], body))


def replace_view(catalog: Catalog, request: Request) -> Response:
    return as_json(Views(catalog).replace(*view_of(request), body_of(request, COMMIT_VIEW)))


def drop_view(catalog: Catalog, request: Request) -> Response:
    Views(catalog).drop(*view_of(request))
    return Response(status_code=204)


def rename_view(catalog: Catalog, request: Request) -> Response:
    Views(catalog).rename(*renaming_of(request, NO_VIEW))
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
