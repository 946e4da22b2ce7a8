"""A receiver of LakeTX's events: checks their signatures, leaves repeats out, prints what happened.

    python -m examples.event_receiver --port 8080 --secret-file secret
    laketx events serve --to http://127.0.0.1:8080/ --secret-file secret

It answers 204 when it has taken an event, 401 to a wrong signature and 400 to what is no event. A receiver of your own
stores the event, or its id, before it answers: what is answered with 2xx does not come again.
"""

import argparse
import base64
import hashlib
import hmac
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOLERANCE_S = 300
BODY_BYTES_MAX = 16 << 20


def is_signed(secret: bytes, headers: Any, body: bytes, now_s: float) -> bool:
    """HMAC-SHA256 over id, time and body, as Standard Webhooks has it; an old request may be somebody's replay."""
    name, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not moment.isdecimal() or abs(now_s - int(moment)) > TOLERANCE_S:
        return False
    signed = b".".join((name.encode(), moment.encode(), body))
    expected = "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, each) for each in headers.get("webhook-signature", "").split())


def line_of(event: dict[str, Any]) -> str:
    data = event["data"]
    match event["type"]:
        case "dev.laketx.commit":
            return f"{event['subject']}@{data['version']}: {data['operation']}, +{data['rows_added']} rows"
        case "dev.laketx.conflict":
            return f"{event['subject']}: {data['txn_id']} lost to {data['conflict']['winner_txn_id']}"
        case _:
            return f"{event['subject']}: {event['type']} {data}"


def receiver(port: int, secret: bytes) -> ThreadingHTTPServer:
    taken: set[tuple[str, str]] = set()  # a program of your own keeps these where it keeps the rest

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            if not 0 < size <= BODY_BYTES_MAX:
                self.answer(400)
                return
            body = self.rfile.read(size)
            if secret and not is_signed(secret, self.headers, body, time.time()):
                self.answer(401)
                return
            found = json.loads(body)
            for event in found if isinstance(found, list) else [found]:
                name = (event["source"], event["id"])
                if name not in taken:
                    taken.add(name)
                    print(line_of(event), flush=True)
            self.answer(204)

        def answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Requests are not logged: the events are."""

    return ThreadingHTTPServer(("127.0.0.1", port), Receiver)


def main() -> None:
    parser = argparse.ArgumentParser(description="Receives events of LakeTX.")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on; 0 picks a free one")
    parser.add_argument("--secret-file", type=Path, help="the file that `laketx events serve` has")
    found = parser.parse_args()
    server = receiver(found.port, found.secret_file.read_bytes().strip() if found.secret_file else b"")
    print(f"listening on http://127.0.0.1:{server.server_address[1]}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
