"""A schema registry in this process: answers as the HTTP API of Confluent's says, and keeps schemas in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

UNKNOWN = {"error_code": 40403, "message": "Schema not found"}


class Registry:
    """Schemas by their ids, and by subject and version for references."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.status = 200  # of every answer, while it is another one
        self._next = 1
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.authorizations.append(self.headers.get("authorization"))
                found = outer.answers.get(self.path)
                status = outer.status if outer.status != 200 else 200 if found is not None else 404
                body = json.dumps(UNKNOWN if found is None else found).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with suppress(ConnectionError):  # who asks has read enough
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def add(self, schema: Any, kind: str = "AVRO", references: Sequence[tuple[str, str]] = ()) -> int:
        """Register a schema, under its id and as version 1 of the subject of the same number; returns the id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            answer["schemaType"] = kind
        if references:
            answer["references"] = [{"name": name, "subject": by, "version": 1} for name, by in references]
        number, self._next = self._next, self._next + 1
        self.answers[f"/schemas/ids/{number}"] = self.answers[f"/subjects/{number}/versions/1"] = answer
        return number

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def framed(schema_id: int, content: bytes) -> bytes:
    """A message in the registry's form."""
    return b"\0" + schema_id.to_bytes(4, "big") + content
