"""The process of the REST catalog: it listens, prints its address, and ends its connections when it stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from metaservice.shared.addresses import is_local
from worker.base.errors import InputError
from worker.iceberg.rest.app import build_app
from worker.iceberg.rest.listing import Listings
from worker.iceberg.rest.plans import Plans
from worker.iceberg.rest.tables import Showing, Tables
from worker.web.callers import Callers
from worker.web.connections import TimedConnection
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

CLIENT: Final = "laketx-iceberg"
EXAMPLE: Final = "127.0.0.1:8181"


class CatalogConnection(TimedConnection):
    """A connection whose refusals have the form of Iceberg's specification."""

    full_type: ClassVar = b"application/json"
    full: ClassVar = (
        b'{"error": {"message": "the catalog has too many connections: try again later", '
        b'"type": "SlowDownException", "code": 503}}'
    )


@dataclass(frozen=True, slots=True)
class Served:
    """The catalog's address, its authentication, and the settings and keys that it sends to clients."""

    listen: str
    warehouse: str
    tls_cert: str = ""
    tls_key: str = ""
    token_file: str = ""
    insecure: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    showing: Showing = field(default_factory=Showing)


def serve(served: Served, server: str, folder: str, say: Callable[[str], None]) -> None:
    """Serve until a signal ends the process. `say` is called with the address once it listens, and with notes."""
    listening = Listening(served.listen, served.tls_cert, served.tls_key, CatalogConnection)
    check_listening(listening, "ICEBERG_LISTEN", EXAMPLE)
    secret = _secret(served.token_file)
    connect = connect_by(server, folder, CLIENT, uses_own=bool(secret))
    is_exposed = not is_local(served.listen) and not served.insecure
    asks = bool(secret) or asks_who_calls(connect, must_answer=is_exposed)
    if is_exposed and not (asks and served.tls_cert):
        missing = [] if served.tls_cert else ["TLS (--tls-cert, --tls-key)"]
        missing += [] if asks else ["a way to know who calls (--token-file, or a service that asks for tokens)"]
        raise InputError(
            "ICEBERG_LISTEN",
            f"--listen {served.listen} is reached from other machines: it needs {' and '.join(missing)}, or --insecure "
            "on a network whose every machine may read and write all tables",
        )
    certificate = open_certificate(listening, "ICEBERG_LISTEN")
    callers = Callers(connect, served.warehouse, secret, now_s=time.monotonic, has_tokens=not folder)
    tables, plans = Tables(served.showing, time.monotonic), Plans(served.showing.hold_s, time.monotonic)
    app = build_app(callers, tables, Listings(tables, time.monotonic), plans, served.config)
    bound = bind(served.listen, "ICEBERG_LISTEN")
    say(f"the catalog is ready at {url_of(listening, bound)}")
    if not asks:
        say("whoever reaches that address can read and write all tables; --token-file asks for a token")
    try:
        run(app, listening, bound, certificate)
    finally:
        callers.close()


def _secret(token_file: str) -> str:
    if not token_file:
        return ""
    try:
        token = Path(token_file).read_text().strip()
    except OSError as error:
        raise InputError("ICEBERG_LISTEN", f"--token-file {token_file} can't be read: {error.strerror}") from error
    if not token:
        raise InputError("ICEBERG_LISTEN", f"--token-file {token_file} is empty")
    return token
