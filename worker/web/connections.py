"""Connections of HTTP that end: one whose client sends half a request, or takes no answer, is closed.

There is a limit of their number: each takes a file descriptor, and strangers can open any number.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S: Final = 20.0  # until the head of a request is there, and for the rest of a request that was answered before
TAKE_S: Final = 60.0  # until a client takes the next part of an answer
HEAD_BYTES_MAX: Final = 64 << 10
CONNECTIONS_MAX: Final = 500  # a process often may have 1,024 open files, and those of tables are among them
REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: %b\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
)


class TimedConnection(H11Protocol):
    """A connection that is closed where no request arrives whole, or no answer leaves, in time."""

    head_s = HEAD_S
    take_s = TAKE_S
    connections_max = CONNECTIONS_MAX
    full_type: ClassVar = b"text/plain"
    full: ClassVar = b"too many connections: try again later\n"
    _head: asyncio.TimerHandle | None = None
    _take: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.write(REFUSAL % (self.full_type, len(self.full), self.full))
            transport.close()
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._head)
        self._stop(self._take)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_head()

    def _wait_for_head(self) -> None:
        """While a request is being answered there is nothing to wait for. Bytes that drip in gain no time."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop(self._head)
            self._head = None
        elif self._head is None:
            self._head = self.loop.call_later(self.head_s, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._take = self._take or self.loop.call_later(self.take_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._take)
        self._take = None

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
