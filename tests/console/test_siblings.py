"""A sibling of the console's host that somebody else runs: it plants cookies, and asks for what the console shows.

Both are subdomains of one domain, so that the browser calls them the same site, and sends along `SameSite` cookies.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import Browser
from tests.console.conftest import Shared
from tests.console.visitor import Console, Visitor, console
from tests.integration.certificates import Authority, Pair
from tests.integration.service import free_address

DOMAIN = "console.localhost"  # and all below it are this machine, to Chromium


@dataclass
class Sibling:
    """Its page, the cookies that it sets, and those that came along with requests to it."""

    url: str = ""
    cookies: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)


@contextmanager
def sibling(pair: Pair) -> Iterator[Sibling]:
    made = Sibling()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.heard.append(self.headers.get("cookie", ""))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            for cookie in made.cookies:
                self.send_header("set-cookie", cookie)
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>sibling</title><link rel=icon href=data:,>")

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    made.url = f"https://evil.{DOMAIN}:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Authority(tmp_path).issue("both", [f"lake.{DOMAIN}", f"evil.{DOMAIN}"])


@pytest.fixture
def lake(shared: Shared, pair: Pair) -> Iterator[Console]:
    """The console at a subdomain, over TLS."""
    listen = free_address()
    url = f"https://lake.{DOMAIN}:{listen.rpartition(':')[2]}"
    options = ("--listen", listen, "--public-url", url, *pair.flags)
    with console("--server", shared.service.service.address, options=options) as served:
        assert served.url == url
        yield served


def test_a_sibling_subdomain_plants_no_session_and_takes_none(
    shared: Shared, lake: Console, pair: Pair, chrome: Browser
) -> None:
    chrome.forget()
    chrome.call("Security.setIgnoreCertificateErrors", ignore=True)
    try:
        with sibling(pair) as evil:
            check_planted(shared, lake, evil, chrome)
            log_in(shared, lake, chrome)
            check_taken(lake, evil, chrome)
    finally:
        chrome.call("Security.setIgnoreCertificateErrors", ignore=False)
        chrome.forget()


def check_planted(shared: Shared, lake: Console, evil: Sibling, chrome: Browser) -> None:
    """The session of the attacker, under each name that a sibling can give it, is nobody's in the victim's browser."""
    name, value = attacker(shared, lake)
    assert name.startswith("__Host-")
    plain = name.removeprefix("__Host-")
    evil.cookies = [
        f"{each}={value}; Domain={DOMAIN}; Path=/; Secure; SameSite=None" for each in (name, plain, f"{name}_form")
    ]
    evil.cookies += [f"{each}={value}; Domain={DOMAIN}; Path=/" for each in ("__host-x", plain.upper(), f"={name}")]
    chrome.open(evil.url)
    chrome.open(evil.url)
    planted = evil.heard[-1]
    assert f"{plain}={value}" in planted, "the attack is one: the browser has the cookie of the domain"
    assert name not in planted, "but under no name of the console"
    chrome.open(f"{lake.url}/tables")
    chrome.wait("location.pathname === '/login'")


def attacker(shared: Shared, lake: Console) -> tuple[str, str]:
    """The cookie of somebody who is logged in."""
    visitor = Visitor(Console(lake.process, lake.address.replace(f"lake.{DOMAIN}", "127.0.0.1")), verify=False)
    visitor.http.headers["host"] = lake.host
    visitor.log_in(shared.service.token("mallory"))
    cookie = visitor.session_cookie
    visitor.close()
    return cookie


def log_in(shared: Shared, lake: Console, chrome: Browser) -> None:
    chrome.run("document.querySelector('#token').focus()")
    chrome.call("Input.insertText", text=shared.reader_token)
    chrome.press("Enter")
    chrome.wait("location.pathname === '/tables' && document.body.textContent.includes('shop.open')")
    assert "rea" in chrome.run("document.querySelector('.user').textContent"), "not the attacker's session"


def check_taken(lake: Console, evil: Sibling, chrome: Browser) -> None:
    """The sibling gets no cookie, reads no page, frames none and sends no form."""
    evil.heard.clear()
    chrome.open(evil.url)
    assert evil.heard
    assert not [each for each in evil.heard if "__Host-" in each], evil.heard
    reads = f"fetch('{lake.url}/tables', {{credentials: 'include'}}).then(answer => answer.text(), () => 'refused')"
    assert chrome.run(reads) == "refused"
    chrome.run(f"""new Promise(done => {{
      const frame = document.createElement('iframe');
      frame.src = '{lake.url}/tables';
      frame.onload = done;
      document.body.append(frame);
    }})""")
    assert chrome.run("window.frames[0].length") == 0
    framed = chrome.run("(() => { try { return frames[0].document.body.innerText } catch { return 'refused' } })()")
    assert framed in ("refused", "")
    chrome.run(f"""(() => {{
      const form = document.createElement('form');
      form.method = 'post';
      form.action = '{lake.url}/logout';
      document.body.append(form);
      form.submit();
    }})()""")
    chrome.wait("document.body.innerText.includes('another site')")
    chrome.open(f"{lake.url}/tables")
    chrome.wait("location.pathname === '/tables' && document.body.textContent.includes('shop.open')")
