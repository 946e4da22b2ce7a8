"""Bytes from outside: whatever they are, they are read within bounds or refused in one way."""

from __future__ import annotations

import base64
import copy
import io
import json
import math
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
from botocore.exceptions import ClientError
from botocore.response import StreamingBody
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3 import HTTPResponse

from metaservice.core.access import Identity
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.lease import Lease
from metaservice.core.storage_scope import folder_of
from metaservice.rpc.auth.authentication import Identities
from metaservice.rpc.auth.oidc import KEEP_S, KEYS_MAX, WAITING_MAX, Oidc, Provider, keys_of
from metaservice.rpc.auth.role_policy import ExternalPolicy
from metaservice.rpc.auth.storage_tokens import StorageTokens, TokenSettings
from metaservice.shared.foreign_bytes import DEPTH_MAX, ForeignUnusable, build, read_json, read_whole
from metaservice.shared.outbound_requests import ask_json
from metaservice.store.backups.folders import BackupUnusable, decode_manifest
from metaservice.store.backups.objects import BucketObjects, RepositoryUnreachable
from metaservice.store.lease import lease_object, log_record, standby_notes
from metaservice.store.lease.lease_object import LeaseInBucket, decode_lease
from metaservice.store.lease.log_record import find_log
from metaservice.store.lease.standby_notes import NotesInBucket
from metaservice.store.object_location import ObjectPlace
from metaservice.store.port import STORE_UNREACHABLE, StoreUnusable
from tests.integration.certificates import Authority
from tests.integration.odd_server import DEEP, ODD_ANSWERS, OddServer, drips, hangs, odd_server, said

AUDIENCE = "laketx"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
DISCOVERY = "/.well-known/openid-configuration"
UNREADABLE_JSON = {
    "deep": DEEP,
    "deep in a text's shadow": b'["\\"[' + b'"' + b",[" * 100 + b"1" + b"]" * 101,
    "NaN": b"NaN",
    "infinite": b"[-Infinity]",
    "too large": b"1e400",
    "too long": b"0." + b"1" * 100,
    "many digits": b"9" * 5_000,
    "65 bits": str(1 << 63).encode(),
    "half of a pair": b'"\\ud800"',
    "no UTF-8": b'"\xff"',
    "no end": b'"\\',
    "nothing": b"",
}


@pytest.mark.parametrize("name", UNREADABLE_JSON)
def test_json_that_nobody_means_is_unusable(name: str) -> None:
    with pytest.raises(ForeignUnusable):
        read_json(UNREADABLE_JSON[name])


def test_brackets_in_texts_are_no_depth() -> None:
    text = '"' + "[{" * 100 + '\\"' + "[" * 100
    assert read_json(json.dumps([text, "\\", text]).encode()) == [text, "\\", text]
    assert read_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    assert read_json(b'{"a": "\\ud83d\\ude00", "b": -9223372036854775807, "c": 1.5}')["a"] == "😀"


def test_a_text_without_end_takes_no_long_time() -> None:
    begun_s = time.process_time()
    for raw in (b'"' + b'\\"' * 200_000, b'["\\' * 100_000, b'{"a":[' * 50_000):
        with pytest.raises(ForeignUnusable):
            read_json(raw)
    assert time.process_time() - begun_s < 2


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=200) | VALUES.map(lambda one: json.dumps(one).encode()))
def test_any_bytes_are_json_or_unusable(raw: bytes) -> None:
    try:
        found = read_json(raw)
    except ForeignUnusable:
        return
    assert found == json.loads(raw)
    json.dumps(found, allow_nan=False).encode()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(sorted(Lease.__dataclass_fields__)) | st.text(max_size=5), VALUES))
def test_any_object_is_a_lease_with_its_types_or_none(found: dict[str, Any]) -> None:
    try:
        lease = decode_lease(json.dumps(found).encode())
    except OSError:
        return
    assert lease == build(Lease, found)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(VALUES | st.fixed_dictionaries({"format": VALUES, "heads": VALUES, "files": VALUES}))
def test_any_object_is_a_manifest_or_said_to_be_none(found: object) -> None:
    with pytest.raises(BackupUnusable):
        decode_manifest(json.dumps(found).encode(), "here")


def test_deep_files_of_a_bucket_are_unusable() -> None:
    with pytest.raises(OSError, match="can't be read"):
        decode_lease(DEEP)
    with pytest.raises(BackupUnusable, match="BACKUP_DAMAGED"):
        decode_manifest(b"[" * 100_000, "here")


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def issuer() -> Iterator[OddServer]:
    with odd_server() as made:
        publish(made, jwk(KEY, "one"))
        yield made


def jwk(key: rsa.RSAPrivateKey, key_id: str) -> dict[str, Any]:
    return {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": key_id}


def publish(issuer: OddServer, *keys: object) -> None:
    issuer.answers[DISCOVERY] = said({"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks"})
    issuer.answers["/jwks"] = said({"keys": keys})


def signed(payload: bytes, key: rsa.RSAPrivateKey = KEY, key_id: str = "one") -> str:
    return jwt.api_jws.encode(payload, key, "RS256", {"kid": key_id})


def token(issuer: OddServer, key: rsa.RSAPrivateKey = KEY, key_id: str = "one", **other: Any) -> str:
    claims = {"sub": "ana", "iss": issuer.url, "aud": AUDIENCE, "exp": int(time.time()) + 600, **other}
    return signed(json.dumps(claims).encode(), key, key_id)


def verifier(issuer: OddServer, now_s: list[float] | None = None) -> Oidc:
    clock = now_s if now_s is not None else [0.0]
    return Oidc(Provider(issuer.url, AUDIENCE), lambda: clock[0])


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def reason(checks: Oidc, given_token: str) -> str:
    try:
        return checks.verify(given_token).principal
    except MetaError as refusal:
        found = refusal
    assert given_token not in found.message
    return found.reason


def test_a_token_that_nests_is_its_callers_refusal(issuer: OddServer) -> None:
    checks = verifier(issuer)
    for deep in (DEEP, b'{"a":' * 3_000 + b"1" + b"}" * 3_000):
        assert reason(checks, f"{b64(deep)}.{b64(b'{}')}.x") == "TOKEN_INVALID"
        assert reason(checks, f"{b64(json.dumps({'alg': 'RS256'}).encode())}.{b64(deep)}.x") == "TOKEN_INVALID"
        assert reason(checks, signed(deep)) == "TOKEN_INVALID"
    assert issuer.asked == []  # nobody is asked for such a thing


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", "9" * 4_000, "1e15", '"1e400"', "[]", "{}"])
@pytest.mark.parametrize("claim", ["exp", "iat", "nbf"])
def test_a_signed_number_that_is_no_time_is_its_callers_refusal(issuer: OddServer, claim: str, number: str) -> None:
    claims = {"sub": "ana", "iss": issuer.url, "aud": AUDIENCE, "exp": int(time.time()) + 600, claim: "HERE"}
    payload = json.dumps(claims).replace('"HERE"', number)
    assert reason(verifier(issuer), signed(payload.encode())) in ("TOKEN_INVALID", "TOKEN_EXPIRED", "ana")
    if claim == "exp":
        assert reason(verifier(issuer), signed(payload.encode())) != "ana"


HEADERS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("typ", "crit", "b64", "jwk", "x5c"), VALUES) | {"kid": VALUES, "alg": VALUES}
)
CLAIMS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("sub", "iss", "aud", "exp", "iat", "nbf", "groups", "jti"), VALUES)
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(header=HEADERS, claims=CLAIMS, whole=st.text(max_size=60), kind=st.integers(0, 3))
def test_any_token_is_somebody_or_refused(
    header: dict[str, Any], claims: dict[str, Any], whole: str, kind: int
) -> None:
    checks = Oidc(Provider("https://issuer.test", AUDIENCE), lambda: 0.0)
    checks._keys, checks._fetched_s, checks._tried_s = keys_of({"keys": [jwk(KEY, "one")]}), 0.0, 0.0
    base = {"sub": "ana", "iss": "https://issuer.test", "aud": AUDIENCE, "exp": int(time.time()) + 600}
    texts = (
        whole,
        f"{b64(json.dumps({'alg': 'RS256', **header}).encode())}.{b64(json.dumps({**base, **claims}).encode())}.",
        signed(json.dumps({**base, **claims}).encode()),
        f"{whole}.{b64(json.dumps(base).encode())}.{whole}",
    )
    try:
        found = checks.verify(texts[kind])
    except MetaError as refusal:
        assert refusal.kind is ErrorKind.DENIED  # noqa: PT017
    else:
        assert found.expires_us < 1 << 63


@pytest.mark.parametrize("where", [DISCOVERY, "/jwks"])
@pytest.mark.parametrize("name", ODD_ANSWERS)
def test_a_provider_that_answers_garbage_is_its_callers_refusal(issuer: OddServer, name: str, where: str) -> None:
    asked = token(issuer)
    issuer.answers[where] = ODD_ANSWERS[name]
    assert reason(verifier(issuer), asked) == "ISSUER_UNREACHABLE"


ODD_KEYS: tuple[object, ...] = (
    1,
    None,
    [],
    {},
    {"kty": "RSA"},
    {"kty": "RSA", "kid": "x", "n": "AQAB", "e": 5},
    {"kty": "RSA", "kid": "x", "n": "é", "e": "AQAB"},
    {"kty": "RSA", "kid": "x", "n": "A" * 100_000, "e": "AQAB"},
    {"kty": "RSA", "kid": "x", "alg": "HS256", "k": "AAAA"},
    {"kty": "RSA", "kid": "x", "alg": ["RS256"], "n": "AQAB", "e": "AQAB"},
    {"kty": "EC", "kid": "x", "crv": "P-256", "x": "AA", "y": "AA"},
    {"kty": "EC", "kid": "x", "crv": {}, "x": "AA", "y": "AA"},
    {"kty": "OKP", "kid": "x", "crv": "Ed25519", "x": "AA"},
    {"kty": "OKP", "kid": "x", "crv": "X25519", "x": "AA"},
    {"kty": "RSA", "kid": {"a": 1}, "n": "", "e": ""},
    {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(OTHER)), "kid": "private"},
)


def test_one_unreadable_key_keeps_no_others_out(issuer: OddServer) -> None:
    publish(issuer, *ODD_KEYS, jwk(KEY, "one"), *ODD_KEYS)
    checks = verifier(issuer)
    assert reason(checks, token(issuer)) == "ana"
    with pytest.raises(MetaError, match="can't be read"):
        checks.verify(token(issuer, OTHER, "private"))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(
        VALUES
        | st.fixed_dictionaries(
            {"kty": st.sampled_from(["RSA", "EC", "OKP", "oct"])},
            optional=dict.fromkeys(("kid", "n", "e", "x", "y", "crv", "alg", "use", "d"), VALUES),
        ),
        max_size=4,
    )
)
def test_any_keys_are_read_beside_one_that_is(keys: list[object]) -> None:
    found = keys_of(json.loads(json.dumps({"keys": [*keys, jwk(KEY, "one")]})))
    assert found.usable["one"].key == KEY.public_key()


def test_a_set_of_endlessly_many_keys_is_unusable(issuer: OddServer) -> None:
    publish(issuer, *({"kty": "RSA", "kid": str(n)} for n in range(KEYS_MAX + 1)))
    assert reason(verifier(issuer), token(issuer)) == "ISSUER_UNREACHABLE"


# -- a key that goes ---------------------------------------------------------------------------------------------------


def settled(checks: Oidc) -> None:
    """After the fetch that nobody waited for."""
    under_way = checks._fetching
    if under_way is not None:
        assert under_way.wait(30)


def identities(checks: Oidc, now_s: list[float]) -> Identities:
    def now_us() -> int:
        return int(now_s[0] * 1e6)

    return Identities(None, checks, by_certificate=False, admins=frozenset(), owner="owner", now_us=now_us)


def test_a_token_does_not_outlive_its_providers_key(issuer: OddServer) -> None:
    begun_s = time.time()
    now_s = [begun_s]
    checks = verifier(issuer, now_s)
    known = identities(checks, now_s)
    old = token(issuer, exp=int(begun_s) + 86_400)
    who = known.of_token(old)
    publish(issuer, jwk(OTHER, "two"))
    now_s[0] += KEEP_S - 1
    assert known.of_token(old) == known.still(who) == who  # the keys were read a moment ago
    now_s[0] += 2
    with suppress(MetaError):  # the fetch that it begins may be over before it is
        known.of_token(old)  # is checked again, and finds that the keys are old
    settled(checks)
    with pytest.raises(MetaError, match="TOKEN_INVALID"):
        known.of_token(old)  # a new call
    with pytest.raises(MetaError, match="TOKEN_INVALID"):
        known.still(who)  # a stream that is open
    assert known.of_token(token(issuer, OTHER, "two")).principal == "ana"


def test_a_token_that_is_known_is_not_checked_again_for_a_while(
    issuer: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [time.time()]
    checks = verifier(issuer, now_s)
    known = identities(checks, now_s)
    mine = token(issuer, exp=int(now_s[0]) + 86_400)
    who = known.of_token(mine)
    counted: list[str] = []
    verify = checks.verify

    def counting(asked: str) -> Identity:
        counted.append(asked)
        return verify(asked)

    monkeypatch.setattr(checks, "verify", counting)
    for _ in range(5):
        assert known.of_token(mine) == known.still(who)
    assert not counted
    now_s[0] += 301
    assert known.still(who).principal == "ana"
    assert counted == [mine]
    assert mine not in repr(known.of_token(mine))


# -- a provider that is slow -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [hangs, drips])
def test_a_slow_provider_delays_nobody_who_needs_no_key(
    issuer: OddServer, slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaservice.rpc.auth.oidc.FETCH_S", 0.3)
    now_s = [0.0]
    checks = verifier(issuer, now_s)
    mine = token(issuer)
    assert reason(checks, mine) == "ana"
    issuer.answers[DISCOVERY] = slow
    now_s[0] = KEEP_S + 1
    assert reason(checks, mine) == "ana"  # the keys are old: somebody asks, nobody waits
    assert checks._tried_s == now_s[0]
    stranger = token(issuer, OTHER, "unknown")
    assert reason(checks, stranger) == "TOKEN_INVALID"  # after the deadline
    settled(checks)
    assert checks._failure
    assert reason(checks, mine) == "ana"


def test_few_wait_for_a_slow_provider(issuer: OddServer, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = verifier(issuer)
    issuer.answers[DISCOVERY] = hangs
    for _ in range(WAITING_MAX):
        assert checks._waiting.acquire(blocking=False)
    monkeypatch.setattr("metaservice.rpc.auth.oidc.FETCH_S", 30.0)
    with pytest.raises(MetaError, match="too many calls wait"):
        checks.verify(token(issuer))


# -- the way there -----------------------------------------------------------------------------------------------------


def test_questions_go_by_tls_to_who_the_authority_knows(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    pair = authority.issue("provider")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    with odd_server(tls) as server:
        server.answers["/x"], server.answers["/slow"] = said({"a": 1}), drips
        assert ask_json(f"{server.url}/x", 30, 100, ca_file=str(authority.file)) == {"a": 1}
        for path, within_s, trusted in (("/x", 30, other), ("/slow", 0.3, authority)):
            with pytest.raises(ForeignUnusable):
                ask_json(f"{server.url}{path}", within_s, 100, ca_file=str(trusted.file))


def test_questions_go_through_a_proxy_whatever_it_is(issuer: OddServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, issuer.url)
    issuer.answers["http://provider.test/x"] = said({"a": 1})
    assert ask_json("http://provider.test/x", 30, 100) == {"a": 1}
    for answer in (
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\ngarbage",
        b"",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    ):
        issuer.answers["provider.test:443"] = answer
        with pytest.raises(ForeignUnusable):
            ask_json("https://provider.test/x", 30, 100)


# -- a policy ----------------------------------------------------------------------------------------------------------


def role_of(url: str) -> str:
    policy = ExternalPolicy(url, 0, lambda _: "", lambda: 0.0)
    try:
        return policy.role(Identity("ana"), "shop").name
    except MetaError as refusal:
        assert refusal.kind is ErrorKind.UNAVAILABLE  # noqa: PT017
        return refusal.reason


@pytest.mark.parametrize("name", ODD_ANSWERS)
def test_a_policy_that_answers_garbage_is_its_callers_refusal(issuer: OddServer, name: str) -> None:
    issuer.answers["/role"] = ODD_ANSWERS[name]
    assert role_of(f"{issuer.url}/role") == "POLICY_UNREACHABLE"


@pytest.mark.parametrize("slow", [hangs, drips])
def test_a_policy_has_one_deadline(issuer: OddServer, slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaservice.rpc.auth.role_policy.ASK_S", 0.3)
    issuer.answers["/role"] = slow
    assert role_of(f"{issuer.url}/role") == "POLICY_UNREACHABLE"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(VALUES)
def test_any_answer_of_a_policy_is_a_role_or_refused(result: object) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("metaservice.rpc.auth.role_policy.ask_json", lambda *_, **__: {"result": result})
        assert role_of("http://policy.test/role") in ("NONE", "POLICY_UNREACHABLE")


# -- a certificate -----------------------------------------------------------------------------------------------------


class Shown:
    """The context of a call with a client's certificate."""

    def __init__(self, names: list[bytes]) -> None:
        self._names = names

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"transport_security_type": [b"ssl"], "x509_subject_alternative_name": self._names}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=300), max_size=4), st.text(max_size=20))
def test_any_certificate_is_a_name_or_refused(names: list[bytes], bearer: str) -> None:
    known = Identities(None, None, by_certificate=True, admins=frozenset(), owner="owner", now_us=lambda: 0)
    context: Any = Shown(names)
    for metadata in ({}, {"authorization": f"Bearer {bearer}"}, {"authorization": bearer}):
        try:
            found = known.of_call(context, metadata)
        except MetaError as refusal:
            assert refusal.kind is ErrorKind.DENIED  # noqa: PT017
        else:
            assert found.principal.encode() in names or "�" in found.principal


class Broken:
    """A verifier with a bug that a token finds."""

    changes = 0

    def verify(self, _token: str) -> Identity:
        raise RecursionError


def test_whatever_a_proof_does_to_its_reader_is_a_refusal() -> None:
    known = Identities(None, Broken(), by_certificate=False, admins=frozenset(), owner="owner", now_us=lambda: 0)
    context: Any = Shown([])
    with pytest.raises(MetaError, match="TOKEN_INVALID"):
        known.of_call(context, {"authorization": "Bearer x"})


# -- S3 ----------------------------------------------------------------------------------------------------------------


PLACE = ObjectPlace("bucket", "lake")


class Body:
    def __init__(self, raw: bytes | Exception) -> None:
        self._raw = raw

    def read(self, size: int) -> bytes:
        if isinstance(self._raw, Exception):
            raise self._raw
        part, self._raw = self._raw[:size], self._raw[size:]
        return part


ODD_OF_S3: dict[str, object] = {
    "not parsed": RuntimeError("invalid XML"),
    "nothing": {},
    "no body": {"ETag": "x"},
    "no text": {"Body": Body(b"\xff"), "ETag": "x"},
    "can't be read": {"Body": Body(RuntimeError("IncompleteRead")), "ETag": "x"},
    "deep": {"Body": Body(DEEP), "ETag": "x"},
    "endless": {"Body": Body(b'{"holder": "' + b"x" * 100_000), "ETag": "x"},
    "no number": {"Body": Body(b'{"epoch": 1e400}'), "ETag": "x"},
    "an error without words": ClientError({}, "GetObject"),
}


class OddS3:
    def __init__(self, answer: object) -> None:
        self._answer = copy.deepcopy(answer)  # its body is read once

    def __getattr__(self, _name: str) -> Any:
        return self._said

    def _said(self, **_: object) -> object:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize("name", ODD_OF_S3)
def test_s3_that_answers_garbage_is_a_lease_that_cant_be_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_object, "s3_client", lambda: OddS3(ODD_OF_S3[name]))
    lease = LeaseInBucket(PLACE)
    with pytest.raises(OSError, match="can't be read"):
        lease.read()
    answer = ODD_OF_S3[name]
    if not (isinstance(answer, dict) and "ETag" in answer):
        with pytest.raises(OSError, match="can't be written"):
            lease.write(Lease("a", "b", 1, 1, 1, 1), None)


@pytest.mark.parametrize("name", ODD_OF_S3)
def test_s3_that_answers_garbage_is_a_repository_that_cant_be_reached(name: str) -> None:
    objects = BucketObjects(PLACE)
    odd: Any = OddS3(ODD_OF_S3[name])
    objects._s3 = objects._transfers = odd
    if name in ("deep", "endless", "no number", "no text"):
        with pytest.raises(BackupUnusable):
            decode_manifest(objects.get("x"), "here")
        return
    with pytest.raises(RepositoryUnreachable):
        objects.get("x")


@pytest.mark.parametrize("name", ODD_OF_S3)
def test_s3_that_answers_garbage_is_notes_that_cant_be_listed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_notes, "s3_client", lambda: OddS3(ODD_OF_S3[name]))
    notes = NotesInBucket(PLACE)
    if not isinstance(ODD_OF_S3[name], Exception):
        assert notes.list_tags() == {}
        return
    with pytest.raises(OSError, match="can't be listed"):
        notes.list_tags()


@pytest.mark.parametrize("name", ODD_OF_S3)
def test_s3_that_answers_garbage_is_a_log_that_cant_be_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_record, "s3_client", lambda _: OddS3(ODD_OF_S3[name]))
    with pytest.raises(StoreUnusable, match=STORE_UNREACHABLE):
        find_log(PLACE)


CREDENTIALS = {"AccessKeyId": "a", "SecretAccessKey": "b", "SessionToken": "c", "Expiration": datetime.now(UTC)}
ODD_OF_STS: dict[str, object] = {
    **ODD_OF_S3,
    "a text": {"Credentials": "x"},
    "no secret": {"Credentials": {**CREDENTIALS, "SecretAccessKey": None}},
    "no time": {"Credentials": {**CREDENTIALS, "Expiration": "soon"}},
    "too late": {"Credentials": {**CREDENTIALS, "Expiration": 1e400}},
}


@pytest.mark.parametrize("name", ODD_OF_STS)
def test_a_token_service_that_answers_garbage_is_its_callers_refusal(name: str) -> None:
    tokens = StorageTokens(TokenSettings("arn:aws:iam::1:role/lake", 3_600, "", "", "us-east-1"), lambda: 0)
    odd: Any = OddS3(ODD_OF_STS[name])
    tokens._sts = odd
    folder = folder_of("s3://lake/files", str(uuid4()))
    assert folder is not None
    with pytest.raises(MetaError, match="STORAGE_TOKENS_UNREACHABLE"):
        tokens.credentials("ana", folder, write=False)
    fine: Any = OddS3({"Credentials": CREDENTIALS})
    tokens._sts = fine
    assert tokens.credentials("ana", folder, write=False).session_token == "c"


def test_a_body_that_breaks_off_is_said_not_cut() -> None:
    """botocore tells at the end of a body whether bytes are missing."""
    raw = HTTPResponse(io.BytesIO(b'{"a": 1}'), headers={"content-length": "100"}, preload_content=False)
    with pytest.raises(Exception, match="IncompleteRead"):
        read_whole(StreamingBody(raw, 100), 1_000)
    with pytest.raises(ForeignUnusable):
        read_whole(io.BytesIO(b"x" * 11), 10)
    assert read_whole(io.BytesIO(b"x" * 10), 10) == b"x" * 10


def test_numbers_that_are_read_fit_the_wire() -> None:
    assert read_json(str((1 << 63) - 1).encode()) < 1 << 63
    assert math.isfinite(read_json(b"1e308"))
