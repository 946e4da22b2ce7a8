"""Open streams, and the thread that ends streams that are idle too long or last too long.

A stream is idle while no message comes or goes: its client sends nothing, or doesn't read. A unary call is idle until
its request arrives. A stream that waits inside gRPC is ended by cancelling the call. A stream that waits for events of
the service ends by itself when its `over` is rung, and is cancelled if it doesn't.

Time counts only while the service runs: after a pause (a stopped process, an overloaded machine) messages that clients
sent meanwhile are still to be received, so no stream was idle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import grpc

from metaservice.core import quotas
from metaservice.rpc.pipeline.thread_pools import Lane

LOOK_S: Final = 0.2
END_S: Final = 5.0  # for a stream to end by itself
LOOK_S_MAX: Final = 2 * LOOK_S  # what lies between two looks counts for no more
HEARING: Final = frozenset({quotas.SESSIONS, quotas.WATCHERS})  # lanes whose streams look at `over`
CROWDED_S: Final = 0.5  # how long a call may keep a thread without a request while there is none for others

IDLE: Final = "idle"
DEADLINE: Final = "deadline"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How long a stream can be idle, and how long it can last."""

    idle_s: float = 300.0
    deadline_s: float = 86_400.0


class RunningTime:
    """How long the service has run, as of the last check."""

    __slots__ = ("s",)

    def __init__(self) -> None:
        self.s = 0.0


class OpenStream:
    """A call that has not ended; `touch` is called for every message. `hears`: it checks `over`."""

    __slots__ = ("_context", "_time", "begun_s", "hears", "lane", "over", "over_s", "ring", "touched_s", "used")

    def __init__(self, context: grpc.ServicerContext, lane: Lane, running: RunningTime, *, hears: bool = False) -> None:
        self.lane = lane
        self.begun_s = self.touched_s = running.s
        self.used = False  # something has come
        self.over = ""  # why it is to end
        self.over_s = 0.0
        self.hears = hears
        self.ring: Callable[[], object] | None = None  # wakes it, once it waits
        self._context = context
        self._time = running

    def touch(self) -> None:
        self.touched_s = self._time.s

    def touching(self, items: Iterator[bytes]) -> Iterator[bytes]:
        for item in items:
            self.used = True
            self.touched_s = self._time.s
            yield item

    def end(self, why: str) -> None:
        """Rings; and cancels a stream that can't hear it."""
        now_s = self._time.s
        if not self.over:
            self.over, self.over_s = why, now_s
        if not self.hears or now_s - self.over_s >= END_S:
            self._context.cancel()
        elif self.ring is not None:
            self.ring()


class Streams:
    """All open streams, by their context."""

    def __init__(self, patience: StreamLimits, count_end: Callable[[str, str], None]) -> None:
        """`count_end` is called with the lane and the cause."""
        self._patience = patience
        self._count_end = count_end
        self._open: dict[grpc.ServicerContext, OpenStream] = {}
        self._waiting: dict[grpc.ServicerContext, OpenStream] = {}
        self._running = RunningTime()
        self._pace_s = min(LOOK_S, patience.idle_s / 4)
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="streams", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def ring(self) -> None:
        """Wakes every stream that waits for events of the service, so that it sees at once what has changed."""
        for stream in list(self._open.values()):
            if stream.ring is not None:
                stream.ring()

    def open(self, context: grpc.ServicerContext, lane: Lane) -> OpenStream:
        stream = self._open[context] = OpenStream(context, lane, self._running, hears=lane.name in HEARING)
        return stream

    def of(self, context: grpc.ServicerContext) -> OpenStream:
        return self._open[context]

    def close(self, context: grpc.ServicerContext) -> None:
        del self._open[context]

    def first(self, requests: Iterator[bytes], context: grpc.ServicerContext, lane: Lane) -> bytes | None:
        """The request of a unary call; None if the client sent none."""
        self._waiting[context] = OpenStream(context, lane, self._running)
        try:
            return next(requests, None)
        finally:
            del self._waiting[context]

    def _run(self) -> None:
        looked_s = time.monotonic()
        while not self._stopped.wait(self._pace_s):
            now_s = time.monotonic()
            self.look(now_s - looked_s)
            looked_s = now_s

    def look(self, since_s: float) -> None:
        """Ends due streams; `since_s`: the seconds since the last check."""
        self._running.s += min(since_s, LOOK_S_MAX)
        now_s = self._running.s
        for stream in [*self._open.values(), *self._waiting.values()]:
            if now_s - stream.begun_s > self._patience.deadline_s:
                self._end(stream, DEADLINE)
            elif now_s - stream.touched_s > self._idle_s(stream) + self._pace_s:  # it was touched up to a look later
                self._end(stream, IDLE)

    def _idle_s(self, stream: OpenStream) -> float:
        patience_s = self._patience.idle_s
        return min(patience_s, CROWDED_S) if stream.lane.is_crowded and not stream.used else patience_s

    def _end(self, stream: OpenStream, why: str) -> None:
        if not stream.over:
            self._count_end(stream.lane.name, why)
        stream.end(why)
