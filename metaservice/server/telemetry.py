"""What looks at the service from outside, as its settings say: an audit, OpenTelemetry, a scrape of metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metaservice.metrics import Metrics, Readings
from metaservice.rpc.observe.audit import Audit
from metaservice.rpc.observe.call_records import Recorder, Sinks
from metaservice.server.process import product_version
from metaservice.server.settings import Settings
from metaservice.service.decider.decider import Decider
from metaservice.shared import telemetry
from metaservice.shared.log import METRICS_LISTEN, OTEL_FAILED, OTEL_MISSING, event

if TYPE_CHECKING:
    from metaservice.rpc.observe.otlp import OtlpExport
    from metaservice.rpc.observe.prometheus import Exporter


@dataclass(frozen=True, slots=True)
class Observers:
    """What looks at calls: an audit, OpenTelemetry, or nothing."""

    recorder: Recorder | None
    starts: Sequence[Callable[[], None]]
    stops: Sequence[Callable[[], None]]

    def start(self) -> None:
        for start in self.starts:
            start()

    def stop(self) -> None:
        for stop in self.stops:
            stop()


def set_up_observers(settings: Settings, decider: Decider, metrics: Metrics) -> Observers:
    exports = _exports(metrics)
    audit = None
    if settings.audit.to.file or (exports is not None and exports.has_logs):
        audit = Audit(
            settings.audit,
            lambda table_id: view.meta.name if (view := decider.state.views.find(table_id)) is not None else "",
            exports.log if exports is not None and exports.has_logs else None,
        )
        audit.measure(metrics)
    spans = exports.spans if exports is not None else None
    sinks: list[Sinks] = [each for each in (audit, spans) if each is not None]
    if exports is None and audit is None:
        return Observers(None, (), ())
    recorder = None
    if sinks:
        check = audit.check if audit is not None else _passes
        recorder = Recorder(decider, sinks, check, traces=spans is not None, now_ns=time.time_ns)
    parts = [each for each in (audit, exports) if each is not None]  # the audit's last records go to the exports
    return Observers(recorder, [each.start for each in parts], [each.stop for each in parts])


def _passes(_: str) -> None:
    """Ignores the record."""


def _exports(metrics: Metrics) -> OtlpExport | None:
    """OpenTelemetry, where the environment switches it on."""
    signals = telemetry.enabled_signals()
    if not signals:
        return None
    if not telemetry.is_installed():
        event(OTEL_MISSING)
        return None
    from metaservice.rpc.observe.otlp import OtlpExport  # noqa: PLC0415 - its libraries would slow every start

    try:
        return OtlpExport(signals, metrics, product_version(), time.time_ns)
    except Exception as error:  # noqa: BLE001 - the packages raise many kinds for values that they can't read
        event(OTEL_FAILED, error=repr(error))
        return None


class NoExporter:
    """Of a service whose metrics nobody scrapes."""

    def show(self, readings: Readings) -> None:
        """Nobody looks."""

    def stop(self) -> None:
        """Nothing runs."""


def serve_metrics(settings: Settings, readings: Readings) -> Exporter | NoExporter:
    if not settings.metrics_listen:
        return NoExporter()
    from metaservice.rpc.observe.prometheus import Exporter  # noqa: PLC0415 - its library would slow every start

    exporter = Exporter(settings.metrics_listen)
    exporter.show(readings)
    exporter.start()
    event(METRICS_LISTEN, listen=f"{settings.metrics_listen.rpartition(':')[0]}:{exporter.port}")
    return exporter
