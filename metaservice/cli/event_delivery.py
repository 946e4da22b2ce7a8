"""Events to a webhook: each until it is taken, in order, signed.

A receiver that is away, busy or not set up yet is waited for, however long. An event that it refuses as such is tried a
few times more, then put aside into the file of dead letters.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from metaservice.cli.cloud_events import Event, body_of
from metaservice.cli.failures import CommandError, Exit, usage_failure
from metaservice.client.retries import Backoff

WAITED_FOR: Final = frozenset({401, 403, 404, 405, 407, 408, 425, 429})  # and 3xx, 5xx, and no answer
GONE: Final = 410
BACKOFF: Final = Backoff(base_s=0.5, longest_s=60.0)
RETRY_AFTER_MAX_S: Final = 600.0
TRIES: Final = 3  # of an event that is refused
ANSWER_BYTES_MAX: Final = 64 << 10
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - of Standard Webhooks


@dataclass(frozen=True, slots=True)
class Target:
    """The receiver of events, and how they are sent."""

    url: str
    secret: bytes = b""
    ca_file: str = ""
    batch: int = 1
    timeout_s: float = 30.0
    dead_letters: str = ""
    insecure: bool = False
    token: str = ""


@dataclass(slots=True)
class Counts:
    """The numbers of delivered and refused events, for the last line."""

    delivered: int = 0
    dead: int = 0


class Sender:
    """One connection to the webhook. For one thread."""

    def __init__(
        self,
        target: Target,
        stopped: threading.Event,
        note: Callable[[str], None],
        now_us: Callable[[], int],
    ) -> None:
        self._target = target
        self._stopped = stopped
        self._note = note
        self._now_us = now_us
        parts = urlsplit(target.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise usage_failure("--to: an address such as https://events.example.com/laketx")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and not target.insecure:
            raise usage_failure("--to: events leave this machine by https only; --insecure allows http")
        self._host, self._port = parts.hostname, parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = ssl.create_default_context(cafile=target.ca_file or None) if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None
        self.counts = Counts()

    def send(self, events: Sequence[Event]) -> bool:
        """Delivers the events or puts them aside; False if the process stops first."""
        for first in range(0, len(events), self._target.batch):
            if not self._send_part(events[first : first + self._target.batch]):
                return False
        return True

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send_part(self, events: Sequence[Event]) -> bool:
        tries = refusals = 0
        while not self._stopped.is_set():
            status, after_s, words = self._post(events)
            if 200 <= status < 300:
                self.counts.delivered += len(events)
                if tries:
                    self._note(f"the receiver takes events again, after {tries} tries")
                return True
            if status == GONE:
                raise CommandError(
                    Exit.REFUSED, "RECEIVER_GONE", "the receiver wants no events any more (410)", {"to": self._host}
                )
            if 400 <= status < 500 and status not in WAITED_FOR:
                refusals += 1
                if len(events) > 1 or refusals >= TRIES:
                    return self._refused(events, status, words)
            if tries == 0 or tries % 10 == 0:
                self._note(f"not delivered, and tried again: {words or status}")
            self._stopped.wait(max(after_s, BACKOFF.delay_s(tries, self._chance())))
            tries += 1
        return False

    def _chance(self) -> float:
        """Between a half and one; senders that failed together don't return together."""
        return 0.5 + self._now_us() % 1_000 / 2_000

    def _refused(self, events: Sequence[Event], status: int, answer: str) -> bool:
        """Handle a refused batch: send its events one by one, and put a single refused event aside."""
        if len(events) > 1:
            return all(self._send_part([each]) for each in events)
        self._put_aside(events[0], status, answer)
        self.counts.dead += 1
        return True

    def _put_aside(self, event: Event, status: int, answer: str) -> None:
        self._note(f"event {event['id']} was refused {TRIES} times ({status}): it is in {self._target.dead_letters}")
        letter = {"time_us": self._now_us(), "status": status, "answer": answer, "event": event}
        path = Path(self._target.dead_letters)
        with path.open("ab") as file:
            file.write(json.dumps(letter, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _post(self, events: Sequence[Event]) -> tuple[int, float, str]:
        """Send events. Return the status (0: no answer), the receiver's Retry-After, and the text of its answer."""
        body, kind = body_of(events, batched=self._target.batch > 1)
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._connect()
            connection.request("POST", self._path, body, self._headers(events, body, kind))
            answer = connection.getresponse()
            body_text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace")
            if answer.getheader("Connection", "").lower() == "close" or not answer.isclosed():
                self.close()
            after = answer.getheader("Retry-After", "")
            after_s = min(float(after), RETRY_AFTER_MAX_S) if after.isdecimal() else 0.0
            return answer.status, after_s, f"{answer.status} {body_text[:200]}".strip()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return 0, 0.0, str(error) or type(error).__name__

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._target.timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._target.timeout_s, context=self._tls)

    def _headers(self, events: Sequence[Event], body: bytes, kind: str) -> Mapping[str, str]:
        name = message_id(events)
        moment = str(self._now_us() // 1_000_000)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "User-Agent": "laketx-events", "webhook-id": name}
        headers["webhook-timestamp"] = moment
        if self._target.token:
            headers["Authorization"] = f"Bearer {self._target.token}"
        if self._target.secret:
            headers["webhook-signature"] = signature(self._target.secret, name, moment, body)
        return headers


def message_id(events: Sequence[Event]) -> str:
    """The same for a repeat of the same events."""
    digest = hashlib.sha256("\n".join(f"{each['source']} {each['id']}" for each in events).encode())
    return f"msg_{digest.hexdigest()[:32]}"


def signature(secret: bytes, name: str, moment: str, body: bytes) -> str:
    """Sign as Standard Webhooks: HMAC-SHA256 over the id, the time and the body."""
    signed = b".".join((name.encode(), moment.encode(), body))
    return f"v1,{base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()}"


def read_secret(path: str) -> bytes:
    """Return the bytes of the file without the line's end; `whsec_…` is base64, as in other webhook senders."""
    try:
        text = Path(path).read_bytes().strip()
        secret = base64.b64decode(text[len(SECRET_PREFIX) :], validate=True) if _is_encoded(text) else text
    except (OSError, ValueError) as error:
        raise usage_failure(f"--secret-file: {error}") from error
    if len(secret) < 16:
        raise usage_failure("--secret-file: the secret has at least 16 bytes")
    return secret


def read_token(path: str) -> str:
    """The first line of the file."""
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise usage_failure(f"--token-file: {error}") from error
    if not token.isascii() or len(token.split()) != 1:
        raise usage_failure("--token-file: a token is one line without spaces")
    return token


def _is_encoded(text: bytes) -> bool:
    return text.startswith(SECRET_PREFIX.encode())
