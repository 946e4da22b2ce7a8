"""A channel to whichever of several addresses leads.

Calls go to one address. When one fails there because nobody answers, or because another process leads, the next go to
the leader, if it is among the addresses, or to the next one. `Retries` repeats the call that failed, as it does for a
single address.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

import grpc

from metaservice.client.errors import ErrorKind, decode_rpc_error
from metaservice.client.stream_end_timeout import end_when_lost

NOT_LEADER: Final = "NOT_LEADER"


class LeaderChannel(grpc.Channel):
    """Threads can share it. Calls under way stay where they are."""

    def __init__(self, targets: Sequence[str], open_one: Callable[[str], grpc.Channel]) -> None:
        self._targets = list(dict.fromkeys(targets))
        self._open_one = open_one
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._current = self._targets[0]
        self._closed = False

    def open(self) -> tuple[str, grpc.Channel]:
        """Opens the next call's channel; returns its address, too."""
        with self._lock:
            target = self._current
            if self._closed:
                raise ValueError("the channel is closed")
            if target not in self._channels:
                self._channels[target] = self._open_one(target)
            return target, self._channels[target]

    def failed(self, target: str, error: grpc.RpcError) -> None:
        """Decides where the next call goes, after one failed at an address."""
        refused = decode_rpc_error(error)
        if refused.kind is not ErrorKind.UNAVAILABLE:
            return
        leader = refused.facts.get("leader", "") if refused.reason == NOT_LEADER else ""
        with self._lock:
            if self._current != target:
                return  # another call has gone on already
            following = self._targets[(self._targets.index(target) + 1) % len(self._targets)]
            self._current = leader if leader in self._targets else following

    def unary_unary(self, method: str, *arguments: Any, **named: Any) -> Any:
        return _LeaderCall(self, "unary_unary", method, arguments, named)

    def unary_stream(self, method: str, *arguments: Any, **named: Any) -> Any:
        return _LeaderCall(self, "unary_stream", method, arguments, named)

    def stream_unary(self, method: str, *arguments: Any, **named: Any) -> Any:
        return _LeaderCall(self, "stream_unary", method, arguments, named)

    def stream_stream(self, method: str, *arguments: Any, **named: Any) -> Any:
        return _LeaderCall(self, "stream_stream", method, arguments, named)

    def subscribe(self, callback: Any, try_to_connect: Any = False) -> None:
        raise NotImplementedError("an address has a state, this has several")

    def unsubscribe(self, callback: Any) -> None:
        raise NotImplementedError("an address has a state, this has several")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _LeaderCall:
    """A method, on the channel of the moment."""

    def __init__(
        self, channel: LeaderChannel, kind: str, method: str, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self._channel = channel
        self._kind = kind
        self._method = method
        self._arguments = arguments
        self._named = named
        self._calls: dict[str, Any] = {}

    def __call__(self, request: Any, *arguments: Any, **named: Any) -> Any:
        target, channel = self._channel.open()
        call = self._calls.get(target)
        if call is None:
            call = self._calls[target] = getattr(channel, self._kind)(self._method, *self._arguments, **self._named)
        if "wait_for_ready" in named:
            named = {**named, "wait_for_ready": False}  # for one that isn't there: another may be
        try:
            answer = call(request, *arguments, **named)
        except grpc.RpcError as error:
            self._channel.failed(target, error)
            raise
        return answer if self._kind.endswith("unary") else _Stream(self._channel, target, answer)


class _Stream:
    """A stream of answers that says where it failed."""

    def __init__(self, channel: LeaderChannel, target: str, stream: Any) -> None:
        self._channel = channel
        self._target = target
        self._stream = stream
        end_when_lost(stream)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._stream)
        except grpc.RpcError as error:
            self._channel.failed(self._target, error)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
