"""What every answer and every request must be, whatever the page: headers, the host, the size and origin of forms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FORM_BYTES_MAX: Final = 64 << 10
FIELDS_MAX: Final = 50
ASSET_S: Final = 86_400  # the address of an asset changes with its content
HEADERS: Final = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class FormError(Exception):
    """A form that is refused; the text says why."""


class Guard:
    """Refuses requests for other hosts, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        """`hosts`: values of the header Host that are served; none: all, for a server with a name of its own."""
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                is_asset = scope["path"].startswith("/static/") and message["status"] == 200
                headers["cache-control"] = f"public, max-age={ASSET_S}" if is_asset else "no-store"
            await send(message)

        host = Headers(scope=scope).get("host", "").lower()
        if self._hosts and host not in self._hosts:  # another site's name that points here (DNS rebinding)
            refusal = PlainTextResponse("This console answers only at the address that it printed.\n", 421)
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def local_hosts(port: int) -> list[str]:
    """The values of Host by which a browser on this machine reaches a port of it."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return [f"{name}:{port}" for name in names] + (list(names) if port in (80, 443) else [])


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a form that a page of this server sent."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise FormError("the form was sent by another site")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > FORM_BYTES_MAX:
            raise FormError(f"a form has at most {FORM_BYTES_MAX} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError as error:
        raise FormError("the form can't be read") from error


def local_path(text: str) -> str:
    """A path of this server to go on to; anything else becomes the first page."""
    if not (text.isascii() and text.isprintable()) or "\\" in text:  # browsers read such letters their own way
        return "/"
    parts = urlsplit(text)
    is_local = text.startswith("/") and not text.startswith("//") and not (parts.scheme or parts.netloc)
    return text if is_local else "/"
