"""A provider of OpenID Connect in a process of its own (oidc-provider-mock), and the tokens that it gives."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.conformance.server import stop
from tests.integration.service import TIMEOUT_S, free_address

REDIRECT = "http://127.0.0.1:1/done"


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass
class Provider:
    """A running provider; `restart` gives it another key."""

    address: str
    users: tuple[dict[str, Any], ...]
    process: subprocess.Popen[bytes] | None = None

    @property
    def issuer(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        host, port = self.address.split(":")
        users = [word for one in self.users for word in ("--user-claims", json.dumps(one))]
        command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-H", host, "-p", port, *users]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                urllib.request.urlopen(f"{self.issuer}/.well-known/openid-configuration", timeout=TIMEOUT_S).close()
            except OSError:
                assert self.process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)  # type: ignore[arg-type]  # of bytes, which it doesn't read

    def restart(self) -> None:
        self.stop()
        self.start()

    def token(self, user: str, audience: str) -> str:
        """An ID token: the user signs in, the code is exchanged."""
        asked = {"client_id": audience, "redirect_uri": REDIRECT, "response_type": "code", "scope": "openid"}
        url = f"{self.issuer}/oauth2/authorize?{urllib.parse.urlencode(asked)}"
        opener = urllib.request.build_opener(_Stay)
        try:
            answer = opener.open(url, urllib.parse.urlencode({"sub": user}).encode(), timeout=TIMEOUT_S)
        except urllib.error.HTTPError as redirect:
            answer = redirect
        code = urllib.parse.parse_qs(urllib.parse.urlparse(answer.headers["Location"]).query)["code"][0]
        exchange = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT, "client_id": audience}
        body = urllib.parse.urlencode({**exchange, "client_secret": "any"}).encode()
        with urllib.request.urlopen(f"{self.issuer}/oauth2/token", body, timeout=TIMEOUT_S) as said:
            return str(json.load(said)["id_token"])


@contextmanager
def provider(*users: dict[str, Any]) -> Iterator[Provider]:
    made = Provider(free_address(), users)
    try:
        made.start()
        yield made
    finally:
        made.stop()
