"""Who calls: what proves it, and attacks on that. Each is refused, and no token is ever written down."""

from __future__ import annotations

import base64
import getpass
import hashlib
import hmac
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from metaservice.core.errors import MetaError
from metaservice.rpc.auth.oidc import Oidc
from metaservice.rpc.auth.oidc import Provider as Trusted
from metaservice.server.process import make_private
from protos.laketx.v1 import transaction_pb2
from tests.conformance.play import new_uuid7
from tests.integration.callers import Caller, Guarded, guarded
from tests.integration.oidc_provider import Provider, provider
from tests.integration.service import Service, append_request, code_of, reason_of, service

AUDIENCE = "laketx"
WHOAMI = "AccessService/WhoAmI"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider({"sub": "ana", "groups": ["analysts"]}, {"sub": "boss"}) as made:
        yield made


@pytest.fixture(scope="module")
def lake(issuer: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("identity") / "data"
    flags = ("--oidc-issuer", issuer.issuer, "--oidc-audience", AUDIENCE, "--admins", "boss,group:platform")
    with guarded(folder, *flags) as made:
        yield made


def refused(caller: Caller) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        caller.call(WHOAMI)
    assert code_of(caught.value) is grpc.StatusCode.UNAUTHENTICATED
    return reason_of(caught.value)


def test_a_user_of_the_provider_is_who_the_token_says(lake: Guarded, issuer: Provider) -> None:
    found = lake.caller(issuer.token("ana", AUDIENCE)).call(WHOAMI)
    assert (found.principal, list(found.groups), found.how, found.role) == ("ana", ["analysts"], "oidc", 0)
    assert found.expire_time_us > time.time() * 1e6
    assert lake.caller(issuer.token("boss", AUDIENCE)).call(WHOAMI).role == 4


def test_the_socket_is_the_owners(lake: Guarded) -> None:
    found = lake.owner.call(WHOAMI)
    assert (found.how, found.role, found.identity_required) == ("socket", 4, True)
    assert (lake.service.folder / "owner.sock").stat().st_mode & 0o077 == 0


def test_no_token(lake: Guarded) -> None:
    assert refused(lake.caller()) == "IDENTITY_MISSING"
    assert refused(lake.caller(metadata=(("authorization", "Basic YTpi"),))) == "IDENTITY_MISSING"
    assert refused(lake.caller(metadata=(("x-laketx-principal", "boss"),))) == "IDENTITY_MISSING"


@pytest.mark.parametrize("token", ["x", "lktx_", "lktx_00", "lktx_000000000000_secret", "a.b.c", "." * 20_000, "é"])
def test_tokens_that_are_none(lake: Guarded, token: str) -> None:
    if not token.isascii():
        with pytest.raises(Exception, match="metadata"):
            lake.caller(token).call(WHOAMI)
        return
    try:
        assert refused(lake.caller(token)) == "TOKEN_INVALID"
    except AssertionError:
        assert len(token) > 16_384  # gRPC refuses so much metadata by itself


def test_a_service_token_with_another_secret(lake: Guarded) -> None:
    token = lake.token("etl")
    assert lake.caller(token).call(WHOAMI).principal == "etl"
    assert refused(lake.caller(token[:-1] + ("x" if token[-1] != "x" else "y"))) == "TOKEN_INVALID"


def test_a_revoked_token_is_refused_at_once(lake: Guarded) -> None:
    token = lake.token("gone")
    caller = lake.caller(token)
    assert caller.call(WHOAMI).principal == "gone"
    assert lake.owner.call("AccessService/RevokeToken", token_id=token.split("_")[1]).revoked
    assert refused(caller) == "TOKEN_INVALID"


def test_an_expired_token(lake: Guarded) -> None:
    caller = lake.caller(lake.token("brief", valid_ms=1))
    time.sleep(0.01)
    assert refused(caller) == "TOKEN_EXPIRED"


# -- forged tokens -----------------------------------------------------------------------------------------------------

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def claims(issuer: Provider, **other: Any) -> dict[str, Any]:
    now = int(time.time())
    return {"sub": "boss", "iss": issuer.issuer, "aud": AUDIENCE, "exp": now + 600, "iat": now, **other}


def published_key(issuer: Provider) -> dict[str, Any]:
    keys = jwt.PyJWKClient(f"{issuer.issuer}/jwks").get_jwk_set().keys
    return dict(keys[0]._jwk_data)


def test_another_audience(lake: Guarded, issuer: Provider) -> None:
    assert refused(lake.caller(issuer.token("boss", "another-service"))) == "TOKEN_INVALID"


def test_another_key(lake: Guarded, issuer: Provider) -> None:
    key_id = jwt.get_unverified_header(issuer.token("boss", AUDIENCE)).get("kid")
    for headers in ({"kid": key_id}, {"kid": "unknown"}, {}):
        token = jwt.encode(claims(issuer), KEY, "RS256", {name: value for name, value in headers.items() if value})
        assert refused(lake.caller(token)) == "TOKEN_INVALID"


def test_no_signature(lake: Guarded, issuer: Provider) -> None:
    assert refused(lake.caller(jwt.encode(claims(issuer), "", "none"))) == "TOKEN_INVALID"
    real = issuer.token("ana", AUDIENCE)
    header, body, signature = real.split(".")
    other = base64.urlsafe_b64encode(json.dumps(claims(issuer)).encode()).decode().rstrip("=")
    for forged in (f"{header}.{body}.", f"{header}.{other}.{signature}", f"{header}.{other}."):
        assert refused(lake.caller(forged)) == "TOKEN_INVALID"


def test_the_public_key_as_a_shared_secret(lake: Guarded, issuer: Provider) -> None:
    public = jwt.PyJWK(published_key(issuer)).key
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    header = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()).decode().rstrip("=")
    body = base64.urlsafe_b64encode(json.dumps(claims(issuer)).encode()).decode().rstrip("=")
    signed = hmac.new(pem, f"{header}.{body}".encode(), hashlib.sha256).digest()
    token = f"{header}.{body}.{base64.urlsafe_b64encode(signed).decode().rstrip('=')}"
    assert refused(lake.caller(token)) == "TOKEN_INVALID"


def test_the_key_in_the_token_itself(lake: Guarded, issuer: Provider) -> None:
    own = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    token = jwt.encode(claims(issuer), KEY, "RS256", {"jwk": own, "jku": "http://127.0.0.1:1/keys"})
    assert refused(lake.caller(token)) == "TOKEN_INVALID"


def test_a_provider_with_a_new_key(issuer: Provider) -> None:
    """Keys are fetched again, but not for each token that somebody makes up."""
    now_s = 0.0
    checks = Oidc(Trusted(issuer.issuer, AUDIENCE), lambda: now_s)
    old = issuer.token("ana", AUDIENCE)
    assert checks.verify(old).principal == "ana"
    issuer.restart()
    new = issuer.token("ana", AUDIENCE)
    with pytest.raises(MetaError, match="TOKEN_INVALID"):
        checks.verify(new)  # asked a moment ago
    now_s = 11.0
    assert checks.verify(new).principal == "ana"
    with pytest.raises(MetaError, match="TOKEN_INVALID"):
        checks.verify(old)
    issuer.stop()
    now_s = 10_000.0
    assert checks.verify(new).principal == "ana"  # the keys stay while the provider is away
    issuer.start()


def test_a_provider_that_is_away(tmp_path: Path) -> None:
    flags = ("--oidc-issuer", "http://127.0.0.1:1", "--oidc-audience", AUDIENCE)
    with guarded(tmp_path / "data", *flags) as other:
        token = jwt.encode({"sub": "ana"}, KEY, "RS256")
        with pytest.raises(grpc.RpcError) as caught:
            other.caller(token).call(WHOAMI)
        assert (code_of(caught.value), reason_of(caught.value)) == (
            grpc.StatusCode.UNAVAILABLE,
            "ISSUER_UNREACHABLE",
        )
        assert other.named("etl").call(WHOAMI).principal == "etl"  # service tokens don't need it


# -- what is written down ----------------------------------------------------------------------------------------------


def test_attacks_are_audited_and_no_token_is_ever_written(issuer: Provider, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    flags = ("--oidc-issuer", issuer.issuer, "--oidc-audience", AUDIENCE, "--audit-file", str(audit))
    with guarded(tmp_path / "data", *flags) as lake:
        wrong = "lktx_000000000000_wrong-secret-of-somebody"
        tokens = [lake.token("etl"), issuer.token("ana", AUDIENCE), wrong]
        for token in tokens:
            caller = lake.caller(token, metadata=(("x-laketx-principal", "boss"),))
            caller.outcome(WHOAMI)
            caller.outcome("AdminService/Backup", path="b")
            frame = transaction_pb2.SessionRequest()
            frame.calls.add(call_id=1).abort.txn_id = new_uuid7()
            frame.calls.add(call_id=2).append.CopyFrom(append_request(new_uuid7(), new_uuid7()))
            caller.outcome("TransactionService/Session", frame)
        lake.caller().outcome("ReadService/ListVersions", table_id=new_uuid7())
        lake.service.running().terminate()
        lake.service.running().wait(30)
        stored = [one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()]
    for token in tokens:
        secret = (token.split("_", 2)[2] if token.startswith("lktx") else token.rpartition(".")[2]).encode()
        assert not [one for one in stored if secret in one]
    lines = [json.loads(one) for one in audit.read_text(encoding="utf-8").splitlines()]
    found = [
        (one.get("principal", ""), one.get("declared", ""), one["method"].rpartition("/")[2], one["answer"])
        for one in lines
    ]
    for who in ("etl", "ana"):
        assert (who, "boss", "Backup", "ROLE_MISSING") in found
        assert any(one[0] == who and one[2:] == ("Append", "TABLE_UNKNOWN") for one in found)
    assert ("", "boss", "Backup", "TOKEN_INVALID") in found
    assert ("", "boss", "WhoAmI", "TOKEN_INVALID") in found
    assert ("", "", "ListVersions", "IDENTITY_MISSING") in found
    assert (getpass.getuser(), "", "CreateToken", "OK") in found


def test_a_data_folder_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    def open_to_others() -> list[Path]:
        return [one for one in (folder, log, *folder.rglob("*")) if one.stat().st_mode & 0o077]

    folder, log, socket = tmp_path / "data", tmp_path / "log", tmp_path / "s"
    before = os.umask(0)
    try:
        with service(folder, "--log-file", str(log)) as (running, stubs):
            stubs.create("t")
            assert open_to_others() == []
            running.kill()
            folder.chmod(0o755)  # as an earlier release left it
            for one in folder.iterdir():
                one.chmod(0o644)
            running.start()
            assert open_to_others() == []
        other = Service(tmp_path / "other", listen=f"unix:{socket}")
        other.start()
        assert socket.stat().st_mode & 0o777 == 0o777  # its folder says who reaches it
        other.kill()
    finally:
        os.umask(before)


def test_a_folder_of_others_keeps_its_rights(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "somebodys").touch()
    shared.chmod(0o1777)
    make_private(shared)
    assert shared.stat().st_mode & 0o7777 == 0o1777


def test_a_service_without_identities_asks_nobody(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, _):
        anybody = Caller(running.address, "any-token")
        found = anybody.call(WHOAMI)
        assert (found.principal, found.identity_required, found.role) == ("", False, 4)
        assert anybody.outcome("AccessService/CreateToken", principal="x") == "TOKENS_OFF"
        anybody.close()
    assert not (tmp_path / "data" / "owner.sock").exists()
