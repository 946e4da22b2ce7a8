"""The process of the REST catalog: it listens, says where, and ends its connections when it stops."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import uvicorn

from metaservice.client import Credentials, LakeTXError, MetaClient, UnauthenticatedError
from metaservice.client.folder_service import open_folder
from metaservice.shared.addresses import is_local
from worker.base.errors import InputError
from worker.iceberg.rest.app import build_app
from worker.iceberg.rest.callers import Callers, Connect
from worker.iceberg.rest.certificate import Certificate
from worker.iceberg.rest.connections import HEAD_BYTES_MAX, TimedConnection
from worker.iceberg.rest.listing import Listings
from worker.iceberg.rest.plans import Plans
from worker.iceberg.rest.tables import Showing, Tables

CLIENT: Final = "laketx-iceberg"
STOP_S: Final = 10
BACKLOG: Final = 2_048


@dataclass(frozen=True, slots=True)
class Served:
    """Where the catalog listens, whom it lets in, and what it gives out."""

    listen: str
    warehouse: str
    tls_cert: str = ""
    tls_key: str = ""
    token_file: str = ""
    insecure: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    showing: Showing = field(default_factory=Showing)


def serve(served: Served, server: str, folder: str, say: Callable[[str], None]) -> None:
    """Serves until a signal ends it. `say` is told the address once it listens, and what to know about it."""
    if bool(served.tls_cert) != bool(served.tls_key):
        raise InputError("ICEBERG_LISTEN", "a certificate and its key belong together: set --tls-cert and --tls-key")
    secret = _secret(served.token_file)
    host, port = _address(served.listen)
    connect = connect_by(server, folder, uses_own=bool(secret))
    is_exposed = not is_local(served.listen) and not served.insecure
    asks = bool(secret) or _service_asks(connect, is_exposed=is_exposed)
    if is_exposed and not (asks and served.tls_cert):
        missing = [] if served.tls_cert else ["TLS (--tls-cert, --tls-key)"]
        missing += [] if asks else ["a way to know who calls (--token-file, or a service that asks for tokens)"]
        raise InputError(
            "ICEBERG_LISTEN",
            f"--listen {served.listen} is reached from other machines: it needs {' and '.join(missing)}, or --insecure "
            "on a network whose every machine may read and write all tables",
        )
    certificate = Certificate(served.tls_cert, served.tls_key) if served.tls_cert else None
    callers = Callers(connect, served.warehouse, secret, now_s=time.monotonic, has_tokens=not folder)
    tables, plans = Tables(served.showing, time.monotonic), Plans(served.showing.hold_s, time.monotonic)
    app = build_app(callers, tables, Listings(tables, time.monotonic), plans, served.config)
    bound = bind(host, port)
    scheme = "https" if served.tls_cert else "http"
    config = uvicorn.Config(
        app,
        http=TimedConnection,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        ssl_certfile=served.tls_cert or None,
        ssl_keyfile=served.tls_key or None,
        timeout_graceful_shutdown=STOP_S,
        server_header=False,
    )
    config.load()
    if certificate is not None and config.ssl is not None:
        certificate.show_in(config.ssl)
    shown = f"[{host}]" if ":" in host else host
    say(f"the catalog is ready at {scheme}://{shown}:{bound.getsockname()[1]}")
    if not asks:
        say("whoever reaches that address can read and write all tables; --token-file asks for a token")
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: None)  # uvicorn stops by them, and then raises them once more
    try:
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        callers.close()


def connect_by(server: str, folder: str, *, uses_own: bool) -> Connect:
    """Connections for callers: with their tokens alone, or with the credentials of this process."""

    def connect(token: str) -> MetaClient:
        if folder:
            return open_folder(folder, client_name=CLIENT)
        own = Credentials.from_environment()
        if not uses_own:  # nothing that says who this process is
            own = replace(own, cert_file="", key_file="", token=token, token_file="", token_command="")
        return MetaClient(server, client_name=CLIENT, credentials=own)

    return connect


def _service_asks(connect: Connect, *, is_exposed: bool) -> bool:
    """Whether it asks who calls; where that decides about a start, the service has to answer."""
    with connect("") as client:
        try:
            next(iter(client.list_namespaces()), None)
        except UnauthenticatedError:
            return True
        except LakeTXError:
            if is_exposed:
                raise
    return False


def _secret(token_file: str) -> str:
    if not token_file:
        return ""
    try:
        found = Path(token_file).read_text().strip()
    except OSError as error:
        raise InputError("ICEBERG_LISTEN", f"--token-file {token_file} can't be read: {error.strerror}") from error
    if not found:
        raise InputError("ICEBERG_LISTEN", f"--token-file {token_file} is empty")
    return found


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError("ICEBERG_LISTEN", f"--listen {listen} is no host:port, such as 127.0.0.1:8181")
    return host.strip("[]"), int(port)


def bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        bound = socket.socket(family, kind, socket.IPPROTO_TCP)  # asyncio sends small answers at once if it sees TCP
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        raise InputError(
            "ICEBERG_LISTEN", f"--listen {host}:{port}: {error.strerror}; choose another address"
        ) from error
    return bound
