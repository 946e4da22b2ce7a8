"""The streams that are open, and the thread that ends those which are idle for too long or last for too long.

Idle is a stream on which nothing has come or gone: a client that sends nothing, or doesn't take what it is sent. A call
with one request is idle until the request is there. What waits inside of gRPC is ended by cancelling the call; a
stream that waits for events of the service ends by itself when its `over` is rung, and is cancelled where it doesn't.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import grpc

from metaservice.rpc.lanes import Lane

LOOK_S: Final = 0.2
END_S: Final = 5.0  # for a stream to end by itself
CROWDED_S: Final = 0.5  # how long a call may keep a thread without a request while there is none for others

IDLE: Final = "idle"
DEADLINE: Final = "deadline"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a stream may be idle, and how long it may last at all."""

    idle_s: float = 300.0
    deadline_s: float = 86_400.0


class Stream:
    """A call that has not ended; `touch` is called when something has come or gone."""

    __slots__ = ("_context", "begun_s", "lane", "over", "over_s", "ring", "touched_s", "used")

    def __init__(self, context: grpc.ServicerContext, lane: Lane) -> None:
        self.lane = lane
        self.begun_s = self.touched_s = time.monotonic()
        self.used = False  # something has come
        self.over = ""  # why it is to end
        self.over_s = 0.0
        self.ring: Callable[[], object] | None = None
        self._context = context

    def touch(self) -> None:
        self.touched_s = time.monotonic()

    def touching(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.used = True
            self.touched_s = time.monotonic()
            yield item

    def end(self, why: str, now_s: float) -> None:
        """Ring; and cancel what can't hear it."""
        if not self.over:
            self.over, self.over_s = why, now_s
        if self.ring is not None and now_s - self.over_s < END_S:
            self.ring()
        else:
            self._context.cancel()


class Streams:
    """All of them, by their context."""

    def __init__(self, patience: Patience, count_end: Callable[[str, str], None]) -> None:
        """`count_end` is told the lane and why."""
        self._patience = patience
        self._count_end = count_end
        self._open: dict[grpc.ServicerContext, Stream] = {}
        self._waiting: dict[grpc.ServicerContext, Stream] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="streams", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def open(self, context: grpc.ServicerContext, lane: Lane) -> Stream:
        stream = self._open[context] = Stream(context, lane)
        return stream

    def of(self, context: grpc.ServicerContext) -> Stream:
        return self._open[context]

    def close(self, context: grpc.ServicerContext) -> None:
        del self._open[context]

    def first(self, requests: Iterator[bytes], context: grpc.ServicerContext, lane: Lane) -> bytes | None:
        """The request of a call that has one; None where the client sent none."""
        self._waiting[context] = Stream(context, lane)
        try:
            return next(requests, None)
        finally:
            del self._waiting[context]

    def _run(self) -> None:
        while not self._stopped.wait(min(LOOK_S, self._patience.idle_s / 4)):
            now_s = time.monotonic()
            for stream in [*self._open.values(), *self._waiting.values()]:
                if now_s - stream.begun_s > self._patience.deadline_s:
                    self._end(stream, DEADLINE, now_s)
                elif now_s - stream.touched_s > self._idle_s(stream):
                    self._end(stream, IDLE, now_s)

    def _idle_s(self, stream: Stream) -> float:
        patience_s = self._patience.idle_s
        return min(patience_s, CROWDED_S) if stream.lane.is_crowded and not stream.used else patience_s

    def _end(self, stream: Stream, why: str, now_s: float) -> None:
        if not stream.over:
            self._count_end(stream.lane.name, why)
        stream.end(why, now_s)
