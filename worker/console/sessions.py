"""Who is logged in: the browser has a signed id, the token of the service stays in this process."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from worker.console.provider import Grant

SESSIONS_MAX: Final = 200  # the least recently used one ends
UNUSED_S: Final = 8 * 3_600.0
WHOLE_S: Final = 24 * 3_600.0
ID_BYTES: Final = 32
RENEW_BEFORE_S: Final = 60.0
FORM: Final = "_form"  # the end of the name of the cookie for the login form
LOGIN: Final = "_login"  # likewise, of the one for a login at a provider
LOGIN_S: Final = 600


@dataclass(slots=True)
class Session:
    """Somebody who logged in. `token` is what the service is shown; empty: the owner of this process."""

    token: str
    name: str
    begin_s: float
    use_s: float
    grant: Grant | None = None  # of a provider
    renew_s: float = math.inf  # when the token is to be renewed
    lock: threading.Lock = field(default_factory=threading.Lock)  # of the request that renews it


class Sessions:
    """The sessions of this process: they end with it."""

    def __init__(self, now_s: Callable[[], float], cookie: str, *, is_secure: bool) -> None:
        """`now_s`: a clock that only goes forward."""
        self._now_s = now_s
        self._is_secure = is_secure
        self.cookie = f"__Host-{cookie}" if is_secure else cookie  # a sibling subdomain can't set such a name
        self._key = secrets.token_bytes(ID_BYTES)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    # -- ids

    def new_id(self) -> str:
        return secrets.token_urlsafe(ID_BYTES)

    def read_id(self, cookies: Mapping[str, str]) -> str:
        """The id of a cookie that this process signed; empty: there is none."""
        return self._read(self.cookie, cookies)

    def read_form_id(self, cookies: Mapping[str, str]) -> str:
        """The id for the login form, which opens nothing."""
        return self._read(f"{self.cookie}{FORM}", cookies)

    def _read(self, name: str, cookies: Mapping[str, str]) -> str:
        session_id, _, signature = cookies.get(name, "").partition(".")
        return session_id if hmac.compare_digest(self._sign(name, session_id).encode(), signature.encode()) else ""

    def cookie_of(self, session_id: str) -> str:
        """The header `Set-Cookie`."""
        return self._cookie(self.cookie, session_id)

    def form_cookie_of(self, form_id: str) -> str:
        return self._cookie(f"{self.cookie}{FORM}", form_id)

    def login_cookie_of(self, login_id: str) -> str:
        """Of a login under way at a provider. It comes along when the provider sends the browser back: Lax."""
        return self._cookie(f"{self.cookie}{LOGIN}", login_id, site="Lax", more=f"; Max-Age={LOGIN_S}")

    def read_login_id(self, cookies: Mapping[str, str]) -> str:
        return self._read(f"{self.cookie}{LOGIN}", cookies)

    def login_secret(self, purpose: str, login_id: str) -> str:
        """What a login is known by: its state, its nonce, its verifier. They tell nothing of each other."""
        return self._sign(f"login {purpose}", login_id)

    def _cookie(self, name: str, session_id: str, site: str = "Strict", more: str = "") -> str:
        value = f"{session_id}.{self._sign(name, session_id)}" if session_id else ""
        return f"{name}={value}; Path=/{more}; HttpOnly; SameSite={site}{'; Secure' if self._is_secure else ''}"

    def no_cookie(self) -> str:
        return self._cookie(self.cookie, "", more="; Max-Age=0")

    def no_login_cookie(self) -> str:
        return self._cookie(f"{self.cookie}{LOGIN}", "", site="Lax", more="; Max-Age=0")

    def form_token(self, session_id: str) -> str:
        """What a form of this session sends along: no other site can know it."""
        return self._sign("form", session_id)

    def is_form_token(self, session_id: str, text: str) -> bool:
        return bool(session_id) and hmac.compare_digest(self.form_token(session_id).encode(), text.encode())

    def _sign(self, purpose: str, session_id: str) -> str:
        return hmac.new(self._key, f"{purpose}:{session_id}".encode(), hashlib.sha256).hexdigest()

    # -- sessions

    def find(self, session_id: str) -> Session | None:
        """The session, which counts as used; None: nobody is logged in under the id."""
        now_s = self._now_s()
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return None
            if now_s - session.use_s > UNUSED_S or now_s - session.begin_s > WHOLE_S:
                del self._sessions[session_id]
                return None
            session.use_s = now_s
            self._sessions.move_to_end(session_id)
            return session

    def begin(self, token: str, name: str, grant: Grant | None = None) -> str:
        """Starts a session under a new id, which nobody knew before the login."""
        session_id, now_s = self.new_id(), self._now_s()
        session = Session(token, name, now_s, now_s, grant, renew_time_s(now_s, grant))
        with self._lock:
            self._sessions[session_id] = session
            while len(self._sessions) > SESSIONS_MAX:
                self._sessions.popitem(last=False)
        return session_id

    def end(self, session_id: str) -> None:
        with self._lock:
            self._sessions.pop(session_id, None)


def renew_time_s(now_s: float, grant: Grant | None) -> float:
    """A minute before the token is over; of one that is short, when half of its time is over."""
    if grant is None or not grant.refresh:
        return math.inf
    return now_s + max(grant.valid_s - RENEW_BEFORE_S, grant.valid_s / 2)


class OwnerKey:
    """The key in the address that the command prints: it opens one session, then there is another."""

    def __init__(self) -> None:
        self._key = secrets.token_urlsafe(ID_BYTES)
        self._lock = threading.Lock()

    @property
    def text(self) -> str:
        return self._key

    def take(self, text: str) -> bool:
        with self._lock:
            is_right = hmac.compare_digest(self._key.encode(), text.encode())
            if is_right:
                self._key = secrets.token_urlsafe(ID_BYTES)
            return is_right
