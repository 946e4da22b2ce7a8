"""Who may call the service, as its settings say: identities, a policy, a certificate, keys for files."""

from __future__ import annotations

import getpass
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from metaservice.core.access import Policy
from metaservice.metrics import CERTIFICATE_LEFT_SECONDS, Metrics
from metaservice.rpc.auth.authentication import Identities, admins_named
from metaservice.rpc.server import Callers
from metaservice.rpc.services.access import no_secret
from metaservice.server.process import RealClocks
from metaservice.server.settings import Settings
from metaservice.service.decider.decider import Decider
from metaservice.shared.log import OWNER_SOCKET_LEFT_OUT, event

if TYPE_CHECKING:
    from metaservice.rpc.auth.storage_tokens import StorageTokens

OWNER_SOCKET: Final = "owner.sock"
SOCKET_PATH_BYTES_MAX: Final = 100  # the kernel takes 107


def known_callers(settings: Settings, decider: Decider, metrics: Metrics) -> Callers:
    return Callers(
        identities=_identities(settings, decider),
        new_secret=new_secret if settings.tokens else no_secret,
        policy=_policy(settings, decider),
        credentials=own_credentials(settings, metrics),
        storage_tokens=_storage_tokens(settings),
    )


def new_secret() -> tuple[str, str]:
    """The id of a service token, and its secret."""
    return secrets.token_hex(6), secrets.token_urlsafe(32)


def _identities(settings: Settings, decider: Decider) -> Identities | None:
    """How callers are known; None: everybody may do everything, as on the socket of a folder."""
    if not settings.has_identity:
        return None
    oidc = None
    if settings.oidc_issuer:
        try:
            from metaservice.rpc.auth.oidc import Oidc, Provider  # noqa: PLC0415 - its library is optional
        except ImportError as error:
            raise RuntimeError("--oidc-issuer needs PyJWT: pip install 'laketx[oidc]'") from error
        claims = settings.oidc_name_claim, settings.oidc_groups_claim
        oidc = Oidc(Provider(settings.oidc_issuer, settings.oidc_audience, settings.oidc_ca, *claims))
    return Identities(
        (lambda: decider.state.access.tokens) if settings.tokens else None,
        oidc,
        by_certificate=bool(settings.tls_client_ca),
        admins=admins_named(settings.admins),
        owner=getpass.getuser(),
        now_us=RealClocks().now_us,
    )


def _policy(settings: Settings, decider: Decider) -> Policy | None:
    """Return the policy that decides roles instead of the grants, if configured."""
    if not settings.policy_url:
        return None
    from metaservice.rpc.auth.role_policy import ExternalPolicy  # noqa: PLC0415 - seldom needed

    def name_of(table_id: str) -> str:
        table = decider.state.views.find(table_id)
        return table.meta.name if table is not None else ""

    return ExternalPolicy(settings.policy_url, settings.policy_keep_s, name_of, time.monotonic)


def _storage_tokens(settings: Settings) -> StorageTokens | None:
    """Return the source of temporary keys for tables' files, if configured."""
    if not settings.storage_role:
        return None
    try:
        from metaservice.rpc.auth.storage_tokens import StorageTokens, TokenSettings  # noqa: PLC0415 - its library is optional
    except ImportError as error:
        raise RuntimeError("--storage-role needs botocore: pip install 'laketx[sts]'") from error
    token_settings = TokenSettings(
        settings.storage_role,
        settings.storage_valid_s,
        settings.storage_sts_endpoint,
        settings.storage_endpoint,
        settings.storage_region,
    )
    return StorageTokens(token_settings, RealClocks().now_us)


def owner_socket(settings: Settings) -> Path | None:
    """Where the owner of the data folder is an admin without a token, such as to make the first one."""
    if not settings.has_identity or settings.listen.startswith("unix:"):
        return None
    path = settings.data.resolve() / OWNER_SOCKET
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        event(OWNER_SOCKET_LEFT_OUT, path=path)
        return None
    path.unlink(missing_ok=True)
    return path


def own_credentials(settings: Settings, metrics: Metrics | None = None) -> grpc.ServerCredentials | None:
    """The service's certificate, where it has one; raises CertificateUnusable."""
    if not settings.tls_cert:
        return None
    from metaservice.rpc.auth.tls import Certificates, TlsFiles  # noqa: PLC0415 - its libraries would slow every start

    files = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    certificates = Certificates(files, time.time, event)
    if metrics is not None:
        metrics.readings[CERTIFICATE_LEFT_SECONDS] = lambda: {files.cert: certificates.left_s()}
    return certificates.credentials()
