"""Tokens of an OpenID Connect provider: its keys are fetched, kept, and fetched again when it has new ones.

A token is a stranger's, and so is what it makes the service ask: what can't be read is that caller's refusal.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jwt

from metaservice.core.access import NAME, Identity
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.shared.foreign_bytes import ForeignUnusable, foreign, read_object
from metaservice.shared.outbound_requests import ask_json

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SKEW_S: Final = 60  # between the provider's clock and ours
KEEP_S: Final = 300.0  # keys, before they are fetched again
AGAIN_S: Final = 10.0  # at least this long between two fetches
FETCH_S: Final = 5.0  # for both of its documents together
WAITING_MAX: Final = 16  # callers who need a key that isn't there: each holds a thread
DOCUMENT_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 256
KEY_CHARS_MAX: Final = 4_096  # of a number in a key: some 24,000 bits
EXPIRY_S_MAX: Final = 253_402_300_799  # the end of the year 9999
PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class Provider:
    """The provider, and which claims say what."""

    issuer: str
    audience: str
    ca_file: str = ""
    name_claim: str = "sub"
    groups_claim: str = "groups"


@dataclass(frozen=True, slots=True)
class Keys:
    """What a provider signs with, by the key's id. `given`: its own words, which tell whether they changed."""

    given: Sequence[Any] = ()
    usable: dict[str, jwt.PyJWK] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)  # and why

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """The key of that id; the only key, if the token names none."""
        if key_id:
            return self.usable.get(key_id)
        return next(iter(self.usable.values())) if len(self.usable) == 1 else None


class Oidc:
    """Checks tokens. Threads share it. Keys are fetched by a thread of their own: only who needs a new one waits."""

    def __init__(self, provider: Provider, now_s: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._now_s = now_s
        self._keys = Keys()
        self.changes = 0  # of keys: a token that was checked before has to be checked again
        self._fetched_s = float("-inf")
        self._tried_s = float("-inf")
        self._failure = ""
        self._fetching: threading.Event | None = None
        self._waiting = threading.BoundedSemaphore(WAITING_MAX)
        self._lock = threading.Lock()

    def verify(self, token: str) -> Identity:
        """Raises MetaError for a token that proves nothing."""
        try:
            header, _ = _parts(token)
        except ForeignUnusable as error:
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", "the token can't be read") from error
        if header.get("alg") not in ALGORITHMS:  # none, and those with a shared secret
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", "the token's signature is of a kind that isn't taken")
        claims = self._claims(token, str(header.get("kid", "")))
        provider = self._provider
        name = claims.get(provider.name_claim)
        if not isinstance(name, str) or not NAME.match(name):
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", f"the token's claim {provider.name_claim} is no name")
        expires_s = int(claims["exp"])
        if expires_s > EXPIRY_S_MAX:
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", "the token's claim exp is no time")
        return Identity(name, _groups(claims.get(provider.groups_claim)), "oidc", expires_s * 1_000_000)

    def _claims(self, token: str, key_id: str) -> dict[str, Any]:
        try:
            key = self._key(key_id)
            try:
                return self._decoded(token, key)
            except jwt.InvalidSignatureError:
                newer = self._key(key_id, unlike=key)
                if newer is key:
                    raise
                return self._decoded(token, newer)
        except jwt.ExpiredSignatureError as error:
            raise MetaError(ErrorKind.DENIED, "TOKEN_EXPIRED") from error
        except jwt.PyJWTError as error:
            message = f"the token doesn't hold here: {type(error).__name__.removesuffix('Error')}"
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", message) from error

    def _decoded(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        provider = self._provider
        try:
            with foreign("the token"):
                return _checked(token, key, provider)
        except ForeignUnusable as error:
            if isinstance(error.__cause__, jwt.PyJWTError):
                raise error.__cause__ from None
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", "the token's claims can't be read") from error

    def _key(self, key_id: str, unlike: jwt.PyJWK | None = None) -> jwt.PyJWK:
        """Return the key of that id; another than `unlike`, if the provider has replaced it under the same id."""
        key = self._keys.find(key_id)
        if key is not None and key is not unlike:
            if self._now_s() - self._fetched_s > KEEP_S:
                self._begin_fetch()  # nobody waits for it
            return key
        self._await_fetch()
        key = self._keys.find(key_id)
        if key is not None:
            return key
        if self._fetched_s == float("-inf"):
            raise self._unreachable(self._failure)
        why = self._keys.unreadable.get(key_id)
        how = "with a key that its issuer doesn't have" if why is None else f"with a key that can't be read: {why}"
        raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", f"the token is signed {how}")

    def _unreachable(self, why: str) -> MetaError:
        message = f"the keys of {self._provider.issuer} can't be fetched: {why}"
        return MetaError(ErrorKind.UNAVAILABLE, "ISSUER_UNREACHABLE", message)

    # -- fetching ------------------------------------------------------------------------------------------------------

    def _await_fetch(self) -> None:
        """Until the fetch is over that is under way or due, or for as long as one may take."""
        under_way = self._begin_fetch()
        if under_way is None:
            return
        if not self._waiting.acquire(blocking=False):
            raise self._unreachable("too many calls wait for them")
        try:
            under_way.wait(FETCH_S)
        finally:
            self._waiting.release()

    def _begin_fetch(self) -> threading.Event | None:
        """What rings when the fetch is over; None: there was one a moment ago. A failed one leaves the keys."""
        with self._lock:
            if self._fetching is not None or self._now_s() - self._tried_s < AGAIN_S:
                return self._fetching
            self._tried_s = self._now_s()
            self._fetching = over = threading.Event()
        try:
            threading.Thread(target=self._fetch, args=(over,), name="oidc keys", daemon=True).start()
        except RuntimeError as error:  # the system gives no thread
            self._end_fetch(over, str(error))
        return over

    def _fetch(self, over: threading.Event) -> None:
        failure = ""
        try:
            with foreign("its keys"):
                keys = read_keys(self._provider)
                with self._lock:
                    self.changes += keys.given != self._keys.given
                    self._keys, self._fetched_s = keys, self._now_s()
        except ForeignUnusable as error:
            failure = str(error)
        finally:
            self._end_fetch(over, failure)

    def _end_fetch(self, over: threading.Event, failure: str) -> None:
        with self._lock:
            self._fetching, self._failure = None, failure
        over.set()


def read_keys(provider: Provider) -> Keys:
    """Fetch the provider's keys. Raises ForeignUnusable."""
    until_s = time.monotonic() + FETCH_S
    issuer = provider.issuer
    at = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    configuration = ask_json(at, FETCH_S, DOCUMENT_BYTES_MAX, ca_file=provider.ca_file)
    if configuration.get("issuer") != issuer:
        raise ForeignUnusable(f"it calls itself {configuration.get('issuer')!r}"[:200])
    left_s = until_s - time.monotonic()
    document = ask_json(str(configuration.get("jwks_uri")), left_s, DOCUMENT_BYTES_MAX, ca_file=provider.ca_file)
    return keys_of(document)


def keys_of(document: dict[str, Any]) -> Keys:
    """Return the keys of a JWK set; an unreadable key doesn't affect the others. Raises ForeignUnusable."""
    given = document.get("keys")
    if not isinstance(given, list) or len(given) > KEYS_MAX:
        raise ForeignUnusable(f"no list of at most {KEYS_MAX} keys")
    keys = Keys(given)
    for key in given:
        if not isinstance(key, dict) or not _is_for_signatures(key):
            continue
        key_id = str(key.get("kid", ""))
        try:
            with foreign("the key"):
                keys.usable[key_id] = _public_key(key)
        except ForeignUnusable as error:
            keys.unreadable[key_id] = str(error)
    return keys


def _public_key(document: dict[str, Any]) -> jwt.PyJWK:
    if any(len(str(value)) > KEY_CHARS_MAX for name, value in document.items() if name in ("n", "e", "x", "y", "d")):
        raise ForeignUnusable("it is too large")
    key = jwt.PyJWK(document)
    if not hasattr(key.key, "verify"):
        raise ForeignUnusable("it is no public key")
    return key


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the claims, within bounds and not yet believed. Raises ForeignUnusable."""
    parts = token.split(".")
    if len(parts) != PARTS:
        raise ForeignUnusable("it has no three parts")
    with foreign("it"):
        header, claims = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in parts[:2])
    return read_object(header), read_object(claims)


def _checked(token: str, key: jwt.PyJWK, provider: Provider) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(
        token,
        key,
        algorithms=list(ALGORITHMS),
        issuer=provider.issuer,
        audience=provider.audience,
        leeway=SKEW_S,
        options={"require": ["exp", "iss", "aud"]},
    )
    return claims


def _groups(claim: object) -> frozenset[str]:
    given: Sequence[object] = claim if isinstance(claim, list) else [claim]
    return frozenset(group for group in given if isinstance(group, str) and NAME.match(group))


def _is_for_signatures(key: dict[str, Any]) -> bool:
    return key.get("use", "sig") == "sig" and key.get("kty") in ("RSA", "EC", "OKP")
