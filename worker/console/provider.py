"""The OpenID Connect provider that people log in with: what it offers, and the tokens that it gives for a code.

Its answers are bytes from outside: bounded in size, depth and time, and whatever is wrong with one is a refusal in
words. The signature of an ID token is not checked here: the token comes from the provider itself over TLS, which the
specification takes in its place (OpenID Connect Core, 3.1.3.7), or it is what the service is shown, which checks it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit

from metaservice.shared.addresses import is_local
from metaservice.shared.foreign_bytes import ForeignUnusable, foreign, read_object
from metaservice.shared.outbound_requests import ask_json, post_form
from worker.base.errors import InputError

CALLBACK: Final = "/login/callback"
ASK_S: Final = 5.0  # for each of its answers
KEEP_S: Final = 300.0  # what it offers, before that is asked again
SKEW_S: Final = 60.0  # between its clock and ours
ANSWER_BYTES_MAX: Final = 1 << 18
URL_CHARS_MAX: Final = 2_000
CODE_CHARS_MAX: Final = 4_000
TOKEN_CHARS_MAX: Final = 16_000
VALID_S_MAX: Final = 86_400.0
REFUSED_STATUS: Final = (400, 401, 403)
SUBJECT_CHARS_MAX: Final = 1_000
ERROR_CODE: Final = re.compile(r"[a-z_]{1,60}")
JWT: Final = re.compile(r"[\w-]+\.([\w-]+)\.[\w-]*", re.ASCII)
TEXT: Final = re.compile(r"[!-~]+")  # ASCII without spaces


class ProviderError(Exception):
    """The provider refuses, or what it answers can't be used; the text says why, for people."""


class ProviderAwayError(ProviderError):
    """The provider doesn't answer, or not as a provider: later it may."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """How the console is registered with a provider. `bearer`: which of its tokens the service is shown."""

    issuer: str
    client_id: str
    redirect_uri: str = ""
    secret_file: str = ""
    scopes: str = "openid"
    bearer: str = "id"
    ca_file: str = ""

    @property
    def host(self) -> str:
        return urlsplit(self.issuer).netloc

    @property
    def home(self) -> str:
        """The console's own address."""
        return self.redirect_uri.removesuffix(CALLBACK)

    def secret(self) -> str:
        """As the file has it now; empty: the client has none."""
        return Path(self.secret_file).read_text(encoding="utf-8").strip() if self.secret_file else ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What the provider's discovery document says."""

    authorization: str
    token: str
    end_session: str = ""
    names_itself: bool = False  # in the address that it sends people back to (RFC 9207)
    secret_in_form: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """What the provider gave for a login: the token for the service, and how to get the next one."""

    bearer: str
    refresh: str
    subject: str
    valid_s: float  # from when it was given


def check_provider(settings: ProviderSettings) -> None:
    """Refuses settings that can't work, before anybody logs in."""
    if not is_safe(settings.issuer):
        raise InputError("CONSOLE_OIDC", f"--oidc-issuer {settings.issuer} is no https address")
    if "openid" not in settings.scopes.split():
        raise InputError("CONSOLE_OIDC", "--oidc-scopes must contain openid")
    try:
        settings.secret()
    except (OSError, ValueError) as error:
        raise InputError("CONSOLE_OIDC", f"--oidc-client-secret-file {settings.secret_file}: {error}") from error


class Provider:
    """Asks the provider. Threads can share it."""

    def __init__(
        self,
        settings: ProviderSettings,
        now_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._now_s, self._wall_s = now_s, wall_s
        self._offer: Offer | None = None
        self._offer_s = 0.0
        self._lock = threading.Lock()

    def offer(self) -> Offer:
        """Raises ProviderError."""
        with self._lock:
            if self._offer is not None and self._now_s() - self._offer_s < KEEP_S:
                return self._offer
        url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            offer = offer_of(ask_json(url, ASK_S, ANSWER_BYTES_MAX, ca_file=self.settings.ca_file), self.settings)
        except ForeignUnusable as error:
            raise ProviderAwayError(f"{self.settings.host} can't be used for logins: {error}") from error
        with self._lock:
            self._offer, self._offer_s = offer, self._now_s()
        return offer

    def login_url(self, state: str, nonce: str, verifier: str) -> str:
        """Where somebody logs in. Raises ProviderError."""
        fields = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": self.settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        return _with_query(self.offer().authorization, fields)

    def logout_url(self) -> str:
        """Where somebody ends the login of the provider, too; empty: it doesn't offer that. Raises ProviderError.

        The address has no ID token as a hint: it may be what the service takes, and addresses are kept in histories.
        """
        end_session = self.offer().end_session
        fields = {"client_id": self.settings.client_id, "post_logout_redirect_uri": f"{self.settings.home}/login"}
        return _with_query(end_session, fields) if end_session else ""

    def redeem(self, code: str, verifier: str, nonce: str) -> Grant:
        """The tokens for a code. Raises ProviderError."""
        fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.settings.redirect_uri}
        answer = self._post(fields | {"code_verifier": verifier})
        return self._grant(answer, lambda claims: check_nonce(claims, nonce))

    def renew(self, grant: Grant) -> Grant:
        """The next tokens. Raises ProviderError."""
        answer = self._post({"grant_type": "refresh_token", "refresh_token": grant.refresh})
        if self.settings.bearer == "access" and "id_token" not in answer:
            return self._accessible(answer, grant.subject, grant.refresh)
        renewed = self._grant(answer, lambda _: None, grant.refresh)
        if renewed.subject != grant.subject:
            raise ProviderError(f"{self.settings.host} gave a token of somebody else")
        return renewed

    def _grant(self, answer: Mapping[str, Any], check: Callable[[Mapping[str, Any]], None], refresh: str = "") -> Grant:
        with self._readable():
            claims = claims_of(answer.get("id_token"))
            check_claims(claims, self.settings, self._wall_s())
            check(claims)
            subject = claims.get("sub")
            if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_CHARS_MAX:
                raise ForeignUnusable("the ID token names nobody")
            if self.settings.bearer == "id":
                valid_s = max(float(claims["exp"]) - self._wall_s(), 0.0)
                return Grant(answer["id_token"], _refresh_of(answer, refresh), subject, min(valid_s, VALID_S_MAX))
        return self._accessible(answer, subject, refresh)

    def _accessible(self, answer: Mapping[str, Any], subject: str, refresh: str) -> Grant:
        with self._readable():
            token = _text(answer.get("access_token"), "the access token", TOKEN_CHARS_MAX)
            given = answer.get("expires_in", VALID_S_MAX)
            valid_s = min(max(float(given), 0.0), VALID_S_MAX)
            return Grant(token, _refresh_of(answer, refresh), subject, valid_s)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            with foreign("its answer"):
                yield
        except ForeignUnusable as error:
            raise ProviderError(f"{self.settings.host} gave tokens that can't be used: {error}") from error

    def _post(self, fields: Mapping[str, str]) -> dict[str, Any]:
        offer, settings = self.offer(), self.settings
        headers, form = {}, dict(fields)
        try:
            secret = settings.secret()
        except (OSError, ValueError) as error:
            raise ProviderAwayError("the file of the client's secret can't be read") from error
        if secret and not offer.secret_in_form:
            pair = f"{quote(settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": settings.client_id} | ({"client_secret": secret} if secret else {})
        try:
            return post_form(offer.token, form, ASK_S, ANSWER_BYTES_MAX, headers=headers, ca_file=settings.ca_file)
        except ForeignUnusable as error:
            cause = error.__cause__
            if isinstance(cause, HTTPError) and cause.code in REFUSED_STATUS:
                raise ProviderError(f"{settings.host} refuses: {refusal_of(cause)}") from error
            raise ProviderAwayError(f"{settings.host} gave no tokens: {error}") from error


# -- what it says ------------------------------------------------------------------------------------------------------


def challenge_of(verifier: str) -> str:
    """PKCE's S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def offer_of(document: Mapping[str, Any], settings: ProviderSettings) -> Offer:
    """Raises ForeignUnusable."""
    if document.get("issuer") != settings.issuer:
        raise ForeignUnusable(f"it calls itself {document.get('issuer')!r}"[:200])
    methods = document.get("code_challenge_methods_supported", ["S256"])
    if not isinstance(methods, list) or "S256" not in methods:
        raise ForeignUnusable("it doesn't offer PKCE with S256")
    authorization, token = _endpoint(document, "authorization_endpoint"), _endpoint(document, "token_endpoint")
    if settings.bearer != "id" and not token.startswith("https:"):
        raise ForeignUnusable("its token_endpoint is no https address: nobody would check the ID token's signature")
    end_session = _endpoint(document, "end_session_endpoint") if document.get("end_session_endpoint") else ""
    ways = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    in_form = isinstance(ways, list) and "client_secret_basic" not in ways and "client_secret_post" in ways
    names_itself = document.get("authorization_response_iss_parameter_supported") is True
    return Offer(authorization, token, end_session, names_itself, in_form)


def _endpoint(document: Mapping[str, Any], name: str) -> str:
    url = _text(document.get(name), f"its {name}", URL_CHARS_MAX)
    if not is_safe(url) or "#" in url:
        raise ForeignUnusable(f"its {name} is no https address")
    return url


def claims_of(id_token: object) -> dict[str, Any]:
    """The claims of a JWT that comes from the provider itself. Raises ForeignUnusable."""
    match = JWT.fullmatch(_text(id_token, "the ID token", TOKEN_CHARS_MAX))
    if match is None:
        raise ForeignUnusable("the ID token is no JWT")
    with foreign("the ID token"):
        return read_object(base64.urlsafe_b64decode(match[1] + "=" * (-len(match[1]) % 4)))


def check_claims(claims: Mapping[str, Any], settings: ProviderSettings, wall_s: float) -> None:
    """Whether an ID token is of this provider, for this client, and not over. Raises ForeignUnusable."""
    if claims.get("iss") != settings.issuer:
        raise ForeignUnusable("the ID token is of another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    party = claims.get("azp", settings.client_id if len(audiences) == 1 else None)
    if settings.client_id not in audiences or party != settings.client_id:
        raise ForeignUnusable("the ID token is for another client")
    expiry = claims.get("exp")
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or expiry + SKEW_S < wall_s:
        raise ForeignUnusable("the ID token is over")


def check_nonce(claims: Mapping[str, Any], nonce: str) -> None:
    """Whether an ID token was made for this login. Raises ForeignUnusable."""
    if claims.get("nonce") != nonce:
        raise ForeignUnusable("the ID token is of another login")


def refusal_of(answer: HTTPError) -> str:
    """The word of an error of OAuth, such as invalid_grant; else the status."""
    with suppress(ForeignUnusable), foreign("the refusal"):
        code = error_code(str(read_object(answer.read(ANSWER_BYTES_MAX)).get("error")))
        if code:
            return code
    return f"HTTP {answer.code}"


def error_code(text: str) -> str:
    """A word that may be shown; empty: it is none."""
    return text if ERROR_CODE.fullmatch(text) else ""


def _refresh_of(answer: Mapping[str, Any], before: str) -> str:
    given = answer.get("refresh_token")
    return before if given is None else _text(given, "the refresh token", TOKEN_CHARS_MAX)


def _text(value: object, what: str, most: int = URL_CHARS_MAX) -> str:
    if not isinstance(value, str) or not TEXT.fullmatch(value) or len(value) > most:
        raise ForeignUnusable(f"{what} is missing, or no text of at most {most} ASCII characters")
    return value


def is_safe(url: str) -> bool:
    """Whether others can't read what is sent there: an https address, or an http one of this machine."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and parts.username is None:
            return parts.scheme == "https" or (parts.scheme == "http" and is_local(f"{parts.hostname}:{parts.port}"))
    return False


def _with_query(url: str, fields: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"
