"""`laketx console`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping

from metaservice.cli.failures import usage_failure
from metaservice.cli.output import Session
from worker.console.provider import ProviderSettings
from worker.console.serve import Served, serve
from worker.services.commands import command_errors

BEARERS = ("id", "access")


def run_console(
    session: Session,
    listen: str,
    tls_cert: str,
    tls_key: str,
    warehouse: str | None,
    beside_service: bool,
    **given: str,
) -> None:
    if beside_service:
        end_with_stdin()
    settings, environment = session.settings, session.environment
    place = warehouse or environment.get("LAKETX_WAREHOUSE", "") or settings.folder
    url = given["public_url"] or environment.get("LAKETX_PUBLIC_URL", "")
    served = Served(
        listen, place, tls_cert, tls_key, url, provider_of(given, environment, needs_client=not beside_service)
    )
    with command_errors():
        serve(served, settings.server, settings.folder, settings.user, session.say)


def end_with_stdin() -> None:
    """Ends this process as a stop does when its standard input ends: then the service is gone, or stops.

    The service blocks the signals of a stop in its threads, and a process that it starts inherits that.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="laketx-console-stdin", daemon=True).start()


def provider_of(
    given: Mapping[str, str], environment: Mapping[str, str], *, needs_client: bool
) -> ProviderSettings | None:
    """Where people log in, by options or the environment; None: with a token alone."""

    def setting(name: str, default: str = "") -> str:
        return given[f"oidc_{name}"] or environment.get(f"LAKETX_OIDC_{name.upper()}", "") or default

    client_id, bearer = setting("client_id"), setting("token_kind", BEARERS[0])
    if not client_id:
        if given["oidc_issuer"] and needs_client:
            raise usage_failure("--oidc-issuer needs --oidc-client-id", next_step="name the client of the console")
        return None
    if not setting("issuer"):
        raise usage_failure("--oidc-client-id needs --oidc-issuer", next_step="name the provider of the service")
    if bearer not in BEARERS:
        raise usage_failure(f"LAKETX_OIDC_TOKEN_KIND is {bearer}", next_step=f"set it to {' or '.join(BEARERS)}")
    return ProviderSettings(
        setting("issuer"),
        client_id,
        secret_file=setting("client_secret_file"),
        scopes=setting("scopes", "openid"),
        bearer=bearer,
        ca_file=setting("ca"),
    )
