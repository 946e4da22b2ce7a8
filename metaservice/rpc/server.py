"""The gRPC server: services, interceptors, health, reflection, graceful stop.

The interceptor is the one place where a refusal becomes a status and where anything unexpected ends the process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.observe import REFUSED
from metaservice.rpc import answers
from metaservice.rpc.activity import Activity
from metaservice.rpc.admin import OperatorServicer
from metaservice.rpc.calls import Calls
from metaservice.rpc.catalog import CatalogServicer
from metaservice.rpc.epochs import Epochs
from metaservice.rpc.measuring import Measuring
from metaservice.rpc.servicers import (
    MaintenanceServicer,
    ReadServicer,
    TransactionServicer,
)
from metaservice.rpc.session import Sessions
from metaservice.rpc.watching import Watches
from metaservice.service.failures import as_refusal
from metaservice.service.operators import Operators
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
RAW_ANSWERS = {"/laketx.v1.ReadService/PlanScan", "/laketx.v1.ReadService/Watch"}  # bytes already
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
    watchers_max: int = 256
    message_bytes_max: int = 16 * 1024 * 1024


class Edge(grpc.ServerInterceptor):
    """Turns refusals into statuses, logs calls with their request id, and stops the process on the unexpected."""

    def __init__(
        self, next_id: Callable[[], str], fail_stop: Callable[[BaseException], None], activity: Activity
    ) -> None:
        self._activity = activity
        self._next_id = next_id
        self._fail_stop = fail_stop

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None or details.method.startswith("/grpc."):
            return handler
        given = dict(details.invocation_metadata or ()).get("x-request-id", "")
        request_id = str(given)[:64] or self._next_id()
        method = details.method
        if method == SESSION:  # its frames are parsed by a thread of its own
            return grpc.stream_stream_rpc_method_handler(self._streamed(handler.stream_stream, method, request_id))
        handler = _parsing(handler)
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
        make = grpc.unary_stream_rpc_method_handler if handler.unary_stream else grpc.stream_stream_rpc_method_handler
        encode = None if method in RAW_ANSWERS else handler.response_serializer
        return make(streamed, handler.request_deserializer, encode)

    def _single(self, call: Any, method: str, request_id: str) -> Any:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                self._activity.begin()
                try:
                    return call(request, context)
                finally:
                    self._activity.end()
            except Exception as error:  # noqa: BLE001 - every exception is told apart in one place
                self._refuse(error, context, method, request_id)

        return wrapped

    def _streamed(self, call: Any, method: str, request_id: str) -> Any:
        def wrapped(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                self._activity.begin()
                try:
                    yield from call(request, context)
                finally:
                    self._activity.end()
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
                {"event": REFUSED, "method": method, "request_id": request_id, "reason": error.reason, **error.facts}
            )
        )
        context.set_trailing_metadata((("x-request-id", request_id),))
        context.abort_with_status(rpc_status.to_status(answers.status(error)))


def _parsing(handler: Any) -> Any:
    """The handler, given bytes that it parses by itself: gRPC answers INTERNAL, with no reason, where it can't."""
    kind = next(each for each in HANDLERS if getattr(handler, each) is not None)
    call, parse = getattr(handler, kind), handler.request_deserializer

    def with_one(raw: bytes, context: grpc.ServicerContext) -> Any:
        return call(parse(raw), context)

    def with_many(raws: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        return call(map(parse, raws), context)

    return HANDLERS[kind](with_many if handler.request_streaming else with_one, None, handler.response_serializer)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


class Server:
    """The listening server."""

    def __init__(
        self,
        calls: Calls,
        operators: Operators,
        settings: ServerSettings,
        next_id: Callable[[], str],
        fail_stop: Callable[[BaseException], None],
    ) -> None:
        self.activity = Activity()
        most = settings.message_bytes_max
        self._server = grpc.server(
            ThreadPoolExecutor(settings.threads + settings.watchers_max, thread_name_prefix="rpc"),
            interceptors=[
                Edge(next_id, fail_stop, self.activity),
                Measuring(operators.metrics.calls),
                Epochs(operators.epoch),
            ],
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.max_send_message_length", most),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.keepalive_time_ms", 30_000),  # a watcher that vanished gives its place back
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # or clients that are quiet are cut off
            ],
        )
        sessions = Sessions(calls, settings.sessions_max)
        self._watches = Watches(calls, settings.watchers_max)
        transaction_pb2_grpc.add_TransactionServiceServicer_to_server(
            TransactionServicer(calls, sessions), self._server
        )
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(CatalogServicer(calls), self._server)
        read_pb2_grpc.add_ReadServiceServicer_to_server(ReadServicer(calls, self._watches), self._server)
        maintenance_pb2_grpc.add_MaintenanceServiceServicer_to_server(MaintenanceServicer(calls), self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(OperatorServicer(calls, operators), self._server)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([*SERVICES, reflection.SERVICE_NAME], self._server)
        port = self._server.add_insecure_port(settings.listen)
        is_socket = settings.listen.startswith("unix:")
        self.address = settings.listen if is_socket else f"{settings.listen.rsplit(':', 1)[0]}:{port}"
        self._sessions = sessions

    def start(self) -> None:
        self._server.start()
        for service in ("", *SERVICES):
            self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace_s: float) -> None:
        """Take no new calls, let those under way end."""
        self._sessions.stop()
        self._health.enter_graceful_shutdown()
        self._watches.stop()
        self._server.stop(grace_s).wait()
