"""A way to a catalog on which every answer is checked: for clients whose code can't be asked to do it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

import httpx

from tests.iceberg.specification import SpecificationError, check

ANSWER_S: Final = 120
OF_ONE_WAY: Final = {
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "transfer-encoding",
}  # parties, not passed on


class CheckedAnswers(ThreadingHTTPServer):
    """Passes requests to a catalog; `problems` has what the specification doesn't have."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.catalog = httpx.Client(base_url=url, timeout=ANSWER_S)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.problems: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self.catalog.close()


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CheckedAnswers

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name: text for name, text in self.headers.items() if name.lower() not in OF_ONE_WAY}
        answer = self.server.catalog.request(
            self.command, self.path, content=body, headers={**headers, "accept-encoding": "identity"}
        )
        try:
            check(self.command, urlsplit(self.path).path, answer.status_code, answer.content)
        except SpecificationError as error:
            self.server.problems.append(f"{self.command} {self.path}: {error}")
        self.send_response(answer.status_code)
        for name, text in answer.headers.items():
            if name.lower() not in OF_ONE_WAY:
                self.send_header(name, text)
        if answer.status_code not in (204, 304):
            self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = do_PATCH = pass_on  # noqa: N815 - named by http.server

    def log_message(self, *_: object) -> None:
        """Tests say nothing of what works."""
