"""Logins at a provider of OpenID Connect, and attacks on them: codes and states of others, and a provider that lies."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from metaservice.cli import command_line
from tests.console.browser import Browser
from tests.console.provider import CLIENT, PATHS, SECRET, Provider, drip, hang, provider, raw
from tests.console.visitor import Console, Visitor, console, text_of
from tests.integration.callers import Guarded, guarded
from tests.integration.service import free_address

DISCOVERY = "/.well-known/openid-configuration"
MOST_S = 60.0  # of a loaded machine; a provider that hangs is given up after 5 s


@dataclass(frozen=True)
class Door:
    """A service that takes the provider's tokens, and its console."""

    provider: Provider
    service: Guarded
    console: Console
    options: tuple[str, ...]

    def begin(self, target: str = "/") -> tuple[Visitor, httpx.Response]:
        """Somebody on the way to the provider."""
        visitor = self.console.visitor()
        link = html.unescape(
            re.findall(r'href="([^"]+/login/provider[^"]*)"', visitor.page(f"/login?next={target}"))[0]
        )
        return visitor, visitor.get(link)

    def authorized(self, target: str = "/") -> tuple[Visitor, str]:
        """Somebody who logged in at the provider, and the address that leads back."""
        visitor, sent = self.begin(target)
        assert sent.status_code == 303, sent.text
        return visitor, httpx.get(sent.headers["location"]).headers["location"]

    def log_in(self, target: str = "/") -> tuple[Visitor, httpx.Response]:
        visitor, back = self.authorized(target)
        return visitor, visitor.get(back)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with provider() as made:
        flags = ("--oidc-issuer", made.issuer, "--oidc-audience", CLIENT)
        with guarded(tmp_path_factory.mktemp("provider") / "data", *flags) as service:
            service.grant("user:ana", "admin")
            options = ("--oidc-issuer", made.issuer, "--oidc-client-id", CLIENT)
            with console("--server", service.service.address, options=options) as served:
                yield Door(made, service, served, options)


@pytest.fixture
def door(opened: Door) -> Door:
    opened.provider.lie()
    return opened


def asked_of(sent: httpx.Response) -> dict[str, str]:
    return {name: texts[0] for name, texts in parse_qs(urlsplit(sent.headers["location"]).query).items()}


def is_in(visitor: Visitor) -> bool:
    return visitor.get("/").status_code == 200


def check_refused(visitor: Visitor, answer: httpx.Response, *words: str, status: int = 403) -> None:
    """The login failed, in words, and opened nothing."""
    assert answer.status_code == status, text_of(answer.text)
    assert [word for word in words if word not in text_of(answer.text)] == [], text_of(answer.text)
    assert not is_in(visitor)


# -- who may come in


def test_a_login_at_the_provider_opens_a_session(door: Door) -> None:
    visitor, answer = door.log_in("/tables?q=a")
    assert answer.status_code == 200
    assert 'content="0;url=/tables?q=a"' in answer.text
    assert "ana" in visitor.read("/")
    assert door.provider.forms[0]["grant_type"] == "authorization_code"


def test_the_request_has_a_state_a_nonce_and_a_challenge(door: Door) -> None:
    _, first = door.begin()
    _, second = door.begin()
    asked, other = asked_of(first), asked_of(second)
    assert (asked["response_type"], asked["code_challenge_method"], asked["scope"]) == ("code", "S256", "openid")
    assert asked["redirect_uri"] == f"{door.console.url}/login/callback"
    for secret in ("state", "nonce", "code_challenge"):
        assert len(asked[secret]) >= 43
        assert asked[secret] != other[secret], secret
    assert len({asked[secret] for secret in ("state", "nonce", "code_challenge")}) == 3


def test_the_cookie_of_a_login_comes_back_and_opens_nothing(door: Door) -> None:
    _, sent = door.begin()
    cookie = sent.headers["set-cookie"]
    assert re.search(r"_login=[^;]+; Path=/; Max-Age=600; HttpOnly; SameSite=Lax$", cookie)
    assert "Domain" not in cookie
    name, _, value = cookie.partition(";")[0].partition("=")
    planted = httpx.get(f"{door.console.url}/", headers={"cookie": f"{name.removesuffix('_login')}={value}"})
    assert planted.status_code == 303


def test_a_session_has_a_new_id_after_the_login_and_the_one_before_ends(door: Door) -> None:
    visitor, _ = door.log_in()
    name, before = visitor.session_cookie
    link = f"{door.console.url}/login/provider"
    back = httpx.get(visitor.get(link).headers["location"]).headers["location"]
    assert visitor.get(back).status_code == 200
    assert visitor.session_cookie[1] != before
    old = httpx.get(f"{door.console.url}/", headers={"cookie": f"{name}={before}"})
    assert old.status_code == 303, "the session of before the login ended"


def test_a_login_goes_on_within_the_console_alone(door: Door) -> None:
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:evil", "/\t/evil"):
        visitor = door.console.visitor()
        sent = visitor.http.get("/login/provider", params={"next": target})
        answer = visitor.get(httpx.get(sent.headers["location"]).headers["location"])
        assert 'content="0;url=/"' in answer.text, target
        assert "evil" not in answer.text


def test_somebody_whom_the_service_does_not_know_is_refused(door: Door) -> None:
    door.provider.lie(claims={"sub": "not a name\n"})
    visitor, answer = door.log_in()
    check_refused(visitor, answer, "the service doesn't take the token")


def test_a_client_with_a_secret_shows_it(door: Door, tmp_path: Path) -> None:
    door.provider.lie(secret=SECRET)
    file = tmp_path / "secret"
    visitor, answer = door.log_in()
    check_refused(visitor, answer, "invalid_client")
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    options = (*door.options, "--oidc-client-secret-file", str(file))
    with console("--server", door.service.service.address, options=options) as served:
        visitor, answer = Door(door.provider, door.service, served, options).log_in()
        assert answer.status_code == 200
        assert SECRET not in visitor.page("/")
        assert SECRET not in str(door.provider.forms)


def test_a_logout_ends_the_session_and_leads_to_the_logout_of_the_provider(door: Door) -> None:
    visitor, _ = door.log_in()
    name, value = visitor.session_cookie
    answer = visitor.post("/logout", {"form_token": visitor.form_token("/")})
    match = re.search(r'content="0;url=([^"]+)"', answer.text)
    assert match is not None
    url = html.unescape(match[1])
    assert url.startswith(f"{door.provider.issuer}{PATHS['end_session']}?")
    assert parse_qs(urlsplit(url).query)["post_logout_redirect_uri"] == [f"{door.console.url}/login"]
    assert "id_token_hint" not in url, "the service takes that token"
    copied = httpx.get(f"{door.console.url}/", headers={"cookie": f"{name}={value}"})
    assert copied.status_code == 303


@pytest.mark.long
def test_a_token_is_renewed_before_it_is_over(door: Door) -> None:
    door.provider.lie(valid_s=12)
    visitor, _ = door.log_in()
    until_s = time.monotonic() + MOST_S
    while len(door.provider.forms) < 2:
        assert is_in(visitor)
        assert time.monotonic() < until_s
        time.sleep(0.2)
    assert [form["grant_type"] for form in door.provider.forms] == ["authorization_code", "refresh_token"]
    assert "ana" in visitor.read("/")


def test_a_browser_goes_to_another_site_and_back_in_and_out(door: Door, chrome: Browser) -> None:
    """By keyboard, with reload and back. Cookies that a browser would not send are no matter."""
    is_there = (
        "location.pathname === '/tables' && location.search === '?q=a' && document.querySelector('.log-out button')"
    )
    chrome.forget()
    chrome.open(f"{door.console.url}/tables?q=a")
    chrome.wait("location.pathname === '/login' && document.querySelector('a.button')")
    while not chrome.run("document.activeElement.classList.contains('button')"):
        chrome.press("Tab")
    chrome.press("Enter")
    chrome.wait(f"document.readyState === 'complete' && {is_there}")
    assert "ana" in chrome.run("document.querySelector('.user').textContent")
    assert chrome.run("document.cookie") == "", "no script can read a cookie"
    chrome.reload()
    chrome.wait(is_there)
    chrome.run("history.back()")
    chrome.wait(f"document.readyState === 'complete' && {is_there}")  # the login form sends on who is in
    chrome.run("document.querySelector('.log-out button').focus()")
    chrome.press("Enter")
    chrome.wait(f"location.href.startsWith('{door.provider.issuer}{PATHS['end_session']}')")
    chrome.open(f"{door.console.url}/tables")
    chrome.wait("location.pathname === '/login'")
    assert chrome.problems == []
    assert {urlsplit(each).netloc for each in chrome.requests} == {
        door.console.host,
        urlsplit(door.provider.issuer).netloc,
    }


# -- codes and states of others


def test_a_state_counts_in_the_browser_that_began_it_alone(door: Door) -> None:
    """A login of the attacker can't be finished in the browser of the victim, nor a login of the victim elsewhere."""
    _, back_of_attacker = door.authorized()
    victim = door.console.visitor()
    check_refused(victim, victim.get(back_of_attacker), "begun in another browser")
    begun, _ = door.begin()
    check_refused(begun, begun.get(back_of_attacker), "begun in another browser")
    assert door.provider.forms == [], "no code was sent on"


@pytest.mark.parametrize("state", ["", "-", "0" * 64, "\u00e9", "x" * 5_000])
def test_a_state_that_somebody_made_is_refused(door: Door, state: str) -> None:
    door.provider.lie(back={"state": state})
    visitor, answer = door.log_in()
    check_refused(visitor, answer, "begun in another browser")
    assert door.provider.forms == []


def test_a_state_counts_once(door: Door) -> None:
    visitor, back = door.authorized()
    cookies = dict(visitor.http.cookies)
    assert visitor.get(back).status_code == 200
    again = door.console.visitor()
    again.http.cookies.update(cookies)
    check_refused(again, again.get(back), "begun in another browser, or too long ago")


@pytest.mark.parametrize("has_pkce", [True, False])
def test_the_code_of_another_login_is_refused(door: Door, has_pkce: bool) -> None:
    """By the provider, which compares the verifier, and by the console, which compares the nonce."""
    door.provider.lie(has_pkce=has_pkce)
    _, stolen = door.authorized()
    visitor, back = door.authorized()
    mixed = {name: texts[0] for name, texts in parse_qs(urlsplit(back).query).items()}
    mixed["code"] = parse_qs(urlsplit(stolen).query)["code"][0]
    answer = visitor.get(f"/login/callback?{urlencode(mixed)}")
    check_refused(visitor, answer, "invalid_grant" if has_pkce else "of another login")


@pytest.mark.parametrize("issuer", ["https://evil.example", ""])
def test_the_answer_of_another_provider_is_refused(door: Door, issuer: str) -> None:
    door.provider.lie(back={"iss": issuer})
    visitor, answer = door.log_in()
    check_refused(visitor, answer, "of another provider")
    assert door.provider.forms == [], "its code went nowhere"


def test_an_error_of_the_provider_is_said_and_never_its_text(door: Door) -> None:
    for error, words in (("access_denied", "access_denied"), ("<b>call 0900</b>", "it says no reason")):
        door.provider.lie(back={"error": error, "error_description": "<b>call 0900</b>"})
        visitor, answer = door.log_in()
        check_refused(visitor, answer, words)
        assert "0900" not in answer.text


# -- a provider that can't be used


def test_a_login_that_fails_is_said_in_words_and_the_next_one_works(door: Door) -> None:
    door.provider.lie(claims={"nonce": "x"})
    check_refused(*door.log_in(), "of another login")
    for answer, status in ((raw(b"[" * 100_000), 503), (raw(b"{}"), 403), (hang, 503)):
        door.provider.lie(answers={PATHS["token"]: answer})
        check_refused(*door.log_in(), door.provider.issuer.partition("//")[2], status=status)
    door.provider.lie()
    assert door.log_in()[1].status_code == 200


@pytest.mark.long
def test_a_provider_that_can_not_be_used_is_said(door: Door) -> None:
    with console("--server", door.service.service.address, options=door.options) as served:
        away = Door(door.provider, door.service, served, door.options)
        for answer in (raw(b"garbage"), drip):
            door.provider.lie(answers={DISCOVERY: answer})
            check_refused(*away.begin(), "can't be used for logins", status=503)
        visitor = served.visitor()
        assert visitor.log_in(door.service.token("etl")).status_code == 200, "a token logs in meanwhile"
        door.provider.lie(back={"iss": "-"}, document={"authorization_response_iss_parameter_supported": True})
        check_refused(*away.log_in(), "names no provider")
        assert door.provider.forms == []
        door.provider.lie()
        assert away.log_in()[1].status_code == 200


# -- settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--oidc-issuer", "https://login.example"), "--oidc-client-id"),
        (("--oidc-client-id", "c"), "--oidc-issuer"),
        (("--oidc-client-id", "c", "--oidc-issuer", "http://login.example"), "no https address"),
        (("--oidc-client-id", "c", "--oidc-issuer", "https://i", "--oidc-scopes", "email"), "must contain openid"),
        (("--oidc-client-id", "c", "--oidc-issuer", "https://i", "--oidc-client-secret-file", "/no"), "/no"),
        (("--public-url", "https://c.example/console"), "no https://host"),
        (("--public-url", "http://c.example"), "no https://host"),
    ],
)
def test_settings_that_can_not_work_are_refused(
    door: Door, capfd: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    server = ("--server", door.service.service.address)
    assert command_line.run([*server, "console", "--listen", "127.0.0.1:0", *options], {}) != 0
    assert words in capfd.readouterr().err


def test_a_folder_has_no_logins_at_a_provider(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for options in (("--oidc-client-id", "c", "--oidc-issuer", "https://i"), ("--public-url", "https://c.example")):
        assert (
            command_line.run(["--folder", f"{tmp_path}/lake", "console", "--listen", "127.0.0.1:0", *options], {}) != 0
        )
        assert "asks for" in capfd.readouterr().err


def test_behind_a_proxy_the_public_address_counts(door: Door) -> None:
    """The environment names it and the provider. Cookies are bound to the host, and the provider sends people there."""
    environment = {
        "LAKETX_OIDC_ISSUER": door.provider.issuer,
        "LAKETX_OIDC_CLIENT_ID": CLIENT,
        "LAKETX_PUBLIC_URL": "https://console.example",
    }
    listen = free_address()
    options = ("--listen", listen)
    with console("--server", door.service.service.address, environment=environment, options=options) as served:
        assert served.url == "https://console.example"
        url = f"http://{listen}/login/provider"
        sent = httpx.get(url, headers={"host": "console.example"})
        assert asked_of(sent)["redirect_uri"] == "https://console.example/login/callback"
        assert sent.headers["set-cookie"].startswith("__Host-laketx_console")
        assert sent.headers["set-cookie"].endswith("; SameSite=Lax; Secure")
        assert httpx.get(url, headers={"host": "evil.example"}).status_code == 421
