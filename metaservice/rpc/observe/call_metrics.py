"""Counts calls, their times, their refusals, and open streams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc

from metaservice.core.errors import MetaError
from metaservice.metrics import CallMetrics
from metaservice.rpc.handlers import Call, Continuation, Handler, wrapping
from metaservice.service.decider.decider import as_refusal


class CallMetricsInterceptor(grpc.ServerInterceptor):
    """An interceptor inside the one that turns refusals into statuses, and outside those that refuse."""

    def __init__(self, metrics: CallMetrics) -> None:
        self._metrics = metrics

    def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        handler = continuation(details)
        if handler is None or details.method.startswith("/grpc."):
            return handler
        method: str = details.method
        measured = self._streamed if handler.response_streaming else self._single
        return wrapping(handler, lambda call: measured(call, method))

    def _single(self, call: Call, method: str) -> Call:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Any:
            begun_ns = time.perf_counter_ns()
            try:
                return call(request, context)
            except Exception as error:
                self._count_error(method, error)
                raise
            finally:
                self._metrics.count_call(method, (time.perf_counter_ns() - begun_ns) / 1e9)

        return wrapped

    def _streamed(self, call: Call, method: str) -> Call:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self._metrics.count_stream(method, 1)
            try:
                yield from call(request, context)
            except Exception as error:
                self._count_error(method, error)
                raise
            finally:
                self._metrics.count_stream(method, -1)

        return wrapped

    def _count_error(self, method: str, error: Exception) -> None:
        refusal = as_refusal(error)
        if isinstance(refusal, MetaError):
            self._metrics.count_error(method, refusal.reason)
