"""TLS of the service: who is refused, and certificates that change while it runs."""

import re
import socket
import ssl
import time
import urllib.request
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from metaservice.rpc.auth.tls import Certificates, CertificateUnusable, TlsFiles, take
from metaservice.server.settings import read_settings
from metaservice.shared.log import CERTIFICATE_REFUSED, CERTIFICATE_TAKEN
from tests.forked_programs import run_forked
from tests.integration.certificates import DAY, Authority, Pair
from tests.integration.service import Service, code_of, wait_until

SOON = timedelta(seconds=3)
ANSWER_S = 5.0
SAMPLE = r'^laketx_certificate_left_seconds{file="[^"]+shown.pem"} ([0-9.e+]+)$'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def files_of(pair: Pair, client_ca: Path | None = None) -> TlsFiles:
    return TlsFiles(str(pair.cert), str(pair.key), str(client_ca or ""))


def ask(address: str, ca: Path, shown: Pair | None = None, host: str = "") -> str:
    """The health that a new connection is told; else the code of the failure."""
    own = (shown.key.read_bytes(), shown.cert.read_bytes()) if shown is not None else (None, None)
    credentials = grpc.ssl_channel_credentials(ca.read_bytes(), *own)
    options: list[tuple[str, str | int]] = [("grpc.use_local_subchannel_pool", 1)]
    if host:
        options.append(("grpc.ssl_target_name_override", host))
    with grpc.secure_channel(address, credentials, options=options) as channel:
        return _health(channel)


def ask_plainly(address: str) -> str:
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        return _health(channel)


def _health(channel: grpc.Channel) -> str:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    try:
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
    except grpc.RpcError as error:
        return code_of(error).name
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def handshake(address: str, ca: Path, newest: ssl.TLSVersion) -> str:
    """The version of TLS that a client agrees on with the service, which knows none that is newer."""
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    context.set_ciphers("ALL:@SECLEVEL=0")  # so that the client itself would speak the old ones
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the old ones are what is tried
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) as tls:
        return str(tls.version())


def run(service: Service, check: Callable[[str], None]) -> None:
    try:
        check(service.start())
    finally:
        if service.process is not None and service.process.poll() is None:
            service.kill()


def test_only_those_who_trust_the_certificate_get_an_answer(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "other")
    shown = authority.issue("shown", ["127.0.0.1", "meta.example"])
    service = Service(tmp_path / "db", *shown.flags, "--metrics-listen", "127.0.0.1:0")

    def check(address: str) -> None:
        assert ask(address, authority.file) == "SERVING"
        assert ask(address, authority.file, host="meta.example") == "SERVING"
        assert ask(address, authority.file, host="another.example") == "UNAVAILABLE"
        assert ask(address, other.file) == "UNAVAILABLE"
        assert ask_plainly(address) == "UNAVAILABLE"
        assert handshake(address, authority.file, ssl.TLSVersion.MAXIMUM_SUPPORTED) == "TLSv1.3"
        assert handshake(address, authority.file, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        with pytest.raises(ssl.SSLError, match=r"EOF|PROTOCOL_VERSION"):
            handshake(address, authority.file, ssl.TLSVersion.TLSv1_1)
        found = re.search(r'"metrics_listen", "listen": "([^"]+)"', service.said())
        assert found is not None
        with urllib.request.urlopen(f"http://{found[1]}/metrics") as answer:
            left = re.search(SAMPLE, answer.read().decode(), re.MULTILINE)
        assert left is not None
        assert 3.9 * 86_400 < float(left[1]) < 4 * 86_400

    run(service, check)


def test_clients_show_a_certificate_of_the_authority(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "other")
    clients = Authority(tmp_path / "clients", "clients")
    shown = authority.issue("for-clients")
    ana, stranger = clients.issue("ana", ()), other.issue("stranger", ())
    late = clients.issue("late", (), begins=-2 * DAY, lasts=DAY)

    def check(address: str) -> None:
        assert ask(address, authority.file, ana) == "SERVING"
        assert ask(address, authority.file) == "UNAVAILABLE"
        assert ask(address, authority.file, stranger) == "UNAVAILABLE"
        assert ask(address, authority.file, late) == "UNAVAILABLE"
        clients.file.write_bytes(other.file.read_bytes())
        assert ask(address, authority.file, stranger) == "SERVING"
        assert ask(address, authority.file, ana) == "UNAVAILABLE"

    run(Service(tmp_path / "db", *shown.flags, "--tls-client-ca", str(clients.file)), check)


def test_a_certificate_that_expires_is_replaced_while_the_service_runs(authority: Authority, tmp_path: Path) -> None:
    shown = authority.issue("first")
    service = Service(tmp_path / "db", *shown.flags)

    def check(address: str) -> None:
        shown.replace(authority.issue("short", begins=-DAY, lasts=DAY + SOON))
        until_s = time.time() + SOON.total_seconds()
        assert ask(address, authority.file) == "SERVING"
        wait_until(lambda: time.time() > until_s)
        assert ask(address, authority.file) == "UNAVAILABLE"
        shown.cert.write_text("half of a cert")
        assert ask(address, authority.file) == "UNAVAILABLE"
        assert service.said().count(f'"{CERTIFICATE_REFUSED}"') == 1
        shown.replace(authority.issue("next"))
        assert ask(address, authority.file) == "SERVING"
        assert service.said().count(f'"{CERTIFICATE_TAKEN}"') == 3

    run(service, check)


class Reports:
    """What the log would say."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str, **facts: object) -> None:
        self.names.append(name)


def test_a_pair_that_is_half_renewed_waits_for_its_other_half(authority: Authority) -> None:
    shown, fresh = authority.issue("halves"), authority.issue("fresh", lasts=8 * DAY)
    reports = Reports()
    certificates = Certificates(files_of(shown), time.time, reports)
    fresh.cert.replace(shown.cert)
    for _ in range(2):
        assert 3.9 * 86_400 < certificates.left_s() < 4 * 86_400
    assert reports.names == [CERTIFICATE_TAKEN, CERTIFICATE_REFUSED]
    fresh.key.replace(shown.key)
    assert 6.9 * 86_400 < certificates.left_s() < 7 * 86_400
    assert reports.names == [CERTIFICATE_TAKEN, CERTIFICATE_REFUSED, CERTIFICATE_TAKEN]


def test_files_that_are_gone_change_nothing(authority: Authority, tmp_path: Path) -> None:
    """As while a volume of secrets is mounted anew: its links point elsewhere at once."""
    first, second = authority.issue("first"), authority.issue("second", lasts=8 * DAY)
    link = Pair(tmp_path / "link.pem", tmp_path / "link.key")
    for mine, target in ((link.cert, first.cert), (link.key, first.key)):
        mine.symlink_to(target)
    reports = Reports()
    certificates = Certificates(files_of(link), time.time, reports)
    for mine in (link.cert, link.key):
        mine.unlink()
    assert 3.9 * 86_400 < certificates.left_s() < 4 * 86_400
    for mine, target in ((link.cert, second.cert), (link.key, second.key)):
        mine.symlink_to(target)
    assert 6.9 * 86_400 < certificates.left_s() < 7 * 86_400
    assert reports.names == [CERTIFICATE_TAKEN, CERTIFICATE_REFUSED, CERTIFICATE_TAKEN]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda a, p: p.cert.unlink(), "can't be read: No such file"),
        (lambda a, p: p.key.unlink(), "can't be read: No such file"),
        (lambda a, p: p.cert.write_text("none"), "holds no certificate in PEM"),
        (lambda a, p: p.key.write_text("none"), "holds no key in PEM"),
        (lambda a, p: p.cert.write_text(p.cert.read_text().replace("M", "m", 1)), "can't be read"),
        (lambda a, p: a.issue("else").key.replace(p.key), "is not that of the certificate"),
        (lambda a, p: p.replace(a.issue("locked", encrypted=True)), "the key is encrypted"),
        (lambda a, p: p.replace(a.issue("old", begins=-2 * DAY, lasts=DAY)), "expired at 20"),
        (lambda a, p: p.replace(a.issue("early", begins=DAY)), "is valid only from 20"),
    ],
)
def test_files_that_can_not_be_used(
    authority: Authority, spoil: Callable[[Authority, Pair], object], says: str
) -> None:
    pair = authority.issue("spoilt")
    take(files_of(pair), time.time())
    spoil(authority, pair)
    with pytest.raises(CertificateUnusable, match=says):
        take(files_of(pair), time.time())


def test_an_authority_that_can_not_be_used(authority: Authority, tmp_path: Path) -> None:
    pair, ca = authority.issue("with-ca"), tmp_path / "ca.pem"
    for content in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        ca.write_text(content)
        with pytest.raises(CertificateUnusable, match=str(ca)):
            take(files_of(pair, ca), time.time())


def test_the_service_says_why_it_does_not_start(authority: Authority, tmp_path: Path) -> None:
    old = authority.issue("too-old", begins=-2 * DAY, lasts=DAY)
    words = ("--data", str(tmp_path / "db"), "--listen", "127.0.0.1:0", *old.flags)
    ended = run_forked("metaservice", *words, timeout=30)
    assert ended.returncode == 74
    assert ended.stderr.splitlines()[-1].startswith(f"laketx: the certificate in {old.cert} expired at ")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--tls-cert", "a"], "belong together"),
        (["--tls-key", "a"], "belong together"),
        (["--tls-client-ca", "a"], "needs --tls-cert"),
        (["--tls-cert", "a", "--tls-key", "b", "--listen", "unix:/x"], "is for host:port"),
        (["--listen", "0.0.0.0:7070"], r"needs TLS .* and a way to know who calls .*--insecure true"),
        (["--listen", "[::]:7070"], "needs TLS"),
        (["--listen", "meta.example:7070"], "needs TLS"),
        (["--listen", ":7070"], "needs TLS"),
        (["--listen", "0.0.0.0:0", "--tls-cert", "a", "--tls-key", "b"], "needs a way to know who calls"),
    ],
)
def test_settings_that_do_not_go_together(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(flags, {})
    assert re.search(says, capsys.readouterr().err)


@pytest.mark.parametrize(
    "flags",
    [
        ["--listen", "127.0.0.2:0"],
        ["--listen", "[::1]:0"],
        ["--listen", "localhost:7070"],
        ["--listen", "unix:/x"],
        ["--listen", "0.0.0.0:0", "--insecure", "true"],
        ["--listen", "0.0.0.0:0", "--tls-cert", "a", "--tls-key", "b", "--tls-client-ca", "c"],
    ],
)
def test_settings_that_go_together(flags: list[str]) -> None:
    assert read_settings(flags, {}).exposed == ""
