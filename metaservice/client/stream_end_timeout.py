"""Ends streams that gRPC would leave waiting for ever.

A stream whose connection fails gets its status, UNAVAILABLE. Seldom, seen with grpcio 1.85.1, the read that waits gets
no answer beside it: it waits for ever, past its deadline too. gRPC has no public way to end such a read, so this
reaches into its state, and does nothing where that looks different.
"""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from itertools import count
from typing import Any, Final

import grpc

GRACE_S: Final = 5.0  # from a failed stream's status to its last answer: they come within milliseconds


class _Forgiving(set[Any]):
    """A set of awaited events; removing an absent event is no error."""

    def remove(self, element: Any) -> None:
        self.discard(element)


class _Failed:
    """Failed streams until their time is up. One thread looks after all of them, while there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, weakref.ref[Any]]] = []
        self._numbers = count()
        self._has_thread = False

    def add(self, stream: Any, grace_s: float) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + grace_s, next(self._numbers), weakref.ref(stream)))
            self._changed.notify()
            if not self._has_thread:
                threading.Thread(target=self._end_each, name="lost ends", daemon=True).start()
                self._has_thread = True

    def _end_each(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._has_thread = False
                    return
                left_s = self._due[0][0] - time.monotonic()
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
                stream = heapq.heappop(self._due)[2]()
            if stream is not None:
                _end(stream)
                del stream


_FAILED: Final = _Failed()


def end_when_lost(stream: Any, grace_s: float = GRACE_S) -> None:
    """From now on, a read that waits for so long after the stream failed raises the stream's error."""
    stream.add_callback(lambda: _watch(stream, grace_s))


def _watch(stream: Any, grace_s: float) -> None:
    """The stream has its status: called once, by a thread of gRPC's."""
    if stream.code() is not grpc.StatusCode.OK:
        _FAILED.add(stream, grace_s)


def _end(stream: Any) -> None:
    state: Any = getattr(stream, "_state", None)
    if not hasattr(state, "condition") or not hasattr(state, "due"):
        return
    with state.condition:
        reads = [step for step in state.due if getattr(step, "name", "") == "receive_message"]
        if reads:
            state.due = _Forgiving(state.due.difference(reads))
            state.condition.notify_all()
