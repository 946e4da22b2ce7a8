"""Requests that follow each other, counted; bytes that come late and whole."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.integration.slow_bucket import Request, depth, far_away

BODY = b"x" * 3_000_000
DELAY_S = 0.05


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (0, 1), (0.5, 1.5)], 1),  # at once
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 3), (0, 1), (1, 2), (2, 3)], 3),  # beside a long one
        ([(0, 2), (1, 3), (2.5, 4)], 2),
    ],
)
def test_what_follows_each_other_is_counted(spans: list[tuple[float, float]], found: int) -> None:
    assert depth(Request("GET", "/", start, end) for start, end in spans) == found


@pytest.mark.parametrize(
    ("method", "target", "found"),
    [
        ("GET", "/lake?list-type=2&prefix=x", True),
        ("GET", "/lake/?prefix=x", True),
        ("GET", "/lake/a/b.parquet", False),
        ("PUT", "/lake/a", False),
    ],
)
def test_a_listing_is_known(method: str, target: str, found: bool) -> None:
    assert Request(method, target, 0, 1).is_listing is found


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is said."""


@pytest.fixture
def upstream() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_each_request_is_late_and_whole(upstream: str) -> None:
    with far_away(upstream, DELAY_S) as there:
        for number in range(2):
            begun_s = time.monotonic()
            with urllib.request.urlopen(f"{there.url}/{number}", data=BODY, timeout=30) as answer:
                assert answer.read() == BODY
            assert time.monotonic() - begun_s >= DELAY_S
    assert [(one.method, one.target) for one in there.requests] == [("POST", "/0"), ("POST", "/1")]
    assert depth(there.requests) == 2
    assert all(one.end_s - one.start_s >= DELAY_S for one in there.requests)
