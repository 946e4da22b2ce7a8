"""Grants and service tokens: the use cases. Runs on the decider's thread.

A token is `lktx_ID_SECRET`. The store has the SHA-256 of the secret, which is 256 random bits: nothing to guess.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from metaservice.core import limits
from metaservice.core.access import Grant, Place, Token
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.access import encode_grant, encode_token

PREFIX: Final = "lktx"


def secret_text(token_id: str, secret: str) -> str:
    """What a client sends."""
    return f"{PREFIX}_{token_id}_{secret}"


def split_secret(text: str) -> tuple[str, str] | None:
    """The id and the secret; None if it is no service token."""
    prefix, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    return (token_id, secret) if prefix == PREFIX and token_id and secret else None


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


class Access:
    """The use cases of grants and tokens."""

    def __init__(self, decider: Decider, clocks: Clocks, check_room: Callable[[], None]) -> None:
        self._decider = decider
        self._clocks = clocks
        self._check_room = check_room

    @property
    def _state(self) -> State:
        return self._decider.state

    def grant(self, definition: Grant) -> Grant:
        state = self._state
        self.check_place(definition.place)
        present = state.access.grants.find(definition.place, definition.grantee)
        if present is not None and present.role == definition.role:
            return present
        if present is None:
            self.check_new_grant()
        else:
            self._check_room()
        made = Grant(
            definition.place, definition.grantee, definition.role, definition.by, max(self._clocks.now_us(), 0)
        )
        state.batch.put(keys.grant_key(made.place.key, made.grantee), encode_grant(made))
        state.access.grants.put(made)
        return made

    def check_new_grant(self) -> None:
        """Refuses one more than there may be."""
        if len(self._state.access.grants) >= limits.GRANTS_MAX:
            raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_GRANTS", most=limits.GRANTS_MAX)
        self._check_room()

    def revoke(self, place: Place, grantee: str) -> bool:
        """Returns whether there was such a grant."""
        if not self._state.access.grants.drop(place, grantee):
            return False
        self._state.batch.delete(keys.grant_key(place.key, grantee))
        return True

    def check_place(self, place: Place) -> None:
        """Refuses a place that isn't there."""
        if place.table_id:
            self._state.get_table(place.table_id)
        elif place.namespace and self._state.namespaces.find(place.namespace) is None:
            raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=place.namespace)

    def create_token(self, definition: Token, valid_ms: int) -> Token:
        self._drop_expired()
        if len(self._state.access.tokens) >= limits.TOKENS_MAX:
            raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_TOKENS", most=limits.TOKENS_MAX)
        self._check_room()
        now_us = max(self._clocks.now_us(), 0)
        expires_us = now_us + valid_ms * 1_000 if valid_ms else 0
        made = Token(
            definition.token_id,
            definition.digest,
            definition.principal,
            definition.groups,
            definition.by,
            now_us,
            expires_us,
        )
        self._state.batch.put(keys.token_key(made.token_id), encode_token(made))
        self._state.access.tokens[made.token_id] = made
        return made

    def revoke_token(self, token_id: str) -> bool:
        """Returns whether there was such a token."""
        if self._state.access.tokens.pop(token_id, None) is None:
            return False
        self._state.batch.delete(keys.token_key(token_id))
        return True

    def _drop_expired(self) -> None:
        now_us = self._clocks.now_us()
        for token in list(self._state.access.tokens.values()):
            if token.expires_us and token.expires_us < now_us:
                self.revoke_token(token.token_id)
