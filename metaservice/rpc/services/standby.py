"""What a process that doesn't lead answers: where the leader is, and that it takes no calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status

from metaservice.core.errors import MetaError
from metaservice.rpc.convert import answers
from metaservice.rpc.handlers import Handler
from metaservice.rpc.pipeline.listening import listen_on
from protos.laketx.v1 import admin_pb2

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
STATUS: Final = "/laketx.v1.AdminService/GetStatus"
THREADS: Final = 16
WATCHERS_MAX: Final = 8  # each has a thread
_NOT_SERVING: Final = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


@dataclass(frozen=True, slots=True)
class StandbyAnswers:
    """The refusal of all calls, and the answer to GetStatus."""

    refusal: Callable[[], MetaError]
    status: Callable[[], admin_pb2.GetStatusResponse]


class Standby(grpc.GenericRpcHandler):
    """A server for the time in which another process leads."""

    def __init__(
        self, listen: str, answers: StandbyAnswers, credentials: grpc.ServerCredentials | None, connections_max: int
    ) -> None:
        self._answers = answers
        self._stopped = threading.Event()
        self._watchers = threading.Semaphore(WATCHERS_MAX)
        self._server = grpc.server(
            ThreadPoolExecutor(THREADS, thread_name_prefix="standby"),
            handlers=[self],
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", connections_max),
            ],
        )
        self.address = listen_on(self._server, listen, credentials)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        """Its address is free when this returns."""
        self._stopped.set()
        self._server.stop(0).wait()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        method = handler_call_details.method
        if method == CHECK:
            return grpc.unary_unary_rpc_method_handler(
                lambda *_: _NOT_SERVING, None, health_pb2.HealthCheckResponse.SerializeToString
            )
        if method == WATCH:
            return grpc.unary_stream_rpc_method_handler(
                self._watch, None, health_pb2.HealthCheckResponse.SerializeToString
            )
        if method == STATUS:
            return grpc.unary_unary_rpc_method_handler(
                lambda *_: self._answers.status(), None, admin_pb2.GetStatusResponse.SerializeToString
            )
        return grpc.stream_unary_rpc_method_handler(self._refuse)

    def _watch(self, _: bytes, context: grpc.ServicerContext) -> Iterator[health_pb2.HealthCheckResponse]:
        yield _NOT_SERVING
        if self._watchers.acquire(blocking=False):
            try:
                while context.is_active() and not self._stopped.wait(1.0):
                    pass
            finally:
                self._watchers.release()

    def _refuse(self, _: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        context.abort_with_status(rpc_status.to_status(answers.status(self._answers.refusal())))
