"""A provider of OpenID Connect as an HTTP server, which can be made to lie, to hang and to answer garbage."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.integration.certificates import Pair

CLIENT = "laketx"
SECRET = "s3cret: of the client/"
PATHS = {"authorization": "/authorize", "token": "/token", "end_session": "/bye"}
Answer = Callable[[BaseHTTPRequestHandler], None]
KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@dataclass
class Provider:
    """Whoever goes to it is `user` at once. `answers` replace what a path answers, `claims` what an ID token claims."""

    issuer: str = ""
    user: str = "ana"
    valid_s: int = 600
    secret: str = ""  # that the client has to show
    has_pkce: bool = True  # it compares the verifier with the challenge
    answers: dict[str, Answer] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)  # more of the discovery document
    back: dict[str, str] = field(default_factory=dict)  # more of the address that it sends people back to
    forms: list[dict[str, str]] = field(default_factory=list)  # that came to the token endpoint
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refreshes: dict[str, str] = field(default_factory=dict)  # the user by the token

    def lie(self, **changes: Any) -> None:
        """Begins anew, with other answers than an honest one gives."""
        fresh = Provider(self.issuer)
        for name in self.__dataclass_fields__:
            setattr(self, name, changes.get(name, getattr(fresh, name)))

    def id_token(self, user: str, nonce: str) -> str:
        now_s = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": user, "iat": now_s, "exp": now_s + self.valid_s}
        claims |= {"jti": secrets.token_hex(8)} | ({"nonce": nonce} if nonce else {})
        return jwt.encode(claims | self.claims, KEY, "RS256", {"kid": "k"})

    def discovery(self) -> dict[str, Any]:
        endpoints = {f"{name}_endpoint": self.issuer + path for name, path in PATHS.items()}
        return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **endpoints, **self.document}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where somebody who logged in is sent back to."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked | {"user": self.user}
        back = {"code": code, "state": asked.get("state", ""), "iss": self.issuer} | self.back
        given = {name: text for name, text in back.items() if text != "-"}
        return f"{asked['redirect_uri']}?{urlencode(given)}"

    def tokens(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        self.forms.append(form)
        if self.secret and basic_of(authorization) != (CLIENT, self.secret):
            return 401, {"error": "invalid_client"}
        if form.get("grant_type") == "refresh_token":
            user = self.refreshes.pop(form["refresh_token"], None)
            return (400, {"error": "invalid_grant"}) if user is None else (200, self.granted(user, ""))
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or asked["redirect_uri"] != form.get("redirect_uri"):
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if self.has_pkce and (asked.get("code_challenge_method"), asked["code_challenge"]) != ("S256", challenge):
            return 400, {"error": "invalid_grant"}
        return 200, self.granted(asked["user"], asked.get("nonce", ""))

    def granted(self, user: str, nonce: str) -> dict[str, Any]:
        refresh = secrets.token_urlsafe(16)
        self.refreshes[refresh] = user
        token = self.id_token(user, nonce)
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": token, "refresh_token": refresh}


def basic_of(authorization: str) -> tuple[str, str]:
    kind, _, text = authorization.partition(" ")
    if kind != "Basic":
        return "", ""
    name, _, secret = base64.b64decode(text).decode().partition(":")
    return unquote(name), unquote(secret)


def keys() -> dict[str, Any]:
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    return {"keys": [key | {"kid": "k", "use": "sig", "alg": "RS256"}]}


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, text in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
        handler.send_header(name, text)
    handler.end_headers()
    handler.wfile.write(body)


def raw(body: bytes, status: int = 200, **headers: str) -> Answer:
    return lambda handler: send(handler, status, body, **headers)


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Until the client is gone."""
    handler.rfile.read()


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte at a time, until the client is gone."""
    handler.send_response(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        return


@contextmanager
def provider(certificate: Pair | None = None) -> Iterator[Provider]:
    """Over TLS with a certificate, which has to be one for localhost."""
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: texts[0] for name, texts in parse_qs(parts.query).items()}
            if parts.path in made.answers:
                made.answers[parts.path](self)
            elif parts.path == "/.well-known/openid-configuration":
                send(self, 200, json.dumps(made.discovery()).encode())
            elif parts.path == "/favicon.ico":
                send(self, 204, b"")
            elif parts.path == "/keys":
                send(self, 200, json.dumps(keys()).encode())
            elif parts.path == PATHS["authorization"]:
                send(self, 302, b"", location=made.authorize(asked))
            else:
                send(self, 200 if parts.path == PATHS["end_session"] else 404, b"{}")

        def do_POST(self) -> None:
            if self.path in made.answers:
                made.answers[self.path](self)
                return
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: texts[0] for name, texts in parse_qs(body).items()}
            status, answer = made.tokens(form, self.headers.get("authorization", ""))
            send(self, status, json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certificate is None else "https"
    made.issuer = f"{scheme}://localhost:{server.server_port}"  # to a browser another site than the console's 127.0.0.1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
