"""The console over HTTP: who asks, which page it is, and what becomes of an error."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from metaservice.cli.find import TABLE_ID
from metaservice.client import UnauthenticatedError
from worker.console import (
    branches,
    consumers,
    files,
    home,
    races,
    retention,
    table_services,
    tables,
    timeline,
    versions,
    view_work,
    views,
)
from worker.console.entrance import Access, Entrance
from worker.console.guard import FormError, Guard, read_form
from worker.console.live import LiveEvents
from worker.console.problems import problem_of
from worker.console.rendering import STATIC, Pages
from worker.console.sessions import Session
from worker.console.visits import LIVE_SERVICE, Page, PageError, Shown, Visit

Handler = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger("laketx.console")


class Console:
    """The pages for those who are logged in, and the way in."""

    def __init__(self, access: Access, live: LiveEvents) -> None:
        self._access, self._live = access, live
        self._pages = Pages()

    def routes(self) -> list[Route | Mount]:
        shown: tuple[tuple[str, Page], ...] = (
            ("/", home.show),
            ("/tables", tables.show_all),
            ("/tables/{table_id}", tables.show),
            ("/tables/{table_id}/files", files.show),
            ("/tables/{table_id}/rows", versions.show_rows),
            ("/tables/{table_id}/timeline", timeline.show),
            ("/tables/{table_id}/versions/{version}", versions.show),
            ("/tables/{table_id}/compare", versions.show_comparison),
            ("/races", races.show_all),
            ("/races/{txn_id}", races.show),
            ("/branches", branches.show_all),
            ("/branches/{name}", branches.show),
            ("/views", views.show),
            ("/consumers", consumers.show),
            ("/retention", retention.show),
            ("/runbooks", home.show_runbooks),
            ("/services", table_services.show),
        )
        changing: tuple[tuple[str, Page], ...] = (
            ("/branches", branches.create),
            ("/branches/{name}/drop", branches.drop),
            ("/branches/{name}/merge", branches.merge),
            ("/branches/{name}/refresh", branches.refresh),
            ("/tables/{table_id}/tasks", table_services.request),
            ("/tables/{table_id}/versions/{version}/branch", versions.branch),
            ("/tables/{table_id}/versions/{version}/clone", versions.clone),
            ("/tables/{table_id}/versions/{version}/restore", versions.restore),
            ("/tables/{table_id}/versions/{version}/tags", versions.tag),
            ("/tasks/{task_id}/cancel", table_services.cancel),
            ("/views/{table_id}/refresh", view_work.refresh),
            ("/views/{table_id}/schedule", views.schedule),
            ("/views/{table_id}/verify", view_work.verify),
        )
        return [
            *Entrance(self._access, self._rendered, self._failed).routes(),
            Route("/health", health, methods=["GET"]),
            *(Route(path, self.answered(page), methods=["GET"]) for path, page in shown),
            *(Route(path, self.answered(page), methods=["POST"]) for path, page in changing),
            Route(LIVE_SERVICE, self.events, methods=["GET"]),
            Route("/live/tables/{table_id}", self.events, methods=["GET"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    # -- pages

    def answered(self, page: Page) -> Handler:
        """Who asks comes first, then the form, then the work."""

        async def run(request: Request) -> Response:
            session_id = self._access.sessions.read_id(request.cookies)
            session = self._access.sessions.find(session_id)
            if session is None:
                return self._stranger(request)
            try:
                form: Mapping[str, str] = {}
                if request.method == "POST":
                    form = await read_form(request)
                    if not self._access.sessions.is_form_token(session_id, form.get("form_token", "")):
                        raise FormError("the form is of another session: load its page again")
                return await run_in_threadpool(self._work, page, request, session_id, session, form)
            except UnauthenticatedError:
                self._access.sessions.end(session_id)
                return self._stranger(request)
            except Exception as error:  # noqa: BLE001 - each becomes a page that says what to do
                return self._failed(request, error, session_id, session)

        return run

    def _work(
        self, page: Page, request: Request, session_id: str, session: Session, form: Mapping[str, str]
    ) -> Response:
        self._renew(session)
        lake = self._access.callers.lake(f"Bearer {session.token}" if session.token else "")
        answer = page(Visit(request, lake, time.time_ns() // 1_000, form))
        return self._rendered(request, answer, session_id, session) if isinstance(answer, Shown) else answer

    def _renew(self, session: Session) -> None:
        if self._access.provider is not None:
            self._access.provider.renew(session)

    def _rendered(
        self, request: Request, shown: Shown, session_id: str = "", session: Session | None = None
    ) -> HTMLResponse:
        facts: dict[str, Any] = {
            "here": request.url.path,
            "live": shown.live,
            "place": self._access.place,
            "user": session.name if session is not None else "",
            "is_in": session is not None,
            "form_token": self._access.sessions.form_token(session_id) if session_id else "",
            **shown.facts,
        }
        return HTMLResponse(self._pages.render(shown.template, facts), shown.status)

    def _failed(
        self, request: Request, error: Exception, session_id: str = "", session: Session | None = None
    ) -> Response:
        problem = problem_of(error, self._access.place)
        if problem.status >= 500:
            _log.error("%s %s", request.method, request.url.path, exc_info=error)
        facts = {"title": problem.title, "step": problem.step, "status": problem.status}
        return self._rendered(request, Shown("error.html", facts, problem.status), session_id, session)

    def _stranger(self, request: Request) -> Response:
        """Whoever is not logged in learns nothing, not even which pages there are."""
        if request.method != "GET":
            return PlainTextResponse("Log in first.\n", 401)
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(target, safe='')}" if target != "/" else "/login", 303)

    # -- events

    async def events(self, request: Request) -> Response:
        sessions = self._access.sessions
        session_id = sessions.read_id(request.cookies)
        session = sessions.find(session_id)
        if session is None:
            return PlainTextResponse("Log in first.\n", 401)
        table_id = request.path_params.get("table_id", "")
        if table_id and not TABLE_ID.fullmatch(table_id):
            return PlainTextResponse("There is no such table.\n", 404)
        await run_in_threadpool(self._renew, session)
        token, provider = session.token, self._access.provider

        def is_in() -> bool:
            """Return whether the token is still valid; otherwise the page reconnects with the next token."""
            signed_in = sessions.find(session_id)
            return (
                signed_in is not None
                and signed_in.token == token
                and (provider is None or not provider.is_due(signed_in))
            )

        return await self._live.stream(token, table_id, is_in)

    async def not_found(self, request: Request, _error: Exception) -> Response:
        session_id = self._access.sessions.read_id(request.cookies)
        session = self._access.sessions.find(session_id)
        if session is None:
            return self._stranger(request)
        problem = PageError(404, "There is no such page", "Use the links above.")
        return self._failed(request, problem, session_id, session)


async def health(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def wrong_method(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("This address takes no such request.\n", 405)


def build_app(console: Console, hosts: list[str]) -> ASGIApp:
    handlers: Any = {404: console.not_found, 405: wrong_method}
    return Guard(Starlette(routes=console.routes(), exception_handlers=handlers), hosts)
