"""Planning of scans over HTTP: planTableScan, fetchPlanningResult, cancelPlanning, fetchScanTasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from metaservice.client import GoneError, NotFoundError
from worker.connection.table_view import TableView
from worker.iceberg.rest.answers import DELEGATION, TABLE, Answer, as_json, body_of, table_of
from worker.iceberg.rest.catalog import Catalog
from worker.iceberg.rest.plans import Plans, Reader, ScanPage, scan_of_token
from worker.iceberg.rest.problems import NO_PLAN, NO_TASK, RestError
from worker.iceberg.rest.shapes import PLAN as PLAN_SHAPE
from worker.iceberg.rest.shapes import TASK

PLAN: Final = TABLE + "/plan"
PLAN_OF_ID: Final = PLAN + "/{plan_id}"
TASKS: Final = TABLE + "/tasks"
PYICEBERG: Final = "PyIceberg/"
ROUTES: Final = (("POST", PLAN), ("GET", PLAN_OF_ID), ("DELETE", PLAN_OF_ID), ("POST", TASKS))
PLANNING: Final = [(method, path.replace("_", "-")) for method, path in ROUTES]  # as the specification spells them


class PlanRoutes:
    """Routes of plans. A plan is complete when it is answered, so no client has to wait."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans

    def routes(self) -> list[tuple[str, str, Answer]]:
        """Return the methods and paths with their handlers."""
        answers = (self._plan, self._planned, self._cancel, self._tasks)
        return [(method, path, answer) for (method, path), answer in zip(ROUTES, answers, strict=True)]

    def _plan(self, catalog: Catalog, request: Request) -> Response:
        table = _table(catalog, request)
        with _gone(400, "BadRequestException"):
            answer = self._plans.plan(table, _reader(catalog, request), body_of(request, PLAN_SHAPE))
        return as_json(answer | _keys(catalog, request, table))

    def _planned(self, catalog: Catalog, request: Request) -> Response:
        table, scan = self._scan_of_plan(catalog, request)
        with _gone(404, NO_PLAN):
            answer = self._plans.answer(table, _reader(catalog, request), scan)
        return as_json(answer | _keys(catalog, request, table))

    def _cancel(self, catalog: Catalog, request: Request) -> Response:
        _, scan = self._scan_of_plan(catalog, request)
        self._plans.forget(scan)
        return Response(status_code=204)

    def _scan_of_plan(self, catalog: Catalog, request: Request) -> tuple[TableView, ScanPage]:
        table = _table(catalog, request)
        return table, scan_of_token(request.path_params["plan_id"], table.table_id, NO_PLAN)

    def _tasks(self, catalog: Catalog, request: Request) -> Response:
        table = _table(catalog, request)
        scan = scan_of_token(body_of(request, TASK)["plan-task"], table.table_id, NO_TASK)
        with _gone(404, NO_TASK):
            return as_json(self._plans.page(table, _reader(catalog, request), scan))


@contextmanager
def _gone(status: int, kind: str) -> Iterator[None]:
    """Answer that the version of a plan is no longer kept."""
    try:
        yield
    except (GoneError, NotFoundError) as error:
        raise RestError(status, kind, f"the snapshot can't be read: {error}") from error


def _table(catalog: Catalog, request: Request) -> TableView:
    return catalog.view(*table_of(request))


def _reader(catalog: Catalog, request: Request) -> Reader:
    return Reader(catalog.form, takes_null=not request.headers.get("user-agent", "").startswith(PYICEBERG))


def _keys(catalog: Catalog, request: Request, table: TableView) -> dict[str, Any]:
    """Return keys for the files, if the client requests them."""
    wants_keys = "vended-credentials" in request.headers.get(DELEGATION, "")
    keys = catalog.credentials(table) if wants_keys else []
    return {"storage-credentials": keys} if keys else {}
