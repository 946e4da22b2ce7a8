"""Who calls: each token has a client of its own, so MetaService decides about each call by its caller's rights."""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from iceberg.rest.problems import RestError
from metaservice.client import MetaClient
from worker.base.connection import Connection

CALLERS_MAX: Final = 200
BEARER: Final = "bearer "
Connect = Callable[[str], MetaClient]  # by the caller's token; empty: none


class Callers:
    """The connections of callers, the latest ones."""

    def __init__(self, connect: Connect, warehouse: str, secret: str = "") -> None:
        """With a secret, callers show it instead of a token for MetaService."""
        self._connect = connect
        self._warehouse = warehouse
        self._secret = secret
        self._lakes: OrderedDict[str, Connection] = OrderedDict()
        self._lock = threading.Lock()

    def lake(self, authorization: str) -> Connection:
        """The connection of a caller, by the header that tells who it is."""
        token = authorization[len(BEARER) :].strip() if authorization.lower().startswith(BEARER) else ""
        if self._secret:
            if not hmac.compare_digest(token.encode(), self._secret.encode()):
                raise RestError(401, "NotAuthorizedException", "show the server's token: Authorization: Bearer …")
            token = ""
        with self._lock:
            found = self._lakes.pop(token, None)
            if found is None:
                found = Connection(self._connect(token), self._warehouse, None)
            self._lakes[token] = found
            ended = self._lakes.popitem(last=False)[1] if len(self._lakes) > CALLERS_MAX else None
        if ended is not None:
            ended.close()
        return found

    def close(self) -> None:
        with self._lock:
            while self._lakes:
                self._lakes.popitem()[1].close()
