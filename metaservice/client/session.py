"""One stream that carries the calls of many threads.

A calling thread queues its call and sleeps on a lock of its own. The stream's sender takes everything that is queued as
one frame; while that is being sent, the next frame gathers. A reader wakes each caller with its reply.

    thread 1 ─ begin ──┐                          ┌─ reply 1 ─ thread 1
    thread 2 ─ append ─┼─ one frame ─► service ───┼─ reply 2 ─ thread 2
    thread 3 ─ commit ─┘                          └─ reply 3 ─ thread 3

A broken stream fails the calls under way as UNAVAILABLE; repeating them opens another.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

import grpc

from metaservice.client.errors import (
    ErrorKind,
    MetaServiceError,
    UnauthenticatedError,
    build_error,
    build_unauthenticated,
    decode_rpc_error,
)
from metaservice.client.threads import start_thread
from metaservice.client.tracing import Metadata
from protos.laketx.v1 import transaction_pb2 as wire

METHOD: Final = "/laketx.v1.TransactionService/Session"
FRAME_BYTES_MAX: Final = 1 << 20
FRAME_CALLS_MAX: Final = 512
GATHER_S: Final = 0.001  # frames cost more than calls
STAY_S: Final = 60.0  # an empty frame keeps a quiet session: the service ends those that are idle


class _Waiter:
    """A sleeping caller. Its lock is a binary semaphore: held, except between a reply and the caller's waking."""

    __slots__ = ("left", "lock", "replies")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.left = 0
        self.replies: list[wire.SessionReply] = []


class _PerThread(threading.local):
    waiter: _Waiter | None = None


_per_thread = _PerThread()


class Session:
    """An open stream, until it breaks."""

    def __init__(self, channel: grpc.Channel, metadata: Metadata = ()) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[int, _Waiter] = {}
        self._queue: deque[tuple[bytes, int]] = deque()  # frames, and how many calls are in each
        self._wake = threading.Lock()
        self._wake.acquire()
        self._answered = False
        self._end: MetaServiceError | None = None
        open_stream: grpc.StreamStreamMultiCallable[bytes, wire.SessionResponse] = channel.stream_stream(
            METHOD, request_serializer=None, response_deserializer=wire.SessionResponse.FromString
        )
        self._stream = open_stream(self._frames(), metadata=metadata)
        start_thread(self._read, "laketx-session", self.close)

    @property
    def is_broken(self) -> bool:
        return self._end is not None

    @property
    def is_refused(self) -> bool:
        """Whether it ended before its first answer, and not because the service was away."""
        end = self._end
        if end is None or self._answered or isinstance(end, UnauthenticatedError):
            return False
        return end.kind is not ErrorKind.UNAVAILABLE

    def call(self, request: wire.SessionRequest, timeout_s: float) -> list[wire.SessionReply]:
        """Sends a request's calls in order, in one frame; sets their numbers."""
        waiter = _per_thread.waiter
        if waiter is None:
            waiter = _per_thread.waiter = _Waiter()
        numbers = []
        for call in request.calls:
            call.call_id = number = next(self._ids)
            numbers.append(number)
        frame = request.SerializeToString()
        waiter.left = len(numbers)
        for number in numbers:
            self._waiting[number] = waiter
        self._queue.append((frame, len(numbers)))
        if self._end is not None and self._give_up(numbers):
            raise self._broken()
        self._wake_sender()
        try:
            answered = waiter.lock.acquire(timeout=timeout_s)
        except BaseException:
            # The lock may yet be released for this call: no later call may meet it.
            _per_thread.waiter = None
            self._give_up(numbers)
            raise
        if not answered:
            _per_thread.waiter = None
            if self._give_up(numbers):
                raise build_error(ErrorKind.UNAVAILABLE, "CALL_TIMED_OUT", f"no answer in {timeout_s} s")
            waiter.lock.acquire()  # the reader has taken the last of them and is about to answer
        replies, waiter.replies = waiter.replies, []
        if len(replies) != len(numbers):
            _per_thread.waiter = None
            raise self._broken()
        return replies

    def _give_up(self, numbers: list[int]) -> bool:
        """Gives up on calls; returns whether any of them had no answer yet."""
        return sum(self._waiting.pop(number, None) is not None for number in numbers) > 0

    def close(self) -> None:
        self._stream.cancel()

    def _wake_sender(self) -> None:
        if self._wake.locked():
            try:
                self._wake.release()
            except RuntimeError:
                return  # another caller woke it between the two lines; it sees both calls

    def _frames(self) -> Iterator[bytes]:
        """Serialized requests, joined: protobuf merges repeated fields of consecutive messages."""
        queue = self._queue
        while self._end is None:
            if not queue:
                if not self._wake.acquire(timeout=STAY_S):
                    yield b""
                    continue
                if len(self._waiting) > sum(calls for _, calls in list(queue)):
                    time.sleep(GATHER_S)  # calls under way: their answers wake callers, who call again
                continue
            frame, _ = queue.popleft()
            if not queue:
                yield frame
                continue
            frames = [frame]
            size = len(frame)
            while queue and len(frames) < FRAME_CALLS_MAX and size + len(queue[0][0]) <= FRAME_BYTES_MAX:
                frame, _ = queue.popleft()
                frames.append(frame)
                size += len(frame)
            yield b"".join(frames)

    def _read(self) -> None:
        waiting = self._waiting
        end = build_error(ErrorKind.UNAVAILABLE, "SESSION_ENDED", "the service ended the session")
        try:
            for response in self._stream:
                self._answered = True
                for reply in response.replies:
                    waiter = waiting.pop(reply.call_id, None)
                    if waiter is not None:
                        waiter.replies.append(reply)  # in the order of the calls: the service keeps it
                        waiter.left -= 1
                        if not waiter.left:
                            waiter.lock.release()
        except grpc.RpcError as error:
            end = decode_rpc_error(error)
        finally:
            self._fail_all(end)

    def _fail_all(self, end: MetaServiceError) -> None:
        # In this order: a caller that doesn't see the end yet is seen by the loop.
        self._end = end
        left: set[_Waiter] = set()
        while self._waiting:
            try:
                _, waiter = self._waiting.popitem()
            except KeyError:
                break  # its caller gave up in between
            if waiter not in left:
                left.add(waiter)
                waiter.lock.release()
        self._wake_sender()

    def _broken(self) -> MetaServiceError:
        """A new error for every caller, because a traceback belongs to one thread."""
        end = self._end
        if isinstance(end, UnauthenticatedError) and not self._answered:
            return build_unauthenticated(end.reason, end.message, end.facts)  # nothing of it was heard
        message = "" if end is None else str(end)
        return build_error(ErrorKind.UNAVAILABLE, "SESSION_BROKEN", message)
