"""TLS: the service's certificate, taken anew when its files change, and the authority of its clients' certificates.

gRPC asks at every handshake whether there is a new certificate. The files are then looked at, and read if they are
others. A pair that can't be used is reported once, and the one before it stays.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc

from metaservice.shared.file_stamps import Stamp, read_stamp
from metaservice.shared.log import CERTIFICATE_REFUSED, CERTIFICATE_TAKEN

ONE_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
VERSION_TAG: Final = 0xA0
UTC_TIME: Final = 0x17


class CertificateUnusable(RuntimeError):  # noqa: N818 - says what it is
    """What is wrong with the files, in a sentence."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With an authority, clients have to show a certificate that it signed."""

    cert: str
    key: str
    client_ca: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.cert, self.key, *([self.client_ca] if self.client_ca else []))

    def read_stamps(self) -> Sequence[Stamp | None]:
        return [read_stamp(path) for path in self.paths]


@dataclass(frozen=True, slots=True)
class Taken:
    """Files that were read and checked."""

    ends_s: float
    configuration: grpc.ServerCertificateConfiguration


class Certificates:
    """What the service shows. Threads can share it."""

    def __init__(self, files: TlsFiles, now_s: Callable[[], float], report: Callable[..., None]) -> None:
        """Raises CertificateUnusable."""
        self._files = files
        self._now_s = now_s
        self._report = report
        self._lock = threading.Lock()
        self._seen = files.read_stamps()
        self._taken = self._given = take(files, now_s())
        self._tell()

    def credentials(self) -> grpc.ServerCredentials:
        newer: Any = self._newer  # its types know nothing of None
        asks = bool(self._files.client_ca)
        return grpc.dynamic_ssl_server_credentials(self._taken.configuration, newer, require_client_authentication=asks)

    def left_s(self) -> float:
        """Until the certificate expires."""
        with self._lock:
            self._look()
            return self._taken.ends_s - self._now_s()

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC at each handshake; None: what it was given last is the newest."""
        with self._lock:
            self._look()
            if self._given is self._taken:
                return None
            self._given = self._taken
            return self._taken.configuration

    def _look(self) -> None:
        stamps = self._files.read_stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._taken = take(self._files, self._now_s())
        except CertificateUnusable as error:
            self._report(CERTIFICATE_REFUSED, error=str(error))
        else:
            self._tell()

    def _tell(self) -> None:
        self._report(CERTIFICATE_TAKEN, file=self._files.cert, expires=_time(self._taken.ends_s))


def take(files: TlsFiles, now_s: float) -> Taken:
    """Reads and checks the files; raises CertificateUnusable."""
    before = files.read_stamps()
    chain, key = _read(files.cert), _read(files.key)
    authorities = _read(files.client_ca) if files.client_ca else None
    begins_s, ends_s = validity(_certificates(files.cert, chain)[0], files.cert)
    if authorities is not None:
        _certificates(files.client_ca, authorities)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.cert, files.key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        _refuse_pair(files, error)
    if files.read_stamps() != before:
        raise CertificateUnusable(f"{files.cert} or its key changed while it was read")
    if now_s >= ends_s:
        raise CertificateUnusable(f"the certificate in {files.cert} expired at {_time(ends_s)}")
    if now_s < begins_s:
        raise CertificateUnusable(f"the certificate in {files.cert} is valid only from {_time(begins_s)}")
    return Taken(ends_s, grpc.ssl_server_certificate_configuration([(key, chain)], authorities))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateUnusable(f"{path} can't be read: {error.strerror}") from error


def _certificates(path: str, content: bytes) -> list[str]:
    """Return all certificates of a file, checked as gRPC will check them."""
    certificates = ONE_CERTIFICATE.findall(content.decode("ascii", errors="replace"))
    if not certificates:
        raise CertificateUnusable(f"{path} holds no certificate in PEM")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata="\n".join(certificates))
    except (ssl.SSLError, ValueError) as error:
        raise CertificateUnusable(f"{path} holds a certificate that can't be read") from error
    return certificates


def _no_password() -> str:
    raise ValueError("the key is encrypted: LakeTX asks for no password")


def _refuse_pair(files: TlsFiles, error: Exception) -> NoReturn:
    if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
        message = f"the key in {files.key} is not that of the certificate in {files.cert}"
    elif isinstance(error, ssl.SSLError):
        message = f"{files.key} holds no key in PEM that can be read"
    else:
        message = f"{files.key}: {error}"
    raise CertificateUnusable(message) from error


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


# -- a certificate's dates, which Python's ssl doesn't tell ------------------------------------------------------------


def validity(pem: str, path: str = "") -> tuple[float, float]:
    """The first and the last second of a certificate, since 1970."""
    try:
        _, certificate, _ = _element(ssl.PEM_cert_to_DER_cert(pem))
        _, signed, _ = _element(certificate)
        tag, _, rest = _element(signed)
        for _ in range(3 if tag == VERSION_TAG else 2):  # serial number, algorithm, issuer
            _, _, rest = _element(rest)
        _, dates, _ = _element(rest)
        first_tag, first, rest = _element(dates)
        last_tag, last, _ = _element(rest)
        return _seconds(first_tag, first), _seconds(last_tag, last)
    except (ValueError, IndexError) as error:
        raise CertificateUnusable(f"{path} holds a certificate that can't be read") from error


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """The first element's tag and content, and what follows it."""
    size, at = der[1], 2
    if size & 0x80:
        at += size & 0x7F
        size = int.from_bytes(der[2:at], "big")
    return der[0], der[at : at + size], der[at + size :]


def _seconds(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == UTC_TIME:
        text = ("20" if text < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
