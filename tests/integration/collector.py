"""A collector of OTLP over gRPC: it keeps what it is sent."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from tests.integration.service import TIMEOUT_S

Span = dict[str, Any]


class Collector:
    """What was received."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.address = ""
        self.spans: list[Span] = []
        self.metrics: dict[str, Any] = {}
        self.logs: list[Any] = []

    def take_spans(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        with self._lock:
            for resource in request.resource_spans:
                service = attributes(resource.resource.attributes).get("service.name")
                for scope in resource.scope_spans:
                    self.spans += [span_of(each, service) for each in scope.spans]

    def take_metrics(self, request: metrics_service_pb2.ExportMetricsServiceRequest) -> None:
        with self._lock:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {each.name: each for each in scope.metrics}

    def take_logs(self, request: logs_service_pb2.ExportLogsServiceRequest) -> None:
        with self._lock:
            for resource in request.resource_logs:
                for scope in resource.scope_logs:
                    self.logs += scope.log_records

    def named(self, name: str) -> list[Span]:
        with self._lock:
            return [each for each in self.spans if each["name"] == name]

    def below(self, span: Span) -> list[Span]:
        with self._lock:
            return [each for each in self.spans if each["parent"] == span["id"]]

    def wait_for(self, found: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while not (value := found()):
            assert time.monotonic() < deadline, sorted({each["name"] for each in self.spans})
            time.sleep(0.05)
        return value


def span_of(span: Any, service: object) -> Span:
    return {
        "name": span.name,
        "service": service,
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "kind": span.kind,
        "from": span.start_time_unix_nano,
        "to": span.end_time_unix_nano,
        "status": span.status.code,
        **attributes(span.attributes),
    }


def attributes(pairs: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value") for each in pairs}


@contextmanager
def collector() -> Iterator[Collector]:
    found = Collector()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> trace_service_pb2.ExportTraceServiceResponse:
            found.take_spans(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> metrics_service_pb2.ExportMetricsServiceResponse:
            found.take_metrics(request)
            return metrics_service_pb2.ExportMetricsServiceResponse()

    class Logs(logs_service_pb2_grpc.LogsServiceServicer):
        def Export(self, request: Any, context: Any) -> logs_service_pb2.ExportLogsServiceResponse:
            found.take_logs(request)
            return logs_service_pb2.ExportLogsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)  # type: ignore[no-untyped-call]
    found.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield found
    finally:
        server.stop(None).wait()
