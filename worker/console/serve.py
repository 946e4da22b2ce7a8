"""The process of the console: it listens, prints where, and ends when it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from metaservice.shared.addresses import is_local
from worker.base.errors import InputError
from worker.console.app import Console, build_app
from worker.console.entrance import Access
from worker.console.guard import local_hosts
from worker.console.live import LiveEvents
from worker.console.provider import CALLBACK, Provider, ProviderSettings, check_provider, is_safe
from worker.console.provider_login import ProviderLogin
from worker.console.sessions import OwnerKey, Sessions
from worker.web.callers import Callers
from worker.web.serving import (
    Listening,
    asks_who_calls,
    bind,
    check_listening,
    connect_by,
    open_certificate,
    run,
    url_of,
)

CLIENT: Final = "laketx-console"
EXAMPLE: Final = "127.0.0.1:8480"
RETRY_S: Final = 3.0  # a page says soon that the service is away
EVERY_ADDRESS: Final = ("0.0.0.0", "[::]")  # noqa: S104 - to tell them from one
STOP_S: Final = 1  # pages that listen for events would never end


@dataclass(frozen=True, slots=True)
class Served:
    """Where the console listens, and where rows are read."""

    listen: str
    warehouse: str
    tls_cert: str = ""
    tls_key: str = ""
    public_url: str = ""  # where people reach it; empty: where it listens
    provider: ProviderSettings | None = None  # where people log in; its redirect_uri is made here


def check_public(served: Served, *, has_tokens: bool) -> None:
    """Refuses an address for people, or a provider, that can't work."""
    url = served.public_url.rstrip("/")
    parts = urlsplit(url)
    if url and (not is_safe(url) or parts.path or parts.query or parts.fragment):
        raise InputError("CONSOLE_LISTEN", f"--public-url {url} is no https://host or https://host:port")
    if url and not has_tokens:
        raise InputError("CONSOLE_LISTEN", "--public-url needs a service that asks for tokens")
    if served.provider is None:
        return
    if not has_tokens:
        raise InputError("CONSOLE_OIDC", "the service asks for no tokens: start it with --oidc-issuer, too")
    if not url and served.listen.rpartition(":")[0] in EVERY_ADDRESS:
        raise InputError("CONSOLE_OIDC", "--public-url is missing: the provider sends people back there")
    check_provider(served.provider)


def serve(served: Served, server: str, folder: str, user: str, say: Callable[[str], None]) -> None:
    """Serves until a signal ends it. `say` is told the address once it listens, and each new address for the owner."""
    listening = Listening(served.listen, served.tls_cert, served.tls_key, stop_s=STOP_S)
    check_listening(listening, "CONSOLE_LISTEN", EXAMPLE)
    by_token = connect_by(server, folder, CLIENT, uses_own=False, principal=user, retry_budget_s=RETRY_S)
    is_exposed = not is_local(served.listen)
    has_tokens = not folder and asks_who_calls(by_token, must_answer=True)
    if is_exposed and not (has_tokens and served.tls_cert):
        missing = [] if served.tls_cert else ["TLS (--tls-cert, --tls-key)"]
        missing += [] if has_tokens else ["a service that asks for tokens"]
        raise InputError(
            "CONSOLE_LISTEN",
            f"--listen {served.listen} is reached from other machines: it needs {' and '.join(missing)}",
        )
    check_public(served, has_tokens=has_tokens)
    certificate = open_certificate(listening, "CONSOLE_LISTEN")
    bound = bind(served.listen, "CONSOLE_LISTEN")
    port, url = bound.getsockname()[1], served.public_url.rstrip("/") or url_of(listening, bound)
    callers = Callers(by_token, served.warehouse, now_s=time.monotonic, has_tokens=has_tokens)
    owner_key = None if has_tokens else OwnerKey()
    sessions = Sessions(time.monotonic, f"laketx_console_{port}", is_secure=url.startswith("https:"))
    provider = None
    if served.provider is not None:
        settings = replace(served.provider, redirect_uri=url + CALLBACK)
        provider = ProviderLogin(Provider(settings), sessions, time.monotonic)

    def say_address() -> None:
        if owner_key is None:
            say(f"the console is ready at {url}/")
        else:
            say(f"the console is ready at {url}/open?key={owner_key.text}")

    live = LiveEvents(by_token, callers)
    access = Access(sessions, callers, owner_key, folder or server, say_address, provider)
    hosts = [] if is_exposed else [*local_hosts(port), urlsplit(url).netloc.lower()]
    app = build_app(Console(access, live), hosts)
    say_address()
    if owner_key is not None:
        say("that address opens one session; after it was used, another one is printed")
    try:
        run(app, listening, bound, certificate)
    finally:
        live.close()
        callers.close()
