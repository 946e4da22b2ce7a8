"""A server of S3 that is far away: what goes to it and comes back is late, and each request is written down.

    with far_away("127.0.0.1:9000", delay_s=0.030) as proxy:
        …                        # clients use proxy.url
        print(proxy.requests, depth(proxy.requests))

Half of the delay is on each way, as between two places; bytes follow each other as fast as they came. It runs on a
thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

CHUNK_BYTES: Final = 1 << 18
CONTINUE: Final = b"HTTP/1.1 100"
Chunk = tuple[float, bytes]


@dataclass(slots=True)
class Request:
    """A request as the client saw it: when its first byte was sent, when the last byte of the answer came."""

    method: str
    target: str
    start_s: float
    end_s: float = float("inf")

    @property
    def is_listing(self) -> bool:
        """Of objects: a GET of the bucket, with a query."""
        path, _, query = self.target.partition("?")
        return self.method == "GET" and ("list-type=" in query or path.strip("/").count("/") == 0)


def depth(requests: Iterable[Request]) -> int:
    """The most requests of which each begins when the one before has ended: round trips that nothing can hide."""
    found, free_s = 0, float("-inf")
    for one in sorted(requests, key=lambda each: each.end_s):
        if one.start_s >= free_s:
            found, free_s = found + 1, one.end_s
    return found


@dataclass
class SlowBucket:
    """Threads may read `requests` while nobody asks."""

    upstream: str
    delay_s: float
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def asked(self, work: Callable[[], object]) -> Sequence[Request]:
        """The requests of a piece of work."""
        before = len(self.requests)
        work()
        return self.requests[before:]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.upstream.rpartition(":")
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        connection = _Connection(self.requests)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(
                self._carry(reader, back, connection.asks, lambda: None),
                self._carry(there, writer, lambda _: None, connection.answered),
                return_exceptions=True,
            )

    async def _carry(
        self,
        source: asyncio.StreamReader,
        to: asyncio.StreamWriter,
        comes: Callable[[bytes], None],
        goes: Callable[[], None],
    ) -> None:
        """Carries bytes one way; an end is carried too."""
        waiting: asyncio.Queue[Chunk] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due_s, chunk = await waiting.get()
                if (left_s := due_s - time.monotonic()) > 0:
                    await asyncio.sleep(left_s)
                if not chunk:
                    break
                to.write(chunk)
                if not chunk.startswith(CONTINUE):
                    goes()
                await to.drain()

        delivering = asyncio.create_task(deliver())
        try:
            chunk = b"-"
            while chunk:
                try:
                    chunk = await source.read(CHUNK_BYTES)
                except OSError:
                    chunk = b""
                if chunk:
                    comes(chunk)
                waiting.put_nowait((time.monotonic() + self.delay_s / 2, chunk))
            await delivering
        finally:
            delivering.cancel()
            to.close()


class _Connection:
    """Requests of one connection come one after the other: bytes after an answer begin the next."""

    def __init__(self, requests: list[Request]) -> None:
        self._requests = requests
        self._last: Request | None = None

    def asks(self, chunk: bytes) -> None:
        if self._last is None or self._last.end_s != float("inf"):
            method, _, rest = chunk.partition(b" ")
            target = rest.partition(b" ")[0]
            self._last = Request(method.decode(errors="replace"), target.decode(errors="replace"), time.monotonic())
            self._requests.append(self._last)

    def answered(self) -> None:
        if self._last is not None:
            self._last.end_s = time.monotonic()


@contextmanager
def far_away(upstream: str, delay_s: float) -> Iterator[SlowBucket]:
    """`upstream` is host:port."""
    bucket = SlowBucket(upstream, delay_s)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(bucket.serve, "127.0.0.1", 0))
    bucket.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever, name="slow bucket", daemon=True)
    thread.start()
    try:
        yield bucket
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(_cancel_all())
        loop.close()


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
