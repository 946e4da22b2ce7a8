"""Who calls: each token has a client of its own, so MetaService decides about each call by its caller's rights.

MetaService names the caller before anything else of a request is looked at. A token that it refused costs no call for
some seconds, and pushes out nobody who is known.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

from metaservice.client import MetaClient, UnauthenticatedError
from worker.connection.lake_connection import Connection

CALLERS_MAX: Final = 200
TOKEN_CHARS_MAX: Final = 8_000  # gRPC passes on no more
BEARER: Final = "bearer "
KNOWN_S: Final = 300.0  # until a caller is asked for again
REFUSED_S: Final = 5.0
REFUSED_MAX: Final = 10_000
Connect = Callable[[str], MetaClient]  # by the caller's token; empty: none


class CallerRefusedError(Exception):
    """The caller is nobody that the service knows; the text says why."""


@dataclass(slots=True)
class _Caller:
    lake: Connection
    until_s: float


class Callers:
    """The connections of callers, the latest ones."""

    def __init__(
        self,
        connect: Connect,
        warehouse: str,
        secret: str = "",
        *,
        now_s: Callable[[], float],
        has_tokens: bool = True,
    ) -> None:
        """With a secret, callers show it instead of a token for MetaService; without `has_tokens` all are one caller.

        `now_s`: a clock that only goes forward.
        """
        self._connect = connect
        self._warehouse = warehouse
        self._secret = secret
        self._has_tokens = has_tokens and not secret
        self._now_s = now_s
        self._lakes: OrderedDict[str, _Caller] = OrderedDict()
        self._refused: TTLCache[bytes, str] = TTLCache(REFUSED_MAX, REFUSED_S, now_s)
        self._lock = threading.Lock()

    def recent(self, authorization: str) -> Connection | None:
        """The connection of a caller that MetaService identified recently; otherwise None. Makes no call."""
        token = self._token(authorization)
        with self._lock:
            if why := self._refused.get(_digest(token)):
                raise CallerRefusedError(why)
            caller = self._lakes.get(token)
            if caller is None or caller.until_s < self._now_s():
                return None
            self._lakes.move_to_end(token)
            return caller.lake

    def lake(self, authorization: str) -> Connection:
        """The connection of a caller, by its Authorization header. Calls MetaService for a caller that isn't recent."""
        lake = self.recent(authorization)
        return self._authenticate(self._token(authorization)) if lake is None else lake

    def _token(self, authorization: str) -> str:
        if len(authorization) > TOKEN_CHARS_MAX + len(BEARER):
            raise CallerRefusedError(f"a token has at most {TOKEN_CHARS_MAX} characters")
        token = authorization[len(BEARER) :].strip() if authorization.lower().startswith(BEARER) else ""
        if not (token.isascii() and token.isprintable()):
            raise CallerRefusedError("a token has printable ASCII characters")
        if self._secret and not hmac.compare_digest(token.encode(), self._secret.encode()):
            raise CallerRefusedError("show the server's token: Authorization: Bearer …")
        return token if self._has_tokens else ""

    def _authenticate(self, token: str) -> Connection:
        with self._lock:
            before = self._lakes.get(token)
        lake = Connection(self._connect(token), self._warehouse, None) if before is None else before.lake
        try:
            if self._has_tokens and not lake.client.whoami().identity_required and token:
                lake.close()  # then nobody is anybody
                return self.lake("")
        except UnauthenticatedError as error:
            self._note_refusal(token, str(error))
            lake.close()
            raise
        except BaseException:
            if before is None:
                lake.close()
            raise
        return self._keep(token, lake)

    def _keep(self, token: str, lake: Connection) -> Connection:
        with self._lock:
            before = self._lakes.pop(token, None)
            kept = lake if before is None else before.lake
            self._lakes[token] = _Caller(kept, self._now_s() + KNOWN_S)
            ended = self._lakes.popitem(last=False)[1].lake if len(self._lakes) > CALLERS_MAX else None
        for closing in (ended, lake if kept is not lake else None):
            if closing is not None:
                closing.close()
        return kept

    def _note_refusal(self, token: str, why: str) -> None:
        with self._lock:
            self._refused[_digest(token)] = why
            self._lakes.pop(token, None)

    def close(self) -> None:
        with self._lock:
            while self._lakes:
                self._lakes.popitem()[1].lake.close()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
