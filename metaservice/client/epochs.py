"""Sends the expected history epoch with every call."""

from __future__ import annotations

from typing import Any

import grpc

EXPECTED_EPOCH = "x-laketx-epoch"


class _Details(grpc.ClientCallDetails):
    """The details of a call with one more pair of metadata."""

    def __init__(self, details: grpc.ClientCallDetails, epoch: str) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = (*(details.metadata or ()), (EXPECTED_EPOCH, epoch))
        self.credentials = details.credentials
        self.wait_for_ready = getattr(details, "wait_for_ready", None)
        self.compression = getattr(details, "compression", None)


class _Expecting(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    def __init__(self, epoch: str) -> None:
        self._epoch = epoch

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_Details(client_call_details, self._epoch), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_Details(client_call_details, self._epoch), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(_Details(client_call_details, self._epoch), request_iterator)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(_Details(client_call_details, self._epoch), request_iterator)


def expect_epoch(channel: grpc.Channel, epoch: str) -> grpc.Channel:
    """The channel, with the epoch in every call on it."""
    return grpc.intercept_channel(channel, _Expecting(epoch))
