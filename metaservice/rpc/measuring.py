"""Counts calls, their times, their refusals, and the streams that are open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc

from metaservice.core.errors import MetaError
from metaservice.observe import CallMetrics
from metaservice.service.failures import as_refusal


class Measuring(grpc.ServerInterceptor):
    """Stands inside of whatever turns refusals into statuses, outside of what refuses."""

    def __init__(self, metrics: CallMetrics) -> None:
        self._metrics = metrics

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None or details.method.startswith("/grpc."):
            return handler
        method = details.method
        if handler.unary_unary:
            return handler._replace(unary_unary=self._single(handler.unary_unary, method))
        if handler.stream_unary:
            return handler._replace(stream_unary=self._single(handler.stream_unary, method))
        if handler.unary_stream:
            return handler._replace(unary_stream=self._streamed(handler.unary_stream, method))
        return handler._replace(stream_stream=self._streamed(handler.stream_stream, method))

    def _single(self, call: Any, method: str) -> Any:
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

    def _streamed(self, call: Any, method: str) -> Any:
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
