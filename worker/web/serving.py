"""An HTTP server of ours from its address to its end: it binds, shows its certificate, and stops by a signal."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import uvicorn

from metaservice.client import Credentials, LakeTXError, MetaClient, UnauthenticatedError
from metaservice.client.folder_service import open_folder
from metaservice.client.meta_client import RETRY_BUDGET_S
from worker.base.errors import InputError
from worker.web.callers import Connect
from worker.web.certificate import Certificate
from worker.web.connections import HEAD_BYTES_MAX, TimedConnection

BACKLOG: Final = 2_048


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens, with which certificate, and how long a stop waits for answers under way."""

    listen: str
    tls_cert: str = ""
    tls_key: str = ""
    connection: type[TimedConnection] = TimedConnection
    stop_s: int = 10


def check_listening(listening: Listening, reason: str, example: str) -> None:
    """Refuses what can't be right before anything is opened; `reason` is the stable word for it."""
    if bool(listening.tls_cert) != bool(listening.tls_key):
        raise InputError(reason, "a certificate and its key belong together: set --tls-cert and --tls-key")
    host, _, port = listening.listen.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(reason, f"--listen {listening.listen} is no host:port, such as {example}")


def bind(listen: str, reason: str) -> socket.socket:
    """A socket that listens."""
    host, _, port = listen.rpartition(":")
    name = host.strip("[]")
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            name, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, socket.IPPROTO_TCP)  # asyncio sends small answers at once if it sees TCP
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        raise InputError(reason, f"--listen {name}:{port}: {error.strerror}; choose another address") from error
    return bound


def url_of(listening: Listening, bound: socket.socket) -> str:
    """The server's address as people type it."""
    host = listening.listen.rpartition(":")[0].strip("[]")
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if listening.tls_cert else 'http'}://{shown}:{bound.getsockname()[1]}"


def open_certificate(listening: Listening, reason: str) -> Certificate | None:
    return Certificate(listening.tls_cert, listening.tls_key, reason) if listening.tls_cert else None


def run(app: Any, listening: Listening, bound: socket.socket, certificate: Certificate | None) -> None:
    """Serves until a signal ends it."""
    config = uvicorn.Config(
        app,
        http=listening.connection,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        ssl_certfile=listening.tls_cert or None,
        ssl_keyfile=listening.tls_key or None,
        timeout_graceful_shutdown=listening.stop_s,
        server_header=False,
    )
    config.load()
    if certificate is not None and config.ssl is not None:
        certificate.show_in(config.ssl)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: None)  # uvicorn stops by them, and then raises them once more
    uvicorn.Server(config).run(sockets=[bound])


# -- the service behind it ---------------------------------------------------------------------------------------------


def connect_by(
    server: str,
    folder: str,
    client: str,
    *,
    uses_own: bool,
    principal: str = "",
    retry_budget_s: float = RETRY_BUDGET_S,
) -> Connect:
    """Connections for callers: with their tokens alone, or with the credentials of this process.

    `principal` is the name that the history shows where the service doesn't ask who calls.
    """

    def connect(token: str) -> MetaClient:
        if folder:
            return open_folder(folder, principal=principal, client_name=client, retry_budget_s=retry_budget_s)
        own = Credentials.from_environment()
        if not uses_own:  # nothing that says who this process is
            own = replace(own, cert_file="", key_file="", token=token, token_file="", token_command="")
        return MetaClient(
            server, principal=principal, client_name=client, retry_budget_s=retry_budget_s, credentials=own
        )

    return connect


def asks_who_calls(connect: Callable[[str], MetaClient], *, must_answer: bool) -> bool:
    """Whether the service asks for tokens; with `must_answer` a service that can't be reached is an error."""
    with connect("") as client:
        try:
            next(iter(client.list_namespaces()), None)
        except UnauthenticatedError:
            return True
        except LakeTXError:
            if must_answer:
                raise
    return False
