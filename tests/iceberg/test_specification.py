"""The check of answers finds what the specification doesn't have."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from tests.iceberg.checked_answers import CheckedAnswers
from tests.iceberg.specification import SpecificationError, check

TABLE = "/v1/v3/namespaces/shop/tables/visits"
ERROR = {"error": {"message": "there is no such table", "type": "NoSuchTableException", "code": 404}}
NAMESPACES = {"namespaces": [["shop"]]}


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/v1/v3/namespaces", 200, NAMESPACES),
        ("GET", TABLE, 404, ERROR),
        ("GET", TABLE, 304, None),
        ("HEAD", TABLE, 204, None),
        ("PATCH", TABLE, 406, ERROR),
        ("GET", "/v1/v3/namespaces/shop/views/top", 404, ERROR),
        ("GET", "/health", 200, {"status": "ok"}),
    ],
)
def test_answers_of_the_specification_pass(method: str, path: str, status: int, body: object) -> None:
    check(method, path, status, b"" if body is None else json.dumps(body).encode())


@pytest.mark.parametrize(
    ("method", "path", "status", "body", "said"),
    [
        ("GET", "/v1/v3/namespaces", 200, {"namespaces": ["shop"]}, "'shop' is not of type 'array'"),
        ("GET", "/v1/v3/namespaces", 201, NAMESPACES, "no answer 201"),
        ("GET", TABLE, 404, {"detail": "no"}, "'error' is a required property"),
        ("GET", TABLE, 200, {"metadata": {"format-version": 3}}, "'table-uuid' is a required property"),
        ("HEAD", TABLE, 204, {}, "has a body"),
        ("PATCH", TABLE, 405, {}, "'error' is a required property"),
        ("GET", "/v1/v3/nothing", 200, {}, "no answer 200"),
    ],
)
def test_other_answers_are_found(method: str, path: str, status: int, body: object, said: str) -> None:
    with pytest.raises(SpecificationError, match=said):
        check(method, path, status, json.dumps(body).encode())


class Wrong(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"namespaces": ["shop"]}')

    def log_message(self, *_: object) -> None:
        """Tests say nothing of what works."""


def test_answers_are_checked_on_the_way() -> None:
    with HTTPServer(("127.0.0.1", 0), Wrong) as catalog:
        threading.Thread(target=catalog.serve_forever, daemon=True).start()
        way = CheckedAnswers(f"http://127.0.0.1:{catalog.server_port}")
        try:
            assert httpx.get(f"{way.url}/v1/v3/namespaces?pageSize=1").json() == {"namespaces": ["shop"]}
        finally:
            way.stop()
            catalog.shutdown()
    assert [one.partition(": ")[0] for one in way.problems] == ["GET /v1/v3/namespaces?pageSize=1"]
