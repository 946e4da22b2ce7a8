"""The console over HTTP: who asks, which page it is, and what becomes of an error."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from metaservice.cli.failures import failure_of
from metaservice.cli.find import TABLE_ID
from metaservice.client import (
    ConflictError,
    DeniedError,
    ExhaustedError,
    GoneError,
    InvalidError,
    LakeTXError,
    NotFoundError,
    UnauthenticatedError,
    UnavailableError,
)
from worker.base.errors import InputError
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
    views,
)
from worker.console.guard import FormError, Guard, local_path, read_form
from worker.console.live import LiveEvents
from worker.console.rendering import STATIC, Pages
from worker.console.sessions import OwnerKey, Session, Sessions
from worker.console.visits import Page, PageError, Shown, Visit
from worker.web.callers import TOKEN_CHARS_MAX, CallerRefusedError, Callers

NEWCOMERS_MAX: Final = 8  # logins under way: those who are logged in don't wait for them
Handler = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger("laketx.console")


@dataclass(frozen=True, slots=True)
class Access:
    """How people get in: the owner by a key in the address, others by a token of the service."""

    sessions: Sessions
    callers: Callers
    owner_key: OwnerKey | None  # None: people log in with a token
    place: str  # where the service is, for people
    key_used: Callable[[], None] = lambda: None


class Console:
    """The pages for those who are logged in, and the way in."""

    def __init__(self, access: Access, live: LiveEvents) -> None:
        self._access, self._live = access, live
        self._pages = Pages()
        self._newcomers = asyncio.Semaphore(NEWCOMERS_MAX)

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
            ("/services", table_services.show),
        )
        changing: tuple[tuple[str, Page], ...] = (
            ("/branches", branches.create),
            ("/branches/{name}/drop", branches.drop),
            ("/branches/{name}/merge", branches.merge),
            ("/branches/{name}/refresh", branches.refresh),
            ("/tables/{table_id}/tasks", table_services.request),
            ("/tables/{table_id}/versions/{version}/clone", versions.clone),
            ("/tables/{table_id}/versions/{version}/restore", versions.restore),
            ("/tables/{table_id}/versions/{version}/tags", versions.tag),
            ("/tasks/{task_id}/cancel", table_services.cancel),
            ("/views/{table_id}/schedule", views.schedule),
        )
        return [
            Route("/login", self.show_login, methods=["GET"]),
            Route("/login", self.log_in, methods=["POST"]),
            Route("/logout", self.log_out, methods=["POST"]),
            Route("/open", self.open, methods=["GET"]),
            Route("/health", health, methods=["GET"]),
            *(Route(path, self.answered(page), methods=["GET"]) for path, page in shown),
            *(Route(path, self.answered(page), methods=["POST"]) for path, page in changing),
            Route("/live/service", self.events, methods=["GET"]),
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
        lake = self._access.callers.lake(f"Bearer {session.token}" if session.token else "")
        answer = page(Visit(request, lake, time.time_ns() // 1_000, form))
        return self._rendered(request, answer, session_id, session) if isinstance(answer, Shown) else answer

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

    # -- the way in

    async def show_login(self, request: Request) -> Response:
        target = local_path(request.query_params.get("next", "/"))
        if self._access.sessions.find(self._access.sessions.read_id(request.cookies)) is not None:
            return RedirectResponse(target, 303)
        return self._login(request, "", 200)

    def _login(self, request: Request, problem: str, status: int) -> Response:
        """The form has an id of its own, which opens nothing and ends no session."""
        form_id = self._access.sessions.new_id()
        facts = {
            "by_token": self._access.owner_key is None,
            "next": local_path(request.query_params.get("next", "/")),
            "problem": problem,
        }
        answer = self._rendered(request, Shown("login.html", facts, status), form_id)
        answer.headers.append("set-cookie", self._access.sessions.form_cookie_of(form_id))
        return answer

    async def log_in(self, request: Request) -> Response:
        form_id = self._access.sessions.read_form_id(request.cookies)
        try:
            form = await read_form(request)
            if not self._access.sessions.is_form_token(form_id, form.get("form_token", "")):
                raise FormError("the form was too old: send it again")
            token = form.get("token", "").strip()
            if self._access.owner_key is not None or not token:
                raise CallerRefusedError("enter a token of the service")
            async with self._newcomers:
                name = await run_in_threadpool(self._name_of, token)
        except (FormError, CallerRefusedError, UnauthenticatedError) as error:
            reason = "the service doesn't take this token" if isinstance(error, UnauthenticatedError) else str(error)
            return self._login(request, reason, 403)
        except LakeTXError as error:
            return self._login(request, problem_of(error, self._access.place).title, 503)
        self._access.sessions.end(self._access.sessions.read_id(request.cookies))
        return self._welcome(request, self._access.sessions.begin(token, name), local_path(form.get("next", "/")))

    def _name_of(self, token: str) -> str:
        if len(token) > TOKEN_CHARS_MAX:
            raise CallerRefusedError(f"a token has at most {TOKEN_CHARS_MAX} characters")
        return self._access.callers.lake(f"Bearer {token}").client.whoami().principal

    async def open(self, request: Request) -> Response:
        """The address that the command printed. It opens one session."""
        key = self._access.owner_key
        if key is None or not key.take(request.query_params.get("key", "")):
            problem = "This address was used already, or is incomplete: the console printed a new one."
            return self._login(request, problem if key is not None else "", 403)
        self._access.key_used()
        self._access.sessions.end(self._access.sessions.read_id(request.cookies))
        return self._welcome(request, self._access.sessions.begin("", "owner"), "/")

    def _welcome(self, request: Request, session_id: str, target: str) -> Response:
        """A page that goes on by itself: after a redirect from another site the cookie would not be sent."""
        answer = self._rendered(request, Shown("welcome.html", {"target": target}), session_id)
        answer.headers.append("set-cookie", self._access.sessions.cookie_of(session_id))
        return answer

    async def log_out(self, request: Request) -> Response:
        session_id = self._access.sessions.read_id(request.cookies)
        try:
            form = await read_form(request)
            if not self._access.sessions.is_form_token(session_id, form.get("form_token", "")):
                raise FormError("the form is of another session: load its page again")
        except FormError as error:
            return self._failed(request, error)
        self._access.sessions.end(session_id)
        answer = RedirectResponse("/login", 303)
        answer.headers.append("set-cookie", self._access.sessions.no_cookie())
        return answer

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
        return await self._live.stream(session.token, table_id, lambda: sessions.find(session_id) is not None)

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


def problem_of(error: Exception, place: str) -> PageError:
    """What went wrong, and what to do, for people."""
    match error:
        case PageError():
            return error
        case FormError():
            return PageError(403, f"Refused: {error}", "Nothing was changed. Go back, load the page again, try again.")
        case CallerRefusedError():
            return PageError(401, str(error), "Log in again.")
        case ConflictError():
            return PageError(409, str(error), "Nothing was changed. Load the page again.")
        case LakeTXError():
            failure = failure_of(error, place)
            step = failure.next_step or "Try again."
            return PageError(status_of(error), f"{failure.reason}: {failure.message}", step)
        case _:
            return PageError(500, "The console failed", "Its log says more. Other pages may work.")


def status_of(error: LakeTXError) -> int:
    match error:
        case DeniedError():
            return 403
        case NotFoundError():
            return 404
        case GoneError():
            return 410
        case UnavailableError():
            return 503
        case InputError() | InvalidError():
            return 400
        case ExhaustedError():
            return 429
        case _:
            return 409
