"""A stream that failed, and whose last answer gRPC never gives: its reader gets the error."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from metaservice.client.stream_end_timeout import end_when_lost

GRACE_S = 0.05
PATIENCE_S = 20.0


class Silent(grpc.GenericRpcHandler):
    """Answers one message, and then nothing until it may end."""

    def __init__(self, may_end: threading.Event) -> None:
        self._may_end = may_end

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            yield b"one"
            self._may_end.wait(PATIENCE_S)
            yield b"two"

        return grpc.unary_stream_rpc_method_handler(answer)


@contextmanager
def silent_stream() -> Iterator[tuple[Any, threading.Event, Any]]:
    """A stream with a first answer, what lets the second one come, and how another stream of the channel begins."""
    may_end = threading.Event()
    server = grpc.server(ThreadPoolExecutor(1), handlers=[Silent(may_end)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    try:
        method: Any = channel.unary_stream("/any/Any")
        stream = method(b"")
        assert next(stream) == b"one"
        yield stream, may_end, lambda: method(b"", timeout=PATIENCE_S)
    finally:
        may_end.set()
        closing = threading.Thread(target=channel.close, daemon=True)  # of a channel that is broken it waits for ever
        closing.start()
        closing.join(PATIENCE_S)
        server.stop(0)


def fail(stream: Any) -> None:
    """The status alone, as gRPC's own thread would note it."""
    state = stream._state
    with state.condition:
        state.code, state.details = grpc.StatusCode.UNAVAILABLE, "nobody is there"
        callbacks, state.callbacks = state.callbacks, []
        state.condition.notify_all()
    for callback in callbacks:
        callback()


def read(stream: Any) -> tuple[threading.Thread, list[object]]:
    """A thread that waits for the next answer, and what it got."""
    got: list[object] = []

    def wait() -> None:
        try:
            got.append(next(stream))
        except grpc.RpcError as error:
            got.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while "receive_message" not in str(stream._state.due):
        thread.join(0.01)
    return thread, got


def test_a_read_that_waits_on_a_failed_stream_gets_its_error() -> None:
    with silent_stream() as (stream, _, _another):
        end_when_lost(stream, GRACE_S)
        thread, got = read(stream)
        fail(stream)
        thread.join(PATIENCE_S)
        assert got == [stream]
        assert stream.details() == "nobody is there"


def test_the_channel_works_on_when_the_answer_comes_after_all() -> None:
    got: list[bytes] = []
    with silent_stream() as (stream, may_end, another):
        end_when_lost(stream, GRACE_S)
        thread, _ = read(stream)
        fail(stream)
        thread.join(PATIENCE_S)
        may_end.set()
        reading = threading.Thread(target=lambda: got.extend(another()), daemon=True)  # it may wait past its deadline
        reading.start()
        reading.join(PATIENCE_S)
        assert got == [b"one", b"two"]


def test_without_a_status_a_read_waits() -> None:
    with silent_stream() as (stream, may_end, _another):
        end_when_lost(stream, GRACE_S)
        thread, got = read(stream)
        thread.join(10 * GRACE_S)
        assert got == []
        may_end.set()
        thread.join(PATIENCE_S)
        assert got == [b"two"]


class Refused:
    """A stream that fails at once: its status, and how a callback hears of it."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def add_callback(self, callback: Callable[[], None]) -> None:
        callback()


def test_thousands_of_streams_that_fail_share_a_thread() -> None:
    before = threading.active_count()
    streams = [Refused() for _ in range(3_000)]
    for stream in streams:
        end_when_lost(stream, PATIENCE_S)
    assert threading.active_count() <= before + 1


def test_a_stream_that_nobody_has_any_more_is_not_kept() -> None:
    stream = Refused()
    gone = weakref.ref(stream)
    end_when_lost(stream, PATIENCE_S)
    del stream
    assert gone() is None


def test_a_stream_that_fails_later_and_has_less_time_does_not_wait_for_others() -> None:
    others = [Refused() for _ in range(10)]
    for other in others:
        end_when_lost(other, 10 * PATIENCE_S)
    with silent_stream() as (stream, _, _another):
        end_when_lost(stream, GRACE_S)
        thread, got = read(stream)
        fail(stream)
        thread.join(PATIENCE_S)
        assert got == [stream]
