"""Metrics over HTTP, on a port of their own: GET /metrics, nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from metaservice.service.failures import as_refusal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
READ_TIMEOUT_S = 10.0


class Exporter:
    """Listens from the moment that it is made; `address` is host:port."""

    def __init__(self, address: str, render: Callable[[], str]) -> None:
        host, _, port = address.rpartition(":")
        self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(render))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(render: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Scrape(BaseHTTPRequestHandler):
        timeout = READ_TIMEOUT_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            try:
                body = render().encode()
            except Exception as error:  # noqa: BLE001 - a store that is being opened again is no reason to end
                self.send_error(503, explain=str(as_refusal(error)))
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """A scrape is no event."""

    return Scrape
