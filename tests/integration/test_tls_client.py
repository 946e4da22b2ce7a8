"""Clients through TLS: what they trust, what they show, and the words for what fails."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from laketx import connect
from metaservice.client import Credentials, InvalidError, MetaClient, UnavailableError
from metaservice.client.health import ask_health
from tests.forked_programs import run_forked
from tests.integration.certificates import Authority, Pair
from tests.integration.service import Service

BUDGET_S = 1.0


@dataclass(frozen=True)
class Place:
    """A service that asks for certificates, and who may use it."""

    address: str
    authority: Authority
    clients: Authority
    ana: Pair

    @property
    def shown(self) -> Credentials:
        return Credentials(ca_file=str(self.authority.file), cert_file=str(self.ana.cert), key_file=str(self.ana.key))

    @property
    def environment(self) -> dict[str, str]:
        shown = self.shown
        return {
            "LAKETX_SERVER": f"laketxs://{self.address}",
            "LAKETX_CA_FILE": shown.ca_file,
            "LAKETX_CERT_FILE": shown.cert_file,
            "LAKETX_KEY_FILE": shown.key_file,
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("tls")
    authority, clients = Authority(folder / "a"), Authority(folder / "c", "clients")
    service = Service(
        folder / "db", *authority.issue("meta").flags, "--tls-client-ca", str(clients.file), "--admins", "ana"
    )
    address = service.start()
    try:
        yield Place(address, authority, clients, clients.issue("ana", ()))
    finally:
        service.kill()


def refusal(place: Place, shown: Credentials, scheme: str = "laketxs://") -> UnavailableError:
    client = MetaClient(f"{scheme}{place.address}", retry_budget_s=BUDGET_S, credentials=shown)
    with client, pytest.raises(UnavailableError) as caught:
        client.reach()
    return caught.value


def test_a_client_that_trusts_the_service_and_is_trusted(place: Place) -> None:
    with MetaClient(f"laketxs://{place.address}", credentials=place.shown) as client:
        assert client.ping(b"x") == b"x"
        assert client.get_status().version
    assert ask_health(f"laketxs://{place.address}", BUDGET_S, credentials=place.shown) == "SERVING"


def test_tables_through_tls(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says what the client shows."""
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    with connect(f"laketxs://{place.address}", warehouse=str(tmp_path)) as lake:
        table = lake.create_table("default.orders", pa.schema([("id", pa.int64())]))
        table.append([{"id": 1}])
        assert table.count() == 1


def test_the_command_line_through_tls(place: Place) -> None:
    environment = {**os.environ, **place.environment}
    done = run_forked("metaservice.cli", "status", env=environment, timeout=30)
    assert done.returncode == 0, done.stderr
    environment["LAKETX_CA_FILE"] = str(place.clients.file)
    failed = run_forked("metaservice.cli", "status", "--timeout", "1", env=environment, timeout=30)
    assert failed.returncode == 3
    assert "TLS_FAILED" in failed.stderr
    assert "LAKETX_CA_FILE" in failed.stderr


def test_what_fails_is_said(place: Place) -> None:
    shown = place.shown
    other = place.authority.issue("other", ())
    for wrong, says in (
        (replace(shown, ca_file=str(place.clients.file)), "its certificate is not trusted: unable to get local issuer"),
        (replace(shown, ca_file=""), "its certificate is not trusted"),
        (replace(shown, cert_file="", key_file=""), "it doesn't take a client without a certificate"),
        (replace(shown, cert_file=str(other.cert), key_file=str(other.key)), "it doesn't take the certificate"),
    ):
        error = refusal(place, wrong)
        assert error.reason == "TLS_FAILED"
        assert re.search(says, str(error)), str(error)
    error = refusal(place, Credentials(), "laketx://")
    assert error.reason == "TLS_FAILED"
    assert f"it speaks TLS: use laketxs://{place.address}" in str(error)


def test_a_certificate_of_another_host_is_not_trusted(place: Place, tmp_path: Path) -> None:
    service = Service(tmp_path / "db", *place.authority.issue("elsewhere", ["elsewhere.example"]).flags)
    try:
        found = replace(place, address=service.start())
        error = refusal(found, Credentials(ca_file=str(place.authority.file)))
    finally:
        service.kill()
    assert "its certificate is not trusted: IP address mismatch" in str(error)


@pytest.mark.parametrize(
    ("spoilt", "is_half_of_a_pair"),
    [
        (lambda shown, path: replace(shown, ca_file=path), False),
        (lambda shown, path: replace(shown, cert_file=path), True),
        (lambda shown, path: replace(shown, key_file=path), True),
    ],
)
def test_files_that_can_not_be_used_are_refused_at_once(
    place: Place, spoilt: Callable[[Credentials, str], Credentials], is_half_of_a_pair: bool, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("none")
    for content in (str(bad), str(tmp_path / "missing")):
        with pytest.raises(InvalidError, match="CREDENTIALS_INVALID") as caught:
            MetaClient(f"laketxs://{place.address}", credentials=spoilt(place.shown, content))
        assert caught.value.facts["file"]
    if is_half_of_a_pair:
        with pytest.raises(InvalidError, match="belong together"):
            MetaClient(f"laketxs://{place.address}", credentials=spoilt(place.shown, ""))
