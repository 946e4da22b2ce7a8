"""Refusals in the log: a few per reason and principal, and the number left out."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Final

from cachetools import LRUCache

from metaservice.core.errors import MetaError
from metaservice.shared.log import REFUSED

WINDOW_S: Final = 10.0
LINES_PER_WINDOW: Final = 20
KINDS_MAX: Final = 1_000
log = logging.getLogger("laketx.rpc")


class _Seen:
    __slots__ = ("lines", "since_s", "suppressed")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.lines = 0
        self.suppressed = 0


class RefusalLog:
    """The log of refusals, limited so that many of them don't fill the disk. Any thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._seen: LRUCache[tuple[str, str], _Seen] = LRUCache(KINDS_MAX)

    def say(self, error: MetaError, method: str, request_id: str, principal: str) -> None:
        suppressed = self._next((error.reason, principal))
        if suppressed is None:
            return
        document = {"event": REFUSED, "method": method, "request_id": request_id, "reason": error.reason, **error.facts}
        if principal:
            document["principal"] = principal
        if suppressed:
            document["suppressed"] = str(suppressed)
        log.info(json.dumps(document))

    def _next(self, kind: tuple[str, str]) -> int | None:
        """The number of similar refusals left out before; None: leave this one out too."""
        now_s = time.monotonic()
        with self._mutex:
            seen = self._seen.get(kind)
            suppressed = 0
            if seen is None or now_s - seen.since_s > WINDOW_S:
                suppressed = seen.suppressed if seen is not None else 0
                seen = self._seen[kind] = _Seen(now_s)
            if seen.lines >= LINES_PER_WINDOW:
                seen.suppressed += 1
                return None
            seen.lines += 1
            return suppressed
