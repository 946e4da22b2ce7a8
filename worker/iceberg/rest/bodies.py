"""Bodies of requests: limits of size and time, and their JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.requests import Request

from worker.iceberg.rest.problems import RestError

BODY_BYTES_MAX: Final = 16 << 20
BODIES_BYTES_MAX: Final = 128 << 20  # of all requests at once
BODY_S: Final = 60.0
WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
VALUES_MAX: Final = 1_000_000  # of a body, by its commas and brackets
DEPTH_MAX: Final = 200
_SIGNS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)  # texts, and brackets outside
OPENING: Final = (b"[", b"{")
CLOSING: Final = (b"]", b"}")


class Bodies:
    """The bodies that are in memory at one time."""

    def __init__(self, body_s: float = BODY_S) -> None:
        self._body_s = body_s
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """The body of a request whose caller is known, for as long as it is answered."""
        body = bytearray()
        try:
            if request.method in WITH_BODY:
                await self._read(request, body)
            yield body
        finally:
            self._held -= len(body)

    async def _read(self, request: Request, body: bytearray) -> None:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > BODY_BYTES_MAX:
            raise _too_large()
        try:
            async with asyncio.timeout(self._body_s):
                async for part in request.stream():
                    body += part
                    self._held += len(part)
                    if len(body) > BODY_BYTES_MAX:
                        raise _too_large()
                    if self._held > BODIES_BYTES_MAX:
                        raise RestError(
                            503, "SlowDownException", "the catalog has too many large requests: send this one again"
                        )
        except TimeoutError as error:
            raise RestError(
                408, "RequestTimeoutException", f"the request was not whole after {self._body_s:.0f} seconds"
            ) from error


def _too_large() -> RestError:
    return RestError(413, "BadRequestException", f"a request has at most {BODY_BYTES_MAX} bytes")


def json_of(body: bytearray) -> Mapping[str, Any]:
    """Return the JSON object of a body."""
    values = sum(body.count(sign) for sign in (b",", b"[", b"{"))
    if values > VALUES_MAX:
        raise RestError(400, "BadRequestException", f"the request has {values} values, more than {VALUES_MAX}")
    if _is_deeper(body, DEPTH_MAX):
        raise RestError(400, "BadRequestException", f"the request is nested deeper than {DEPTH_MAX} levels")
    try:
        document = json.loads(body, parse_constant=_no_number)
    except ValueError as error:
        raise RestError(400, "BadRequestException", f"the request is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise RestError(400, "BadRequestException", "the request is no JSON object")
    return document


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _is_deeper(body: bytearray, most: int) -> bool:
    """Return whether brackets are nested deeper than `most`. This is checked before the JSON is parsed."""
    if sum(map(body.count, OPENING)) <= most:
        return False
    depth = 0
    for matched in _SIGNS.finditer(body):
        sign = matched[0]
        if sign in OPENING:
            depth += 1
            if depth > most:
                return True
        elif sign in CLOSING:
            depth -= 1
    return False
