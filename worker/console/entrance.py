"""The way in and out: the owner's address, a token of the service, or a login at a provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from metaservice.client import LakeTXError, UnauthenticatedError
from worker.console.guard import FormError, local_path, read_form
from worker.console.problems import problem_of
from worker.console.provider import Grant, ProviderAwayError, ProviderError
from worker.console.provider_login import ProviderLogin
from worker.console.sessions import OwnerKey, Session, Sessions
from worker.console.visits import Shown
from worker.web.callers import TOKEN_CHARS_MAX, CallerRefusedError, Callers

NEWCOMERS_MAX: Final = 8  # logins under way: those who are logged in don't wait for them


@dataclass(frozen=True, slots=True)
class Access:
    """How people get in: the owner by a key in the address, others by a token of the service or by a provider."""

    sessions: Sessions
    callers: Callers
    owner_key: OwnerKey | None  # None: people log in with a token
    place: str  # where the service is, for people
    key_used: Callable[[], None] = lambda: None
    provider: ProviderLogin | None = None


class Render(Protocol):
    """Makes a page; with a session, one for somebody who is logged in."""

    def __call__(
        self, request: Request, shown: Shown, session_id: str = "", session: Session | None = None
    ) -> HTMLResponse: ...


class Entrance:
    """Logins and logouts."""

    def __init__(self, access: Access, render: Render, fail: Callable[[Request, Exception], Response]) -> None:
        self._access, self._render, self._fail = access, render, fail
        self._newcomers = asyncio.Semaphore(NEWCOMERS_MAX)

    def routes(self) -> list[Route]:
        routes = [
            Route("/login", self.show_login, methods=["GET"]),
            Route("/login", self.log_in, methods=["POST"]),
            Route("/logout", self.log_out, methods=["POST"]),
            Route("/open", self.open, methods=["GET"]),
        ]
        if self._access.provider is not None:
            routes += [
                Route("/login/provider", self.go_to_provider, methods=["GET"]),
                Route("/login/callback", self.come_back, methods=["GET"]),
            ]
        return routes

    async def show_login(self, request: Request) -> Response:
        target = local_path(request.query_params.get("next", "/"))
        if self._access.sessions.find(self._access.sessions.read_id(request.cookies)) is not None:
            return RedirectResponse(target, 303)
        return self._login(request, "", 200)

    def _login(self, request: Request, problem: str, status: int) -> Response:
        """The form has an id of its own, which opens nothing and ends no session."""
        form_id = self._access.sessions.new_id()
        provider, target = self._access.provider, local_path(request.query_params.get("next", "/"))
        facts: dict[str, Any] = {
            "by_token": self._access.owner_key is None,
            "provider": provider.host if provider is not None else "",
            "provider_link": f"{provider.home}/login/provider?next={quote(target, safe='')}" if provider else "",
            "next": target,
            "problem": problem,
        }
        answer = self._render(request, Shown("login.html", facts, status), form_id)
        answer.headers.append("set-cookie", self._access.sessions.form_cookie_of(form_id))
        return answer

    # -- by a token, or by the owner's address

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
            return self._login(request, self._away(error), 503)
        return self._welcome(request, token, name, local_path(form.get("next", "/")))

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
        return self._welcome(request, "", "owner", "/")

    def _welcome(self, request: Request, token: str, name: str, target: str, grant: Grant | None = None) -> Response:
        """A page that goes on by itself: after a redirect from another site the cookie would not be sent.

        The session has a new id, and the one before ends.
        """
        sessions = self._access.sessions
        sessions.end(sessions.read_id(request.cookies))
        session_id = sessions.begin(token, name, grant)
        answer = self._render(request, Shown("welcome.html", {"target": target}), session_id)
        answer.headers.append("set-cookie", sessions.cookie_of(session_id))
        return answer

    # -- by a provider

    async def go_to_provider(self, request: Request) -> Response:
        """To the provider, with a cookie for the way back. Nothing is changed: a link may lead here."""
        provider = self._of_provider()
        login_id = provider.begin_id(local_path(request.query_params.get("next", "/")))
        try:
            async with self._newcomers:
                url = await run_in_threadpool(provider.url, login_id)
        except ProviderError as error:
            return self._login(request, str(error), 503)
        answer = RedirectResponse(url, 303)
        answer.headers.append("set-cookie", self._access.sessions.login_cookie_of(login_id))
        return answer

    async def come_back(self, request: Request) -> Response:
        """From the provider, which sent the browser here with a code."""
        provider = self._of_provider()
        try:
            back = provider.returned(request.cookies, request.query_params)
            async with self._newcomers:
                grant = await run_in_threadpool(provider.redeem, back)
                name = await run_in_threadpool(self._name_of, grant.bearer)
        except ProviderAwayError as error:
            return self._login(request, str(error), 503)
        except (ProviderError, CallerRefusedError) as error:
            return self._login(request, str(error), 403)
        except UnauthenticatedError as error:
            return self._login(request, f"the service doesn't take the token of {provider.host}: {error}", 403)
        except LakeTXError as error:
            return self._login(request, self._away(error), 503)
        answer = self._welcome(request, grant.bearer, name, back.target, grant)
        answer.headers.append("set-cookie", self._access.sessions.no_login_cookie())
        return answer

    def _of_provider(self) -> ProviderLogin:
        assert self._access.provider is not None
        return self._access.provider

    # -- out

    async def log_out(self, request: Request) -> Response:
        sessions = self._access.sessions
        session_id = sessions.read_id(request.cookies)
        try:
            form = await read_form(request)
            if not sessions.is_form_token(session_id, form.get("form_token", "")):
                raise FormError("the form is of another session: load its page again")
        except FormError as error:
            return self._fail(request, error)
        session = sessions.find(session_id)
        sessions.end(session_id)
        answer = await self._logged_out(request, is_of_provider=session is not None and session.grant is not None)
        answer.headers.append("set-cookie", sessions.no_cookie())
        return answer

    async def _logged_out(self, request: Request, *, is_of_provider: bool) -> Response:
        """The login form; or a page that goes on to the provider's logout, where a redirect after a form may not."""
        provider = self._access.provider
        if provider is None or not is_of_provider:
            return RedirectResponse("/login", 303)
        try:
            async with self._newcomers:
                url = await run_in_threadpool(provider.provider.logout_url)
        except ProviderError:
            url = ""
        if not url:
            return RedirectResponse("/login", 303)
        return self._render(request, Shown("logged_out.html", {"host": provider.host, "target": url}))

    def _away(self, error: LakeTXError) -> str:
        return problem_of(error, self._access.place).title
