"""The console's questions to a provider of OpenID Connect: whatever it answers is read within bounds, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.provider import CLIENT, PATHS, Answer, Provider, provider, raw
from tests.integration.certificates import Authority
from tests.integration.odd_server import ODD_ANSWERS, drips, hangs, odd_server, said
from worker.console import provider as asking
from worker.console.provider import ProviderAwayError, ProviderError, ProviderSettings, challenge_of
from worker.console.provider_login import ProviderLogin
from worker.console.sessions import Sessions

DISCOVERY = "/.well-known/openid-configuration"
HOME = "http://127.0.0.1:8480"
SHORT_S = 0.5


@pytest.fixture(scope="module")
def opened() -> Iterator[Provider]:
    with provider() as made:
        yield made


@pytest.fixture
def liar(opened: Provider, monkeypatch: pytest.MonkeyPatch) -> Provider:
    monkeypatch.setattr(asking, "ASK_S", SHORT_S)
    opened.lie()
    return opened


def settings_of(liar: Provider, bearer: str = "id", ca_file: str = "") -> ProviderSettings:
    return ProviderSettings(liar.issuer, CLIENT, f"{HOME}/login/callback", bearer=bearer, ca_file=ca_file)


def redeem(liar: Provider, bearer: str = "id", nonce: str = "n", ca_file: str = "") -> asking.Grant:
    """The tokens of somebody who logs in with the verifier v."""
    made = asking.Provider(settings_of(liar, bearer, ca_file))
    asked = {"redirect_uri": made.settings.redirect_uri, "nonce": "n"}
    liar.codes["c"] = asked | {"user": "ana", "code_challenge": challenge_of("v"), "code_challenge_method": "S256"}
    return made.redeem("c", "v", nonce)


def test_the_challenge_is_that_of_the_standard() -> None:
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"nonce": "x"}, "of another login"),
        ({"nonce": None}, "of another login"),
        ({"iss": "https://evil.example"}, "of another issuer"),
        ({"aud": "another"}, "for another client"),
        ({"aud": [CLIENT, "another"]}, "for another client"),
        ({"aud": {}}, "for another client"),
        ({"azp": "another"}, "for another client"),
        ({"exp": 1}, "is over"),
        ({"exp": True}, "is over"),
        ({"exp": None}, "is over"),
        ({"exp": 10**30}, "64 bits"),
        ({"sub": ""}, "names nobody"),
        ({"sub": ["ana"]}, "names nobody"),
        ({"deep": json.loads("[" * 40 + "]" * 40)}, "nests deeper"),
    ],
)
def test_an_id_token_that_is_not_for_this_login_is_refused(liar: Provider, claims: dict[str, Any], words: str) -> None:
    assert redeem(liar).subject == "ana"
    liar.lie(claims=claims)
    with pytest.raises(ProviderError, match=words):
        redeem(liar)


def test_an_id_token_for_several_names_the_party_that_asked(liar: Provider) -> None:
    liar.lie(claims={"aud": ["another", CLIENT], "azp": CLIENT})
    assert redeem(liar).subject == "ana"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (raw(b""), ProviderAwayError),
        (raw(b"{}"), ProviderError),
        (raw(b'{"id_token": 7, "access_token": {}}'), ProviderError),
        (raw(b'{"id_token": "a.%%%.c"}'), ProviderError),
        (raw(b'{"id_token": "a.bm9qc29u.c"}'), ProviderError),
        (raw(b"{}", 302, location="https://evil.example/"), ProviderAwayError),
        (raw(b"<html>", 500), ProviderAwayError),
        (raw(b"", 429), ProviderAwayError),
        (raw(b"[" * 100_000, 400), ProviderError),
    ],
)
def test_tokens_that_can_not_be_used_are_a_refusal(liar: Provider, answer: Answer, kind: type[ProviderError]) -> None:
    liar.lie(answers={PATHS["token"]: answer})
    with pytest.raises(ProviderError) as caught:
        redeem(liar)
    assert type(caught.value) is kind, caught.value
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", [*ODD_ANSWERS, "hang", "drip"])
def test_garbage_of_a_provider_is_a_refusal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ASK_S", SHORT_S)
    answer = {"hang": hangs, "drip": drips}.get(name) or ODD_ANSWERS[name]
    with odd_server() as odd:
        made = asking.Provider(ProviderSettings(odd.url, CLIENT, f"{HOME}/login/callback"))
        odd.answers = {DISCOVERY: answer}
        with pytest.raises(ProviderAwayError, match="can't be used for logins"):
            made.offer()
        endpoints = {"authorization_endpoint": f"{odd.url}/a", "token_endpoint": f"{odd.url}/token"}
        odd.answers = {DISCOVERY: said({"issuer": odd.url, **endpoints}), "/token": answer}
        with pytest.raises(ProviderAwayError, match="gave no tokens"):
            made.redeem("c", "v", "n")


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"authorization_endpoint": "http://evil.example/authorize"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": f"https://evil.example/{'x' * 5_000}"},
        {"token_endpoint": "ftp://evil.example"},
        {"token_endpoint": 7},
        {"token_endpoint": "https://a@evil.example/"},
        {"token_endpoint": "https://evil.example/\r\nx"},
        {"token_endpoint": "https://[evil"},
        {"end_session_endpoint": "http://evil.example"},
        {"code_challenge_methods_supported": ["plain"]},
        {"code_challenge_methods_supported": "S256"},
    ],
)
def test_what_a_provider_offers_has_to_be_safe(liar: Provider, document: dict[str, Any]) -> None:
    liar.lie(document=document)
    with pytest.raises(ProviderAwayError, match="can't be used for logins"):
        redeem(liar)
    assert liar.forms == []


def test_the_access_token_is_the_bearer_where_the_settings_say_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ca_file = str(authority.file)
    with provider(authority.issue("provider")) as secure:
        grant = redeem(secure, "access", ca_file=ca_file)
        assert (grant.bearer, grant.subject) == ("opaque", "ana")
        with pytest.raises(ProviderError, match="of another login"):
            redeem(secure, "access", nonce="another", ca_file=ca_file)


def test_an_id_token_is_signed_for_somebody_who_looks_or_comes_over_tls(liar: Provider) -> None:
    """The service sees an access token alone, so that over plain http nobody would know who signed the ID token."""
    with pytest.raises(ProviderAwayError, match="nobody would check the ID token's signature"):
        redeem(liar, "access")
    assert liar.forms == [], "no code was sent on"


def test_a_renewed_token_is_of_the_same_person(liar: Provider) -> None:
    made, grant = asking.Provider(settings_of(liar)), redeem(liar)
    renewed = made.renew(grant)
    assert (renewed.subject, renewed.refresh != grant.refresh) == ("ana", True)
    with pytest.raises(ProviderError, match="invalid_grant"):
        made.renew(grant)
    liar.refreshes["planted"] = "boss"
    with pytest.raises(ProviderError, match="somebody else"):
        made.renew(asking.Grant(grant.bearer, "planted", "ana", 1.0))


def test_a_provider_that_is_away_is_asked_for_a_token_again_later(liar: Provider) -> None:
    now_s = 0.0
    sessions = Sessions(lambda: now_s, "console", is_secure=True)
    login = ProviderLogin(asking.Provider(settings_of(liar)), sessions, lambda: now_s)
    session = sessions.find(sessions.begin("first", "ana", redeem(liar)))
    assert session is not None
    login.renew(session)
    assert (len(liar.forms), session.token) == (1, "first"), "it is not due"
    now_s = 545.0  # of 600 s
    liar.answers[PATHS["token"]] = raw(b"", 503)
    login.renew(session)
    assert not login.is_due(session)
    liar.answers.clear()
    now_s += 11.0
    login.renew(session)
    assert session.token != "first"
    before = session.token
    liar.refreshes.clear()
    now_s += 545.0
    login.renew(session)
    now_s += 10_000.0
    login.renew(session)
    assert session.token == before
    assert [form["grant_type"] for form in liar.forms[1:]] == ["refresh_token", "refresh_token"]


def test_a_login_is_over_after_ten_minutes(liar: Provider) -> None:
    now_s = 0.0
    sessions = Sessions(lambda: now_s, "console", is_secure=True)
    login = ProviderLogin(asking.Provider(settings_of(liar)), sessions, lambda: now_s)
    login_id = login.begin_id("/tables")
    cookies = {"__Host-console_login": sessions.login_cookie_of(login_id).partition("=")[2].partition(";")[0]}
    query = {"state": sessions.login_secret("state", login_id), "code": "c"}
    now_s = 601.0
    with pytest.raises(ProviderError, match="too long ago"):
        login.returned(cookies, query)
    now_s = 599.0
    assert login.returned(cookies, query).target == "/tables"
    with pytest.raises(ProviderError, match="too long ago"):
        login.returned(cookies, query)
