"""What the service exports by OTLP: spans of its calls, its metrics, its audit as logs.

Only where OpenTelemetry is switched on. Spans are made from records by a thread of their own, after the call was
answered. Metrics are read where Prometheus reads them, once an interval: nothing is counted twice.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from metaservice.core.errors import MetaError
from metaservice.metrics import METRICS, Histogram, Metric, Metrics, by_labels
from metaservice.rpc.observe.call_records import CONFLICT, OK, Record, answer_of, conflict_rule
from metaservice.service.decider.decider import Stamped
from metaservice.shared import telemetry

GATHER_S: Final = 0.05
SPANS_WAITING_MAX: Final = 16_384
INTERVAL_MS: Final = 60_000  # the SDK's default
STOP_S: Final = 5.0
CUMULATIVE: Final = points.AggregationTemporality.CUMULATIVE


class OtlpExport:
    """Everything that goes out by OTLP."""

    def __init__(self, signals: Collection[str], metrics: Metrics, version: str, now_ns: Callable[[], int]) -> None:
        self.spans = Spans(version) if "traces" in signals else None
        self._metrics = MetricExport(metrics, version, now_ns) if "metrics" in signals else None
        self._logs = _log_provider(version) if "logs" in signals else None
        self._logger = self._logs.get_logger(telemetry.SCOPE) if self._logs is not None else None

    @property
    def has_logs(self) -> bool:
        return self._logger is not None

    def log(self, record: Record, document: Mapping[str, Any]) -> None:
        """A record of the audit as a log."""
        if self._logger is None:
            return
        self._logger.emit(
            timestamp=record.time_ns,
            context=_parent(record),
            severity_text="INFO",
            body=dict(document),
            event_name="laketx.audit",
        )

    def start(self) -> None:
        for part in (self.spans, self._metrics):
            if part is not None:
                part.start()

    def stop(self) -> None:
        """Exports what waits, as far as the collector takes it in time."""
        for part in (self.spans, self._metrics):
            if part is not None:
                part.stop()
        if self._logs is not None:
            self._logs.force_flush(int(STOP_S * 1_000))


class Spans:
    """Makes spans from records. Beyond its bound the newest are lost."""

    def __init__(self, version: str) -> None:
        self._provider = telemetry.span_provider("laketx", version)
        self._tracer: Tracer = self._provider.get_tracer(telemetry.SCOPE)
        self._records: deque[Record] = deque()
        self._bell = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._bell.set()
        self._thread.join(STOP_S)
        self._provider.force_flush(int(STOP_S * 1_000))

    def put(self, record: Record) -> None:
        if len(self._records) < SPANS_WAITING_MAX:
            self._records.append(record)
            if not self._bell.is_set():
                self._bell.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._bell.wait()
            self._stopped.wait(GATHER_S)
            self._bell.clear()
            while self._records:
                self._make(self._records.popleft())
                time.sleep(0)  # calls that wait for the interpreter come first

    def _make(self, record: Record) -> None:
        service, _, method = record.method.lstrip("/").partition("/")
        shift_ns = record.time_ns - record.begun_ns
        span = self._tracer.start_span(
            f"{service}/{method}", context=_parent(record), kind=SpanKind.SERVER, start_time=record.time_ns
        )
        if span.is_recording():
            named = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
            span.set_attributes({**named, **telemetry.named(facts_of(record))})
            if isinstance(record.result, BaseException):
                span.set_status(Status(StatusCode.ERROR, answer_of(record.result)))
            inside = set_span_in_context(span)
            for stamped in record.stamps:
                self._make_steps(stamped, inside, shift_ns, record)
        span.end(record.time_ns + record.ended_ns - record.begun_ns)

    def _make_steps(self, job: Stamped, inside: Context, shift_ns: int, record: Record) -> None:
        outcome = {"txn_id": record.subject.txn_id, "outcome": answer_of(record.result)}
        steps: tuple[tuple[str, int, int, Mapping[str, str | int]], ...] = (
            ("wait for the decider", job.requested_ns, job.begun_ns, {}),
            ("decide", job.begun_ns, job.decided_ns, {"turns": job.turns, **outcome}),
            ("sync", job.sync_ns, job.synced_ns, {"group_jobs": job.jobs}),
        )
        for name, begun_ns, ended_ns, facts in steps:
            if begun_ns and ended_ns:  # a job of a store that failed has no sync
                step = self._tracer.start_span(
                    name, context=inside, start_time=begun_ns + shift_ns, attributes=telemetry.named(facts)
                )
                step.end(ended_ns + shift_ns)


def facts_of(record: Record) -> dict[str, str | int]:
    """The attributes of a call: table, transaction, outcome, reason."""
    answer = answer_of(record.result)
    rule = conflict_rule(record.result)
    refused = answer not in (OK, CONFLICT)
    return {
        "table_id": ",".join(record.subject.tables),
        "name": record.subject.name,
        "txn_id": record.subject.txn_id,
        "outcome": "REFUSED" if refused else answer,
        "reason": answer if refused else rule,
        "request_id": record.request_id,
        **({"kind": record.result.kind.name} if isinstance(record.result, MetaError) else {}),
    }


def _parent(record: Record) -> Context:
    carrier = record.caller.trace if record.trace is None else record.trace
    return TraceContextTextMapPropagator().extract(dict(carrier), Context())


class MetricExport:
    """Reads all metrics once an interval and sends them, cumulative as Prometheus has them."""

    def __init__(
        self,
        metrics: Metrics,
        version: str,
        now_ns: Callable[[], int],
        environment: Mapping[str, str] = os.environ,  # noqa: TID251 - the SDK reads its variables there too
    ) -> None:
        if telemetry.uses_http("metrics"):
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        else:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # type: ignore[assignment]  # noqa: PLC0415
                OTLPMetricExporter,
            )
        self._exporter = OTLPMetricExporter()
        self._readings = metrics.readings
        self._resource = telemetry.resource("laketx", version)
        self._now_ns = now_ns
        self._begun_ns = now_ns()
        self._scope = InstrumentationScope(telemetry.SCOPE, version)
        given = environment.get("OTEL_METRIC_EXPORT_INTERVAL", "")
        self._interval_s = (int(given) if given.isdecimal() and int(given) else INTERVAL_MS) / 1_000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metric-export", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._export()
        self._export()
        self._exporter.shutdown(timeout_millis=STOP_S * 1_000)

    def _export(self) -> None:
        now_ns = self._now_ns()
        try:
            exported = [each for metric in METRICS for each in self._metric(metric, now_ns)]
        except Exception:  # noqa: BLE001 - a store that is being opened again is no reason to end
            return
        scope = points.ScopeMetrics(self._scope, exported, "")
        self._exporter.export(points.MetricsData([points.ResourceMetrics(self._resource, [scope], "")]))

    def _metric(self, metric: Metric, now_ns: int) -> Iterator[points.Metric]:
        begun_ns = self._begun_ns
        numbers: list[points.NumberDataPoint] = []
        histograms: list[points.HistogramDataPoint] = []
        for values, value in by_labels(self._readings[metric]()):
            labels = dict(zip(metric.labels, values, strict=True))
            if isinstance(value, Histogram):
                histograms.append(_histogram(labels, value, begun_ns, now_ns))
            else:
                numbers.append(points.NumberDataPoint(labels, begun_ns, now_ns, value))
        data: points.DataT
        match metric.kind:
            case "histogram":
                data = points.Histogram(histograms, CUMULATIVE)
            case "counter":
                data = points.Sum(numbers, CUMULATIVE, is_monotonic=True)
            case _:
                data = points.Gauge(numbers)
        if numbers or histograms:
            yield points.Metric(metric.name, metric.says, "", data)


def _histogram(labels: Mapping[str, str], value: Histogram, begun_ns: int, now_ns: int) -> points.HistogramDataPoint:
    counts = list(value.counts)
    return points.HistogramDataPoint(
        attributes=dict(labels),
        start_time_unix_nano=begun_ns,
        time_unix_nano=now_ns,
        count=sum(counts),
        sum=value.total,
        bucket_counts=counts,
        explicit_bounds=list(value.bounds),
        min=0.0,
        max=value.bounds[-1],
    )


def _log_provider(version: str) -> LoggerProvider:
    if telemetry.uses_http("logs"):
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415
    else:
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import (  # type: ignore[assignment]  # noqa: PLC0415
            OTLPLogExporter,
        )
    provider = LoggerProvider(resource=telemetry.resource("laketx", version))
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    return provider
