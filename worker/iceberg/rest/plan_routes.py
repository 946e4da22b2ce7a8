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
from worker.iceberg.rest.plans import Asked, Plans, Reader, asked_again
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
    """Answers of plans. A plan is complete when it is answered, so nobody has to wait for one."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans

    def routes(self) -> list[tuple[str, str, Answer]]:
        """Methods and paths, and what answers them."""
        answers = (self._plan, self._planned, self._cancel, self._tasks)
        return [(method, path, answer) for (method, path), answer in zip(ROUTES, answers, strict=True)]

    def _plan(self, catalog: Catalog, request: Request) -> Response:
        table = _table(catalog, request)
        with _gone(400, "BadRequestException"):
            found = self._plans.plan(table, _reader(catalog, request), body_of(request, PLAN_SHAPE))
        return as_json(found | _keys(catalog, request, table))

    def _planned(self, catalog: Catalog, request: Request) -> Response:
        table, asked = self._known(catalog, request)
        with _gone(404, NO_PLAN):
            found = self._plans.answer(table, _reader(catalog, request), asked)
        return as_json(found | _keys(catalog, request, table))

    def _cancel(self, catalog: Catalog, request: Request) -> Response:
        _, asked = self._known(catalog, request)
        self._plans.forget(asked)
        return Response(status_code=204)

    def _known(self, catalog: Catalog, request: Request) -> tuple[TableView, Asked]:
        table = _table(catalog, request)
        return table, asked_again(request.path_params["plan_id"], table.table_id, NO_PLAN)

    def _tasks(self, catalog: Catalog, request: Request) -> Response:
        table = _table(catalog, request)
        asked = asked_again(body_of(request, TASK)["plan-task"], table.table_id, NO_TASK)
        with _gone(404, NO_TASK):
            return as_json(self._plans.page(table, _reader(catalog, request), asked))


@contextmanager
def _gone(status: int, kind: str) -> Iterator[None]:
    """Says that the version of a plan is no longer kept."""
    try:
        yield
    except (GoneError, NotFoundError) as error:
        raise RestError(status, kind, f"the snapshot can't be read: {error}") from error


def _table(catalog: Catalog, request: Request) -> TableView:
    return catalog.view(*table_of(request))


def _reader(catalog: Catalog, request: Request) -> Reader:
    return Reader(catalog.form, takes_null=not request.headers.get("user-agent", "").startswith(PYICEBERG))


def _keys(catalog: Catalog, request: Request, table: TableView) -> dict[str, Any]:
    """Keys for the files, if they are asked for."""
    wants_keys = "vended-credentials" in request.headers.get(DELEGATION, "")
    keys = catalog.credentials(table) if wants_keys else []
    return {"storage-credentials": keys} if keys else {}
