"""Tokens of an OpenID Connect provider: its keys are fetched, kept, and fetched again when it has new ones."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt

from metaservice.core.access import NAME, Identity
from metaservice.core.errors import ErrorKind, MetaError

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SKEW_S: Final = 60  # between the provider's clock and ours
KEEP_S: Final = 600.0  # keys, before they are fetched again
AGAIN_S: Final = 10.0  # at least this long between two fetches
FETCH_S: Final = 5.0
DOCUMENT_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Provider:
    """The provider, and which claims say what."""

    issuer: str
    audience: str
    ca_file: str = ""
    name_claim: str = "sub"
    groups_claim: str = "groups"


class Oidc:
    """Checks tokens. Threads share it; one at a time asks the provider."""

    def __init__(self, provider: Provider, now_s: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._now_s = now_s
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_s = float("-inf")
        self._tried_s = float("-inf")
        self._said = ""
        self._lock = threading.Lock()

    def verify(self, token: str) -> Identity:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID") from error
        if header.get("alg") not in ALGORITHMS:  # none, and those with a shared secret
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", "the token's signature is of a kind that isn't taken")
        claims = self._claims(token, str(header.get("kid", "")))
        provider = self._provider
        name = claims.get(provider.name_claim)
        if not isinstance(name, str) or not NAME.match(name):
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", f"the token's claim {provider.name_claim} is no name")
        return Identity(name, _groups(claims.get(provider.groups_claim)), "oidc", int(claims["exp"]) * 1_000_000)

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
            said = f"the token doesn't hold here: {type(error).__name__.removesuffix('Error')}"
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", said) from error

    def _decoded(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        provider = self._provider
        found: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            issuer=provider.issuer,
            audience=provider.audience,
            leeway=SKEW_S,
            options={"require": ["exp", "iss", "aud"]},
        )
        return found

    def _key(self, key_id: str, unlike: jwt.PyJWK | None = None) -> jwt.PyJWK:
        """The key of that id; the only key, if the token names none. Providers may put another under the same id."""
        with self._lock:
            known = self._find(key_id)
            if known is None or known is unlike or self._now_s() - self._fetched_s > KEEP_S:
                self._fetch()
                known = self._find(key_id)
            if known is not None:
                return known
            if not self._keys:
                said = f"the keys of {self._provider.issuer} can't be fetched: {self._said}"
                raise MetaError(ErrorKind.UNAVAILABLE, "ISSUER_UNREACHABLE", said)
            raise MetaError(
                ErrorKind.DENIED, "TOKEN_INVALID", "the token is signed with a key that its issuer doesn't have"
            )

    def _find(self, key_id: str) -> jwt.PyJWK | None:
        if key_id:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    def _fetch(self) -> None:
        """A provider that can't be reached leaves the keys as they are."""
        if self._now_s() - self._tried_s < AGAIN_S:
            return
        self._tried_s = self._now_s()
        try:
            issuer = self._provider.issuer
            found = self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != issuer:
                raise ValueError(f"it calls itself {found.get('issuer')!r}")
            keys = self._get(str(found["jwks_uri"]))["keys"]
            self._keys = {str(one.get("kid", "")): jwt.PyJWK(one) for one in keys if _is_for_signatures(one)}
            self._fetched_s = self._now_s()
        except (OSError, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
            self._said = str(error)

    def _get(self, url: str) -> dict[str, Any]:
        if not url.startswith(("https://", "http://")):
            raise ValueError(f"{url} is no address of the web")
        trusted = ssl.create_default_context(cafile=self._provider.ca_file or None)
        with urllib.request.urlopen(url, timeout=FETCH_S, context=trusted if url.startswith("https") else None) as said:  # noqa: S310 - looked at above
            document = json.loads(said.read(DOCUMENT_BYTES_MAX))
        if not isinstance(document, dict):
            raise TypeError(f"{url} answers no JSON object")
        return document


def _groups(claim: object) -> frozenset[str]:
    given: Sequence[object] = claim if isinstance(claim, list) else [claim]
    return frozenset(one for one in given if isinstance(one, str) and NAME.match(one))


def _is_for_signatures(key: dict[str, Any]) -> bool:
    return key.get("use", "sig") == "sig" and key.get("kty") in ("RSA", "EC", "OKP")
