"""Logins at an OpenID Connect provider: the code flow with PKCE, and tokens that are renewed before they are over.

A login under way is a signed cookie of the browser that began it. Its state, nonce and verifier are made from that
cookie with a key of this process. So a code, or a state, that another browser got opens nothing here.
"""

from __future__ import annotations

import base64
import hmac
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

from worker.console.guard import local_path
from worker.console.provider import (
    ASK_S,
    CODE_CHARS_MAX,
    Grant,
    Provider,
    ProviderAwayError,
    ProviderError,
    error_code,
)
from worker.console.sessions import LOGIN_S, Session, Sessions, renew_time_s

TARGET_CHARS_MAX: Final = 1_000
BACK_MAX: Final = 10_000  # logins that came back lately: none comes twice
AGAIN_S: Final = 10.0  # until a provider that didn't answer is asked again
RENEWALS_MAX: Final = 8  # at one time: each holds a thread
BEGIN_AGAIN: Final = "this login was begun in another browser, or too long ago: begin again"


@dataclass(frozen=True, slots=True)
class Returned:
    """Somebody who comes back from the provider with a code."""

    login_id: str
    code: str
    target: str  # where to go on
    has_issuer: bool  # the address that the provider sent the browser back to names it


class ProviderLogin:
    """The way in by a provider. `begin_id` and `returned` are of one thread."""

    def __init__(self, provider: Provider, sessions: Sessions, now_s: Callable[[], float]) -> None:
        """`now_s`: a clock that only goes forward."""
        self.provider = provider
        self._sessions, self._now_s = sessions, now_s
        self._back: TTLCache[str, bool] = TTLCache(BACK_MAX, LOGIN_S, now_s)
        self._renewing = threading.BoundedSemaphore(RENEWALS_MAX)

    @property
    def host(self) -> str:
        return self.provider.settings.host

    @property
    def home(self) -> str:
        return self.provider.settings.home

    def begin_id(self, target: str) -> str:
        """The id of a new login: it knows when it began, and where to go on afterwards."""
        kept = target if len(target) <= TARGET_CHARS_MAX else "/"
        return f"{self._sessions.new_id()}~{int(self._now_s())}~{base64.urlsafe_b64encode(kept.encode()).decode()}"

    def url(self, login_id: str) -> str:
        """Where the browser goes to log in. Raises ProviderError."""
        state, nonce, verifier = (
            self._sessions.login_secret(each, login_id) for each in ("state", "nonce", "verifier")
        )
        return self.provider.login_url(state, nonce, verifier)

    def returned(self, cookies: Mapping[str, str], query: Mapping[str, str]) -> Returned:
        """Raises ProviderError for whoever began no login here, or comes back a second time, or from elsewhere."""
        login_id = self._sessions.read_login_id(cookies)
        state = query.get("state", "")
        if not login_id or not hmac.compare_digest(self._sessions.login_secret("state", login_id), _ascii(state)):
            raise ProviderError(BEGIN_AGAIN)
        _, begin_s, target = login_id.split("~")
        if login_id in self._back or self._now_s() - int(begin_s) > LOGIN_S:
            raise ProviderError(BEGIN_AGAIN)
        self._back[login_id] = True
        issuer = query.get("iss")
        if issuer is not None and issuer != self.provider.settings.issuer:
            raise ProviderError("the answer is of another provider: begin again")
        if error := query.get("error"):
            raise ProviderError(f"{self.host} refuses the login: {error_code(error) or 'it says no reason'}")
        code = query.get("code", "")
        if not code or len(code) > CODE_CHARS_MAX:
            raise ProviderError(f"{self.host} gave no code: begin again")
        return Returned(login_id, code, local_path(base64.urlsafe_b64decode(target).decode()), issuer is not None)

    def redeem(self, back: Returned) -> Grant:
        """Raises ProviderError."""
        if not back.has_issuer and self.provider.offer().names_itself:
            raise ProviderError("the answer names no provider: begin again")
        verifier, nonce = (self._sessions.login_secret(each, back.login_id) for each in ("verifier", "nonce"))
        return self.provider.redeem(back.code, verifier, nonce)

    def is_due(self, session: Session) -> bool:
        """Whether the token of a session is to be renewed."""
        return self._now_s() >= session.renew_s

    def renew(self, session: Session) -> None:
        """Renews the token of a session if it is due. One that can't be renewed is the service's to refuse."""
        if not self.is_due(session) or not self._renewing.acquire(blocking=False):
            return
        try:
            if session.lock.acquire(timeout=ASK_S):
                try:
                    self._renew(session)
                finally:
                    session.lock.release()
        finally:
            self._renewing.release()

    def _renew(self, session: Session) -> None:
        grant = session.grant
        if grant is None or not self.is_due(session):  # another request was first
            return
        try:
            renewed = self.provider.renew(grant)
        except ProviderAwayError:
            session.renew_s = self._now_s() + AGAIN_S
        except ProviderError:
            session.renew_s = float("inf")
        else:
            session.token, session.grant = renewed.bearer, renewed
            session.renew_s = renew_time_s(self._now_s(), renewed)


def _ascii(text: str) -> str:
    """Text that can be compared in constant time."""
    return text if text.isascii() else ""
