"""A receiver of events, on a port of its own."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examples.event_receiver import is_signed

SECRET = b"sixteen bytes at least"
Event = dict[str, Any]
Answer = Callable[[list[Event]], int]


class Receiver:
    """Takes events and answers what it is told to."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.kinds: list[str] = []
        self.signed: list[bool] = []
        self.tokens: list[str | None] = []
        self.answer: Answer = lambda _: 204
        self.requests = 0
        taker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                found = json.loads(body)
                events = found if isinstance(found, list) else [found]
                taker.requests += 1
                status = taker.answer(events)
                if status == 204:
                    taker.kinds.append(self.headers["Content-Type"].partition(";")[0])
                    taker.tokens.append(self.headers["Authorization"])
                    taker.signed.append(is_signed(SECRET, self.headers, body, time.time()))
                    taker.events += events
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def of(self, kind: str) -> list[Event]:
        return [each for each in self.events if each["type"] == f"dev.laketx.{kind}"]

    def versions(self, table_id: str) -> list[int]:
        return [each["data"]["version"] for each in self.of("commit") if each["tableid"] == table_id]


@contextmanager
def receiving() -> Iterator[Receiver]:
    found = Receiver()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()


def url(found: Receiver) -> str:
    return f"http://127.0.0.1:{found.port}/hook"
