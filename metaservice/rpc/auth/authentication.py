"""Who calls: by a service token, a token of an OIDC provider, a client's certificate, or the owner's socket.

The identity is what these prove. A name that the client declares is no more than an alias beside it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Final, Protocol

import grpc

from metaservice.core.access import GROUP, NAME, USER, Identity, Proof, Role, Token
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.service.operate.access import digest_of, split_secret
from metaservice.shared.foreign_bytes import ForeignUnusable, foreign

AUTHORIZATION: Final = "authorization"
BEARER: Final = "bearer "
TOKEN_CHARS_MAX: Final = 16_384
KNOWN_MAX: Final = 10_000  # tokens whose signature was checked
KNOWN_US: Final = 300_000_000  # and how long that counts, if the provider's keys stay

Metadata = Mapping[str, str | bytes]


class Verifier(Protocol):
    """Checks the tokens of an OIDC provider."""

    @property
    def changes(self) -> int:
        """How often the provider's keys have changed: what was verified before doesn't count any more."""

    def verify(self, token: str) -> Identity:
        """Raises MetaError for a token that proves nothing."""


class Identities:
    """Tells callers apart. Threads share it."""

    def __init__(
        self,
        tokens: Callable[[], Mapping[str, Token]] | None,
        oidc: Verifier | None,
        *,
        by_certificate: bool,
        admins: frozenset[str],
        owner: str,
        now_us: Callable[[], int],
    ) -> None:
        """`tokens`: the service tokens, if they are taken. `admins`: user:NAME and group:NAME."""
        self._tokens = tokens
        self._oidc = oidc
        self._by_certificate = by_certificate
        self._admins = admins
        self._owner = Identity(owner, how="socket", role=Role.ADMIN)
        self._now_us = now_us
        self._identities: OrderedDict[bytes, Identity] = OrderedDict()  # by the digest of an OIDC token
        self._lock = Lock()

    @property
    def required(self) -> bool:
        return self._tokens is not None or self._oidc is not None or self._by_certificate

    def of_call(self, context: grpc.ServicerContext, metadata: Metadata) -> Identity:
        """Raises MetaError (DENIED) for a caller that proves nothing, whatever that makes of its proof."""
        try:
            with foreign("the proof"):
                return self._proven(context, metadata)
        except ForeignUnusable as error:
            if isinstance(error.__cause__, MetaError):
                raise error.__cause__ from None
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID", "what the caller shows can't be read") from error

    def _proven(self, context: grpc.ServicerContext, metadata: Metadata) -> Identity:
        if context.peer().startswith("unix:"):
            return self._owner  # the socket's rights let nobody else in
        token = bearer_of(metadata)
        if token is not None:
            return self.of_token(token)
        if self._by_certificate:
            name = _certified(context)
            if name:
                return self._with_role(Identity(name, how="certificate"))
        raise MetaError(ErrorKind.DENIED, "IDENTITY_MISSING")

    def of_token(self, token: str) -> Identity:
        if len(token) > TOKEN_CHARS_MAX:
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID")
        parts = split_secret(token)
        if parts is not None:
            return self._of_service_token(*parts)
        if self._oidc is None:
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID")
        digest = hashlib.sha256(token.encode()).digest()
        identity = self._identities.get(digest)
        if identity is None or not self._is_fresh(identity):
            proof = Proof(token, self._now_us(), self._oidc.changes)
            identity = replace(self._with_role(self._oidc.verify(token)), proof=proof)
            with self._lock:
                self._identities[digest] = identity
                while len(self._identities) > KNOWN_MAX:
                    self._identities.popitem(last=False)
        return self.still(identity)

    def peek(self, metadata: Metadata) -> str | None:
        """The principal of a token that needs no call to a provider; for quotas, before a call has a thread."""
        token = bearer_of(metadata)
        if token is None or len(token) > TOKEN_CHARS_MAX:
            return None
        try:
            if split_secret(token) is not None:
                return self.of_token(token).principal
        except MetaError:
            return None
        identity = self._identities.get(hashlib.sha256(token.encode()).digest())
        return identity.principal if identity is not None else None

    def still(self, who: Identity) -> Identity:
        """Raises MetaError if the identity has expired, its token was revoked, or its provider's key is gone."""
        if who.expires_us and who.expires_us <= self._now_us():
            raise MetaError(ErrorKind.DENIED, "TOKEN_EXPIRED")
        if who.token_id and self._tokens is not None and who.token_id not in self._tokens():
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID")
        if who.proof is not None and not self._is_fresh(who):
            self.of_token(who.proof.token)
        return who

    def _is_fresh(self, who: Identity) -> bool:
        """Whether the check of its token still counts."""
        proof = who.proof
        if proof is None or self._oidc is None:
            return True
        return proof.changes == self._oidc.changes and 0 <= self._now_us() - proof.checked_us < KNOWN_US

    def _of_service_token(self, token_id: str, secret: str) -> Identity:
        stored = self._tokens().get(token_id) if self._tokens is not None else None
        if stored is None or not hmac.compare_digest(stored.digest, digest_of(secret)):
            raise MetaError(ErrorKind.DENIED, "TOKEN_INVALID")
        who = Identity(stored.principal, frozenset(stored.groups), "token", stored.expires_us, token_id)
        return self.still(self._with_role(who))

    def _with_role(self, who: Identity) -> Identity:
        """Those whom the service's settings make admins."""
        if self._admins.isdisjoint(who.grantees):
            return who
        return replace(who, role=Role.ADMIN)


def bearer_of(metadata: Metadata) -> str | None:
    given = metadata.get(AUTHORIZATION)
    if not isinstance(given, str) or not given.lower().startswith(BEARER):
        return None
    return given[len(BEARER) :].strip()


def _certified(context: grpc.ServicerContext) -> str:
    """Return the name in a client's certificate, which TLS has checked: its first DNS or URI name, or common name."""
    properties: Mapping[str, Iterable[bytes]] = context.auth_context()  # type: ignore[assignment]  # its stub is wrong
    if b"ssl" not in properties.get("transport_security_type", ()):
        return ""
    for field in ("x509_subject_alternative_name", "x509_common_name"):
        for raw in properties.get(field, ()):
            name = bytes(raw).decode("utf-8", "replace")
            if NAME.match(name):
                return str(name)
    return ""


def admins_named(texts: str) -> frozenset[str]:
    """Return the grantees in a text such as `alice,group:platform`."""
    names = [text.strip() for text in texts.split(",") if text.strip()]
    return frozenset(name if name.startswith((USER, GROUP)) else f"{USER}{name}" for name in names)
