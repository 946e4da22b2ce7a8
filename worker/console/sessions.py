"""Who is logged in: the browser has a signed id, the token of the service stays in this process."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

SESSIONS_MAX: Final = 200  # the least recently used one ends
UNUSED_S: Final = 8 * 3_600.0
WHOLE_S: Final = 24 * 3_600.0
ID_BYTES: Final = 32
FORM: Final = "_form"  # the end of the name of the cookie for the login form


@dataclass(slots=True)
class Session:
    """Somebody who logged in. `token` is what the service is shown; empty: the owner of this process."""

    token: str
    name: str
    begin_s: float
    use_s: float


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

    def _cookie(self, name: str, session_id: str) -> str:
        value = f"{session_id}.{self._sign(name, session_id)}"
        return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if self._is_secure else ''}"

    def no_cookie(self) -> str:
        return f"{self.cookie}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict{'; Secure' if self._is_secure else ''}"

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

    def begin(self, token: str, name: str) -> str:
        """Starts a session under a new id, which nobody knew before the login."""
        session_id, now_s = self.new_id(), self._now_s()
        with self._lock:
            self._sessions[session_id] = Session(token, name, now_s, now_s)
            while len(self._sessions) > SESSIONS_MAX:
                self._sessions.popitem(last=False)
        return session_id

    def end(self, session_id: str) -> None:
        with self._lock:
            self._sessions.pop(session_id, None)


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
