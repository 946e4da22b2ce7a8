"""The REST catalog over HTTP, as Iceberg's specification has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from worker.connection.lake_connection import Connection
from worker.iceberg.rest.answers import (
    NAMESPACE,
    NAMESPACES,
    TABLE,
    TABLES,
    Answer,
    as_json,
    body_of,
    etag_of,
    following,
    is_held,
    listing,
    paging,
    table_answer,
    table_of,
)
from worker.iceberg.rest.bodies import Bodies
from worker.iceberg.rest.catalog import Catalog, namespace_of, page_of
from worker.iceberg.rest.listing import Listings
from worker.iceberg.rest.plan_routes import PLANNING, PlanRoutes
from worker.iceberg.rest.plans import Plans
from worker.iceberg.rest.problems import NO_TABLE, NO_VIEW, RestError, problem_of
from worker.iceberg.rest.shapes import METRICS
from worker.iceberg.rest.tables import Tables
from worker.iceberg.rest.view_routes import OF_VIEWS
from worker.iceberg.rest.warehouses import DEFAULT, IcebergWarehouse
from worker.iceberg.rest.write_routes import WRITES
from worker.web.callers import Callers

NEWCOMERS_MAX: Final = 8  # callers for whom MetaService is asked at one time; known ones don't wait for them

_log = logging.getLogger("laketx.iceberg")


def build_app(
    callers: Callers, tables: Tables, listings: Listings, plans: Plans, config: Mapping[str, str]
) -> Starlette:
    """Build the application. `config` is sent to every client: for example the address of the S3 server."""

    bodies, newcomers = Bodies(), asyncio.Semaphore(NEWCOMERS_MAX)

    def answered(answer: Answer) -> Callable[[Request], Any]:
        """Who calls comes first, then the body, then the work."""

        async def run(request: Request) -> Response:
            try:
                shows = request.headers.get("authorization", "")
                lake = callers.recent(shows)
                if lake is None:
                    async with newcomers:
                        lake = await run_in_threadpool(callers.lake, shows)
                async with bodies.read(request) as request.state.body:
                    return await run_in_threadpool(work, lake, request)
            except Exception as error:  # noqa: BLE001 - each becomes an answer in the specification's form
                return failed(request, error)

        def work(lake: Connection, request: Request) -> Response:
            warehouse = IcebergWarehouse.of(request.path_params.get("prefix", DEFAULT))
            if warehouse is None:
                raise RestError(400, "BadRequestException", "paths begin with /v1/v3 or /v1/v2, or /v1/v3@BRANCH")
            return answer(Catalog(lake, tables, listings, warehouse, config), request)

        return run

    routes = [Route("/v1/config", answered(get_config)), Route("/health", health)]
    for path, answer in (
        (NAMESPACES, list_namespaces),
        (NAMESPACE, get_namespace),
        (TABLES, list_tables),
        (TABLE, load_table),
        (TABLE + "/credentials", load_credentials),
    ):
        routes.append(Route(path, answered(answer), methods=["GET"]))
    routes += [Route(path, answered(answer), methods=[method]) for method, path, answer in (*WRITES, *OF_VIEWS)]
    routes += [Route(path, answered(answer), methods=[method]) for method, path, answer in PlanRoutes(plans).routes()]
    routes.append(Route(TABLE + "/metrics", answered(take_metrics), methods=["POST"]))
    return Starlette(routes=routes, exception_handlers={404: not_found, 405: not_supported})


ENDPOINTS: Final = [
    f"{method} {path}"
    for method, path in (
        ("GET", NAMESPACES),
        ("GET", NAMESPACE),
        ("HEAD", NAMESPACE),
        ("GET", TABLES),
        ("GET", TABLE),
        ("HEAD", TABLE),
        ("GET", TABLE + "/credentials"),
        ("POST", TABLE + "/metrics"),
        *((method, path) for method, path, _ in (*WRITES, *OF_VIEWS)),
        *PLANNING,
    )
]


# -- answers


def get_config(catalog: Catalog, request: Request) -> Response:
    name = request.query_params.get("warehouse", "") or DEFAULT
    warehouse = IcebergWarehouse.of(name)
    if warehouse is None:
        raise RestError(
            400,
            "BadRequestException",
            f"there is no warehouse {name}, but v3 and v2: formats of Iceberg; main is v3, and v3@NAME is a branch",
        )
    prefix = catalog.of(warehouse).check_branch().prefix
    return as_json({"defaults": {}, "overrides": {"prefix": prefix}, "endpoints": ENDPOINTS})


def list_namespaces(catalog: Catalog, request: Request) -> Response:
    if parent := request.query_params.get("parent"):
        catalog.namespace(namespace_of(parent))
        return as_json({"namespaces": []})
    page = page_of(catalog.namespaces(), *paging(request))
    return as_json({"namespaces": [[name] for name in page.names]} | following(page.next_token))


def get_namespace(catalog: Catalog, request: Request) -> Response:
    name = namespace_of(request.path_params["namespace"])
    properties = catalog.namespace(name)
    if request.method == "HEAD":
        return Response(status_code=204)
    return as_json({"namespace": [name], "properties": properties})


def list_tables(catalog: Catalog, request: Request) -> Response:
    name = namespace_of(request.path_params["namespace"])
    return listing(request, name, catalog.tables(name))


def load_table(catalog: Catalog, request: Request) -> Response:
    name, table = table_of(request)
    if request.method == "HEAD":
        catalog.view(name, table)
        return Response(status_code=204)
    view, loaded = catalog.load(name, table)
    if is_held(request.headers.get("if-none-match", ""), loaded.etag):
        return Response(status_code=304, headers={"etag": etag_of(loaded)})
    return table_answer(catalog, request, view, loaded)


def load_credentials(catalog: Catalog, request: Request) -> Response:
    view = catalog.view(*table_of(request))
    return as_json({"storage-credentials": catalog.credentials(view)})


def take_metrics(_catalog: Catalog, request: Request) -> Response:
    """Accept a client's report about a scan. It is not kept."""
    body_of(request, METRICS)
    return Response(status_code=204)


async def health(_request: Request) -> Response:
    return as_json({"status": "ok"})


# -- forms


def failed(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.status >= 500:
        _log.error("%s %s", request.method, request.url.path, exc_info=error)
    return shown(problem)


def shown(problem: RestError) -> Response:
    return as_json(problem.body(), problem.status)


async def not_found(request: Request, _error: Exception) -> Response:
    kinds = {"/views/": NO_VIEW, "/tables/": NO_TABLE}
    kind = next((kinds[part] for part in kinds if part in request.url.path), "NotFoundException")
    return shown(RestError(404, kind, f"the catalog has no endpoint {request.method} {request.url.path}"))


async def not_supported(request: Request, _error: Exception) -> Response:
    message = f"the catalog has no endpoint {request.method} {request.url.path}"
    return shown(RestError(406, "UnsupportedOperationException", message))
