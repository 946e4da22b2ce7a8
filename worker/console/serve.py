"""The process of the console: it listens, prints where, and ends when it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from metaservice.shared.addresses import is_local
from worker.base.errors import InputError
from worker.console.app import Access, Console, build_app
from worker.console.guard import local_hosts
from worker.console.live import LiveEvents
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
STOP_S: Final = 1  # pages that listen for events would never end


@dataclass(frozen=True, slots=True)
class Served:
    """Where the console listens, and where rows are read."""

    listen: str
    warehouse: str
    tls_cert: str = ""
    tls_key: str = ""


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
    certificate = open_certificate(listening, "CONSOLE_LISTEN")
    bound = bind(served.listen, "CONSOLE_LISTEN")
    url, port = url_of(listening, bound), bound.getsockname()[1]
    callers = Callers(by_token, served.warehouse, now_s=time.monotonic, has_tokens=has_tokens)
    owner_key = None if has_tokens else OwnerKey()
    sessions = Sessions(time.monotonic, f"laketx_console_{port}", is_secure=bool(served.tls_cert))

    def say_address() -> None:
        if owner_key is None:
            say(f"the console is ready at {url}/")
        else:
            say(f"the console is ready at {url}/open?key={owner_key.text}")

    live = LiveEvents(by_token, callers)
    access = Access(sessions, callers, owner_key, folder or server, say_address)
    app = build_app(Console(access, live), [] if is_exposed else local_hosts(port))
    say_address()
    if owner_key is not None:
        say("that address opens one session; after it was used, another one is printed")
    try:
        run(app, listening, bound, certificate)
    finally:
        live.close()
        callers.close()
