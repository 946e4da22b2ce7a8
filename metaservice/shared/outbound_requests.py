"""Questions to servers that somebody else runs: one deadline for the whole of each, and a bound of its answer.

The deadline counts for connecting, TLS, sending, and every byte of the answer: a server that drips is as late as one
that hangs. A name's addresses are asked of the system, which has limits of its own.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from metaservice.shared.foreign_bytes import ForeignUnusable, foreign, read_object

SCHEMES: Final = ("https://", "http://")


class Deadline:
    """When an answer has to be there."""

    def __init__(self, within_s: float) -> None:
        self._at_s = time.monotonic() + within_s

    def left_s(self) -> float:
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer takes too long")
        return left_s

    def connect(self, address: tuple[str, int], *_: object) -> socket.socket:
        """To the first of its addresses that takes the connection."""
        failed: OSError = ConnectionError(f"{address[0]} has no address")
        for family, kind, protocol, _name, at in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(self.left_s())
                made.connect(at)
            except OSError as error:
                made.close()
                failed = error
            else:
                return made
        raise failed


def ask_json(
    url: str,
    within_s: float,
    bytes_max: int,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    ca_file: str = "",
) -> dict[str, Any]:
    """The JSON object that a server answers to a GET, or with a body of JSON to a POST. Raises ForeignUnusable.

    With headers of the caller's redirects are refused: a header may carry secrets.
    """
    more = [urllib.request.HTTPRedirectHandler()] if headers is None else []
    sent = {**({"content-type": "application/json"} if body else {}), **(headers or {})}
    return _ask(url, within_s, bytes_max, body, sent, ca_file, *more)


def post_form(
    url: str,
    fields: Mapping[str, str],
    within_s: float,
    bytes_max: int,
    *,
    headers: Mapping[str, str],
    ca_file: str = "",
) -> dict[str, Any]:
    """The JSON object that a server answers to a form. Redirects are refused: a form may carry secrets.

    Raises ForeignUnusable; its cause is an HTTPError if the server refused the form.
    """
    return _ask(
        url, within_s, bytes_max, urlencode(fields).encode(), {"accept": "application/json", **headers}, ca_file
    )


def _ask(
    url: str,
    within_s: float,
    bytes_max: int,
    body: bytes | None,
    headers: Mapping[str, str],
    ca_file: str,
    *more: urllib.request.BaseHandler,
) -> dict[str, Any]:
    if not url.startswith(SCHEMES):
        raise ForeignUnusable(f"{url[:200]} is no address of the web")
    with foreign(url[:200]):
        request = urllib.request.Request(url, body, dict(headers))  # noqa: S310 - looked at above
        with _opener(Deadline(within_s), ca_file, more).open(request) as answer:
            return read_object(answer.read(bytes_max + 1), bytes_max)


def _opener(until: Deadline, ca_file: str, more: Iterable[urllib.request.BaseHandler]) -> urllib.request.OpenerDirector:
    """urllib's, with its proxies, but for nothing except the web."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        _Web(until, ca_file),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        *more,
    ):
        opener.add_handler(handler)
    return opener


class _Web(urllib.request.AbstractHTTPHandler):
    """Opens http and https with a deadline."""

    def __init__(self, until: Deadline, ca_file: str) -> None:
        super().__init__()
        self._until = until
        self._ca_file = ca_file

    def http_open(self, request: urllib.request.Request) -> Any:
        return self._open(http.client.HTTPConnection, request)

    def https_open(self, request: urllib.request.Request) -> Any:
        return self._open(
            http.client.HTTPSConnection, request, context=ssl.create_default_context(cafile=self._ca_file or None)
        )

    def _open(self, kind: type[http.client.HTTPConnection], request: urllib.request.Request, **options: Any) -> Any:
        def connection(host: str, **more: Any) -> http.client.HTTPConnection:
            made = kind(host, **{**more, "timeout": None})  # the deadline counts
            setattr(made, "_create_connection", self._until.connect)  # noqa: B010 - its own, and no part of its type
            setattr(made, "response_class", partial(_Response, self._until))  # noqa: B010 - likewise
            return made

        connecting: Any = connection
        return self.do_open(connecting, request, **options)

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_


class _Response(http.client.HTTPResponse):
    def __init__(self, until: Deadline, sock: socket.socket, *given: Any, **named: Any) -> None:
        paced: Any = _Paced(until, sock)
        super().__init__(paced, *given, **named)


class _Paced:
    """A socket whose bytes come before the deadline."""

    def __init__(self, until: Deadline, sock: socket.socket) -> None:
        self._until = until
        self._sock = sock

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Bytes(self._until, self._sock))


class _Bytes(io.RawIOBase):
    def __init__(self, until: Deadline, sock: socket.socket) -> None:
        super().__init__()
        self._until = until
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._until.left_s())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
