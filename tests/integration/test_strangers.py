"""What strangers, a provider and a policy server send never ends the service: it is that caller's refusal."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.conformance.play import new_uuid7
from tests.integration.callers import Caller, Guarded, create, guarded
from tests.integration.odd_server import DEEP, ODD_ANSWERS, OddServer, odd_server, said

AUDIENCE = "laketx"
WHOAMI = "AccessService/WhoAmI"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
DISCOVERY, ROLE = "/.well-known/openid-configuration", "/role"


@pytest.fixture(scope="module")
def odd() -> Iterator[OddServer]:
    with odd_server() as made:
        yield made


@pytest.fixture(scope="module")
def lake(odd: OddServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    flags = ("--oidc-issuer", odd.url, "--oidc-audience", AUDIENCE, "--policy-url", f"{odd.url}{ROLE}")
    with guarded(tmp_path_factory.mktemp("strangers") / "data", *flags, "--policy-keep-s", "0") as made:
        yield made


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signed(payload: bytes) -> str:
    return jwt.api_jws.encode(payload, KEY, "RS256", {"kid": "one"})


def lives(lake: Guarded) -> None:
    assert lake.service.running().poll() is None
    assert lake.owner.call(WHOAMI).how == "socket"


def outcome(lake: Guarded, token: str) -> str:
    made = Caller(lake.service.address, token)
    try:
        return made.outcome(WHOAMI)
    finally:
        made.close()


def test_a_stranger_with_a_deep_token_is_refused(lake: Guarded) -> None:
    for token in (f"{b64(DEEP)}.{b64(b'{}')}.x", f"{b64(b'{}')}.{b64(DEEP)}.x", signed(DEEP)):
        assert outcome(lake, token) == "TOKEN_INVALID"
        lives(lake)


def test_a_provider_that_signs_no_time_and_one_that_is_broken(lake: Guarded, odd: OddServer) -> None:
    token = signed(json.dumps({"sub": "ana", "iss": odd.url, "aud": AUDIENCE, "exp": time.time() + 600}).encode())
    odd.answers[DISCOVERY] = ODD_ANSWERS["no HTTP"]
    assert outcome(lake, token) == "ISSUER_UNREACHABLE"
    lives(lake)


def test_a_policy_server_that_is_broken(lake: Guarded, odd: OddServer) -> None:
    lake.owner.call("CatalogService/CreateNamespace", name="shop", request_id=new_uuid7())
    table_id, ana = create(lake.owner, "shop.orders"), lake.named("ana")
    for name in ("no HTTP", "an answer that breaks off", "a chunk that breaks off", "deep lists", "half of a pair"):
        odd.answers[ROLE] = ODD_ANSWERS[name]
        assert ana.outcome("ReadService/ListVersions", table_id=table_id) == "POLICY_UNREACHABLE"
        lives(lake)
    odd.answers[ROLE] = said({"result": "reader"})
    assert ana.outcome("ReadService/ListVersions", table_id=table_id) == "ok"


def test_a_signed_time_without_end(odd: OddServer, tmp_path: Path) -> None:
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    odd.answers[DISCOVERY] = said({"issuer": odd.url, "jwks_uri": f"{odd.url}/jwks"})
    odd.answers["/jwks"] = said({"keys": [7, {"kty": "RSA", "kid": "odd"}, {**public, "kid": "one"}]})
    with guarded(tmp_path / "data", "--oidc-issuer", odd.url, "--oidc-audience", AUDIENCE) as lake:
        claims = {"sub": "ana", "iss": odd.url, "aud": AUDIENCE, "exp": 1}
        for number in ("1e400", "9" * 300, "1e17"):
            token = signed(json.dumps(claims).replace('"exp": 1', f'"exp": {number}').encode())
            assert outcome(lake, token) == "TOKEN_INVALID"
            lives(lake)
        assert outcome(lake, signed(json.dumps({**claims, "exp": int(time.time()) + 600}).encode())) == "ok"
