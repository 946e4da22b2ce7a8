"""An authority that signs certificates for tests, and writes them as PEM."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOCAL = ("127.0.0.1", "localhost")
DAY = timedelta(days=1)
PASSWORD = b"a password"


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    cert: Path
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--tls-cert", str(self.cert), "--tls-key", str(self.key))

    def replace(self, other: "Pair") -> None:
        """As tools that renew certificates do: each file at once, the one after the other."""
        other.cert.replace(self.cert)
        other.key.replace(self.key)


class Authority:
    """Signs what it is asked to."""

    def __init__(self, folder: Path, name: str = "tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        begin = datetime.now(UTC) - DAY
        made = self._builder(self._name, self._key, begin, begin + 10 * DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file = folder / f"{name}.ca.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = LOCAL,
        *,
        begins: timedelta = -DAY,
        lasts: timedelta = 5 * DAY,
        encrypted: bool = False,
    ) -> Pair:
        """A certificate whose time begins then, counted from now; valid for that long."""
        key = ec.generate_private_key(ec.SECP256R1())
        begin = datetime.now(UTC) + begins
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(subject, key, begin, begin + lasts)
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName([_name_of(host) for host in hosts]), critical=False)
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.cert.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if encrypted:
            lock = serialization.BestAvailableEncryption(PASSWORD)
        form = serialization.PrivateFormat.PKCS8
        pair.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
    ) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        return made.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
