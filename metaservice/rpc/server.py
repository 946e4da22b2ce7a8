"""The gRPC server: services, interceptors, health, reflection, graceful stop.

The interceptor is the one place where a refusal becomes a status and where anything unexpected ends the process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.rpc import answers
from metaservice.rpc.calls import Calls
from metaservice.rpc.servicers import (
    AdminServicer,
    CatalogServicer,
    MaintenanceServicer,
    ReadServicer,
    TransactionServicer,
)
from metaservice.rpc.session import Sessions
from metaservice.service.failures import as_refusal
from protos.laketx.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    maintenance_pb2,
    maintenance_pb2_grpc,
    read_pb2,
    read_pb2_grpc,
    transaction_pb2,
    transaction_pb2_grpc,
)

log = logging.getLogger("laketx.rpc")
SESSION = "/laketx.v1.TransactionService/Session"
RAW_ANSWERS = {"/laketx.v1.ReadService/PlanScan"}  # bytes already
SERVICES = [
    transaction_pb2.DESCRIPTOR.services_by_name["TransactionService"].full_name,
    catalog_pb2.DESCRIPTOR.services_by_name["CatalogService"].full_name,
    read_pb2.DESCRIPTOR.services_by_name["ReadService"].full_name,
    maintenance_pb2.DESCRIPTOR.services_by_name["MaintenanceService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the edge is bound by."""

    listen: str
    threads: int = 64
    sessions_max: int = 40
    message_bytes_max: int = 16 * 1024 * 1024


class Edge(grpc.ServerInterceptor):
    """Turns refusals into statuses, logs calls with their request id, and stops the process on the unexpected."""

    def __init__(self, next_id: Callable[[], str], fail_stop: Callable[[BaseException], None]) -> None:
        self._next_id = next_id
        self._fail_stop = fail_stop

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None or details.method.startswith("/grpc."):
            return handler
        given = dict(details.invocation_metadata or ()).get("x-request-id", "")
        request_id = str(given)[:64] or self._next_id()
        method = details.method
        if method == SESSION:  # raw bytes: frames are parsed off gRPC's own threads
            return grpc.stream_stream_rpc_method_handler(self._streamed(handler.stream_stream, method, request_id))
        if handler.unary_unary:
            wrapped = self._single(handler.unary_unary, method, request_id)
            return grpc.unary_unary_rpc_method_handler(
                wrapped, handler.request_deserializer, handler.response_serializer
            )
        if handler.stream_unary:
            wrapped = self._single(handler.stream_unary, method, request_id)
            return grpc.stream_unary_rpc_method_handler(
                wrapped, handler.request_deserializer, handler.response_serializer
            )
        streamed = self._streamed(handler.unary_stream or handler.stream_stream, method, request_id)
        if method in RAW_ANSWERS:
            return grpc.unary_stream_rpc_method_handler(streamed, handler.request_deserializer)
        make = grpc.unary_stream_rpc_method_handler if handler.unary_stream else grpc.stream_stream_rpc_method_handler
        return make(streamed, handler.request_deserializer, handler.response_serializer)

    def _single(self, call: Any, method: str, request_id: str) -> Any:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                return call(request, context)
            except Exception as error:  # noqa: BLE001 - every exception is told apart in one place
                self._refuse(error, context, method, request_id)

        return wrapped

    def _streamed(self, call: Any, method: str, request_id: str) -> Any:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                yield from call(request, context)
            except Exception as error:  # noqa: BLE001 - every exception is told apart in one place
                self._refuse(error, context, method, request_id)

        return wrapped

    def _refuse(self, error: Exception, context: grpc.ServicerContext, method: str, request_id: str) -> None:
        if isinstance(error, NotImplementedError):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error) or "not built yet")
        if isinstance(error, grpc.RpcError) or not context.is_active():
            return
        if isinstance(error, DecodeError):
            error = MetaError(ErrorKind.INVALID, "MESSAGE_UNREADABLE")
        error = as_refusal(error)
        if not isinstance(error, MetaError):
            self._fail_stop(error)
            return
        log.info(
            json.dumps(
                {"event": "refused", "method": method, "request_id": request_id, "reason": error.reason, **error.facts}
            )
        )
        context.set_trailing_metadata((("x-request-id", request_id),))
        context.abort_with_status(rpc_status.to_status(answers.status(error)))


class Server:
    """The listening server."""

    def __init__(
        self,
        calls: Calls,
        settings: ServerSettings,
        next_id: Callable[[], str],
        fail_stop: Callable[[BaseException], None],
    ) -> None:
        most = settings.message_bytes_max
        self._server = grpc.server(
            ThreadPoolExecutor(settings.threads, thread_name_prefix="rpc"),
            interceptors=[Edge(next_id, fail_stop)],
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.max_send_message_length", most),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
            ],
        )
        sessions = Sessions(calls, settings.sessions_max)
        transaction_pb2_grpc.add_TransactionServiceServicer_to_server(
            TransactionServicer(calls, sessions), self._server
        )
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(CatalogServicer(calls), self._server)  # type: ignore[abstract]
        read_pb2_grpc.add_ReadServiceServicer_to_server(ReadServicer(calls), self._server)  # type: ignore[abstract]
        maintenance_pb2_grpc.add_MaintenanceServiceServicer_to_server(MaintenanceServicer(), self._server)  # type: ignore[abstract]
        admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminServicer(), self._server)  # type: ignore[abstract]
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([*SERVICES, reflection.SERVICE_NAME], self._server)
        self.port = self._server.add_insecure_port(settings.listen)

    def start(self) -> None:
        self._server.start()
        for service in ("", *SERVICES):
            self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace_s: float) -> None:
        """Take no new calls, let those under way end."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait()
