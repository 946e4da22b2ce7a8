"""The certificate of the REST catalog: taken anew when its files change."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from cryptography import x509

from metaservice.client import LakeTXError
from tests.iceberg.servers import served_folder
from tests.integration.certificates import Authority
from worker.web.certificate import Certificate


def serial_shown(url: str, authority: Authority) -> int:
    """Of the certificate that a new connection gets, which the authority has signed."""
    place = urlsplit(url)
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection((place.hostname, place.port)) as plain,
        context.wrap_socket(plain, server_hostname=place.hostname) as connection,
    ):
        found = connection.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found).serial_number


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair, renewed = authority.issue("first"), authority.issue("second")
    serials = [x509.load_pem_x509_certificate(one.cert.read_bytes()).serial_number for one in (pair, renewed)]
    with served_folder(tmp_path / "lake", *pair.flags) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(authority.file))
        with httpx.Client(base_url=server.url, verify=trusted) as client:
            assert client.get("/v1/config").status_code == 200
            assert serial_shown(server.url, authority) == serials[0]
            pair.key.write_text("half of a key")
            assert serial_shown(server.url, authority) == serials[0], "the pair before stays"
            pair.replace(renewed)
            assert serial_shown(server.url, authority) == serials[1]
            assert client.get("/v1/config").status_code == 200, "open connections stay"


def test_a_pair_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other, locked = authority.issue("one"), authority.issue("other"), authority.issue("locked", encrypted=True)
    for cert, key in ((pair.cert, other.key), (pair.cert, tmp_path / "nothing"), (locked.cert, locked.key)):
        with pytest.raises(LakeTXError, match=r"ICEBERG_LISTEN.* can't be used"):
            Certificate(str(cert), str(key), "ICEBERG_LISTEN")
