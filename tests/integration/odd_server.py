"""A server that answers as a test says, byte for byte: such as a provider of OpenID Connect that is broken, or evil."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answer = bytes | Callable[[socket.socket, threading.Event], None]


class OddServer:
    """Answers by the path of the request; a connection is closed after its answer."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.ended = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._listening.getsockname()[1]}"

    def _run(self) -> None:
        while True:
            try:
                taken, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with plain, contextlib.suppress(OSError):
            taken = self._tls.wrap_socket(plain, server_side=True) if self._tls is not None else plain
            asked = b""
            while b"\r\n\r\n" not in asked:
                part = taken.recv(65_536)
                if not part:
                    return
                asked += part
            path = asked.split(b" ", 2)[1].decode()
            self.asked.append(path)
            answer = self.answers.get(path, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            if callable(answer):
                answer(taken, self.ended)
            else:
                taken.sendall(answer)
            if taken is not plain:
                taken.close()

    def close(self) -> None:
        self.ended.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@contextmanager
def odd_server(tls: ssl.SSLContext | None = None) -> Iterator[OddServer]:
    made = OddServer(tls)
    try:
        yield made
    finally:
        made.close()


def said(document: object) -> bytes:
    """The whole answer for a document: JSON, or bytes as they are."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def hangs(_taken: socket.socket, ended: threading.Event) -> None:
    ended.wait()


def drips(taken: socket.socket, ended: threading.Event) -> None:
    """A byte from time to time: each is in time, the whole never is."""
    for one in b"HTTP/1.1 200 OK\r\n" + b"X-Slow: yes\r\n" * 1_000:
        if ended.wait(0.05):
            return
        taken.sendall(bytes([one]))


DEEP = b"[" * 3_000  # as a token it is below what gRPC takes for sure, 8 KiB of metadata
ODD_ANSWERS: dict[str, Answer] = {  # of a server that is asked for a JSON object
    "nothing": lambda *_: None,
    "no HTTP": b"garbage\r\n\r\n",
    "no number for a status": b"HTTP/1.1 abc\r\n\r\n",
    "a line without end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "a thousand headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000 + b"\r\n",
    "a length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{",
    "an answer that breaks off": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "a chunk that breaks off": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{",
    "a chunk without a length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{",
    "a redirect to nowhere": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
    "a redirect to no address": b"HTTP/1.1 302 Found\r\nLocation: http://[::\r\nContent-Length: 0\r\n\r\n",
    "an error": b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
    "no text": said(b"\xff\xfe"),
    "no JSON": said(b"<html>"),
    "a list": said([]),
    "deep lists": said(DEEP),
    "deep objects": said(b'{"a":' * 3_000 + b"1" + b"}" * 3_000),
    "half of a pair": said(b'{"issuer": "\\ud800", "result": "\\ud800"}'),
    "no number": said(b'{"result": NaN}'),
    "an endless number": said(b'{"result": 1e400}'),
    "a number of many digits": said(b'{"result": ' + b"9" * 5_000 + b"}"),
    "too much": said(b'{"result": "' + b"x" * (2 << 20) + b'"}'),
}
