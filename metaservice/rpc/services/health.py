"""The standard health service: whether MetaService takes calls, as the deciding thread says.

If the decider doesn't answer, the service is NOT_SERVING, even if its other threads do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.rpc.pipeline.open_streams import Streams
from metaservice.service.decider.liveness import Liveness

WATCH_EVERY_S: Final = 1.0


class Health(health_pb2_grpc.HealthServicer):
    """Check and Watch of grpc.health.v1."""

    def __init__(self, services: Iterable[str], liveness: Liveness, streams: Streams) -> None:
        self._services = ("", *services)
        self._liveness = liveness
        self._streams = streams
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Answers NOT_SERVING from now on."""
        self._stopped.set()

    def _status(self) -> int:
        if self._stopped.is_set() or not self._liveness.answers():
            return health_pb2.HealthCheckResponse.NOT_SERVING
        return health_pb2.HealthCheckResponse.SERVING

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            raise MetaError(ErrorKind.NOT_FOUND, "SERVICE_UNKNOWN", service=request.service[:128])
        return health_pb2.HealthCheckResponse(status=self._status())

    def Watch(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        stream, is_offered = self._streams.of(context), request.service in self._services
        sent: int | None = None
        while context.is_active() and not stream.over:
            status = self._status() if is_offered else health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            if status != sent:
                sent = status
                yield health_pb2.HealthCheckResponse(status=status)
            if self._stopped.wait(WATCH_EVERY_S):
                yield health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
                return
