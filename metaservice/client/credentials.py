"""Where a service is (`laketxs://host:port` with TLS, `laketx://host:port` without), what a client trusts and shows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import grpc

from metaservice.client.errors import ErrorKind, build_error
from metaservice.shared.addresses import is_local

if TYPE_CHECKING:
    import ssl

PLAIN: Final = "laketx://"
WITH_TLS: Final = "laketxs://"
SOCKET: Final = "unix:"
PROBE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """What gRPC takes, and whether TLS protects it; several `host:port` with commas are processes of one service."""

    target: str
    has_tls: bool = False

    @property
    def targets(self) -> list[str]:
        if self.target.startswith(SOCKET):
            return [self.target]
        return [each.strip() for each in self.target.split(",") if each.strip()] or [self.target]

    @classmethod
    def of(cls, text: str) -> Address:
        """Without a scheme it is one without TLS."""
        if text.startswith(WITH_TLS):
            return cls(text.removeprefix(WITH_TLS).rstrip("/"), has_tls=True)
        return cls(text.removeprefix(PLAIN).rstrip("/"))

    def __str__(self) -> str:
        return f"{WITH_TLS}{self.target}" if self.has_tls else self.target


def is_address(text: str) -> bool:
    """Whether a text says that it is a service's address."""
    return text.startswith((PLAIN, WITH_TLS, SOCKET))


def with_scheme(address: str) -> str:
    """`meta:7070` as `laketx://meta:7070`."""
    return address if is_address(address) else f"{PLAIN}{address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a client trusts and shows; all are keyword arguments. See docs/security.md.

    ca_file: authorities of the service's certificate, in PEM (LAKETX_CA_FILE). Default: those that gRPC brings.
    cert_file: a certificate to show, in PEM (LAKETX_CERT_FILE).
    key_file: its key (LAKETX_KEY_FILE).
    token: sent with each call (LAKETX_TOKEN). Or one of:
    token_file: a file with the token, read again when it changes (LAKETX_TOKEN_FILE).
    token_command: a shell command that prints it, run again before it expires (LAKETX_TOKEN_COMMAND).
    insecure: send a token without TLS to another machine too (LAKETX_INSECURE=true).
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    token_command: str = field(default="", repr=False)  # it may hold a secret of its own
    insecure: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Credentials:
        """Reads the variables LAKETX_…, by default of the process."""
        environment = os.environ if environment is None else environment
        texts = ("ca_file", "cert_file", "key_file", "token", "token_file", "token_command")
        settings = {name: environment.get(f"LAKETX_{name.upper()}", "") for name in texts}
        return cls(**settings, insecure=environment.get("LAKETX_INSECURE", "").lower() == "true")

    @property
    def has_token(self) -> bool:
        """Whether calls carry a token."""
        return bool(self.token or self.token_file or self.token_command)


def check_token(credentials: Credentials, address: Address) -> None:
    """Refuses what would send a token where others can read it."""
    if credentials.has_token and not (address.has_tls or credentials.insecure or all(map(is_local, address.targets))):
        raise build_error(
            ErrorKind.INVALID,
            "TOKEN_NEEDS_TLS",
            f"a token would be sent to {address} as it is: use {WITH_TLS}{address.target}, "
            "or set LAKETX_INSECURE=true if nobody listens in between",
            {"address": address.target},
        )


def channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    """Of TLS. Files that can't be used are refused in words, which gRPC doesn't have."""
    tls_context(credentials)
    key, chain = (_read(credentials.key_file), _read(credentials.cert_file)) if credentials.cert_file else (None, None)
    return grpc.ssl_channel_credentials(_read(credentials.ca_file) if credentials.ca_file else None, key, chain)


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """The same for Python's own TLS."""
    import ssl  # noqa: PLC0415 - slow, and not needed without TLS

    if bool(credentials.cert_file) != bool(credentials.key_file):
        _unusable("a certificate and its key belong together: set cert_file and key_file", "")
    try:
        context = ssl.create_default_context(cafile=credentials.ca_file or None)
    except (ssl.SSLError, OSError) as error:
        _unusable(f"the authorities can't be used: {_words(error)}", credentials.ca_file)
    try:
        if credentials.cert_file:
            context.load_cert_chain(credentials.cert_file, credentials.key_file, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        _unusable(f"the client's certificate can't be used: {_words(error)}", credentials.cert_file)
    context.set_alpn_protocols(["h2"])
    return context


def why_no_tls(address: Address, credentials: Credentials) -> str:
    """Why nothing came of the first contact, if TLS is the reason; gRPC says no more than that nobody answers."""
    import socket  # noqa: PLC0415 - slow, and seldom needed
    import ssl  # noqa: PLC0415 - likewise

    if address.target.startswith(SOCKET):
        return ""
    context = tls_context(credentials)
    if not address.has_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it is asked for nothing but whether it speaks TLS
    host, _, port = address.targets[0].rpartition(":")
    host = host.strip("[]")
    try:
        with (
            socket.create_connection((host, int(port)), PROBE_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            if not address.has_tls:
                return f"it speaks TLS: use {WITH_TLS}{address.target}"
            if not wrapped.recv(1):  # the handshake was done, and gRPC says nothing when it ends the connection
                return f"it doesn't take {'the' if credentials.cert_file else 'a client without a'} certificate"
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not trusted: {error.verify_message}" if address.has_tls else ""
    except ssl.SSLError as error:
        return f"TLS failed: {_words(error)}" if address.has_tls else ""
    except (OSError, ValueError, OverflowError):  # a port may be any number
        pass
    return ""


def _words(error: Exception) -> str:
    """Of an error of TLS or of the system, without the place in the library."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return reason.lower().replace("_", " ") if reason.isupper() else reason


def _no_password() -> str:
    raise ValueError("the key is encrypted; LakeTX asks for no password")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        _unusable(f"a file can't be read: {error.strerror}", path)


def _unusable(message: str, path: str) -> NoReturn:
    raise build_error(ErrorKind.INVALID, "CREDENTIALS_INVALID", message, {"file": path} if path else {})
