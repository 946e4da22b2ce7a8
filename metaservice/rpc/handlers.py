"""gRPC's handlers of all four kinds: one request or a stream, one answer or a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import grpc

Context: TypeAlias = grpc.ServicerContext
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Handler | None]"
Call = Callable[[Any, grpc.ServicerContext], Any]  # of any method: a message or an iterator of them, in and out


def call_of(handler: Handler) -> Call:
    """The method of the handler."""
    return cast(Call, getattr(handler, _kind(handler)))


def wrapping(handler: Handler, wrap: Callable[[Call], Call]) -> Handler:
    """The same handler with a wrapped method."""
    replaced = handler._replace(**{_kind(handler): wrap(call_of(handler))})  # type: ignore[attr-defined]
    return cast(Handler, replaced)


def _kind(handler: Handler) -> str:
    streams = ("unary", "stream")
    return f"{streams[handler.request_streaming]}_{streams[handler.response_streaming]}"
