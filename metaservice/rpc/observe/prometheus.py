"""Metrics over HTTP in Prometheus's text format, on a port of its own: GET /metrics, nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from metaservice.metrics import METRICS, Histogram, Metric, Readings, Value, by_labels
from metaservice.service.decider.decider import as_refusal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
READ_TIMEOUT_S: Final = 10.0
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Collector:
    """Reads every metric at a scrape, so that counting costs only an addition."""

    def __init__(self) -> None:
        self.readings: Readings = {}

    def collect(self) -> Iterator[Family]:
        readings = self.readings
        for metric in METRICS:
            if metric in readings:
                yield _family(metric, by_labels(readings[metric]()))


class Exporter:
    """Listens from its construction; `address` is host:port."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._collector = Collector()
        self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(self._collector))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def show(self, readings: Readings) -> None:
        """From now on scrapes are told these."""
        self._collector.readings = readings

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Scrape(BaseHTTPRequestHandler):
        timeout = READ_TIMEOUT_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            try:
                body = generate_latest(collector)
            except Exception as error:  # noqa: BLE001 - a store that is being opened again is no reason to end
                self.send_error(503, explain=str(as_refusal(error)))
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Scrapes are not logged."""

    return Scrape


def _family(metric: Metric, values: Iterable[tuple[Sequence[str], Value]]) -> Family:
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(metric.name, metric.says, labels=metric.labels)
        for labels, value in values:
            assert isinstance(value, Histogram)
            bounds = [*map(str, value.bounds), "+Inf"]
            histograms.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
        return histograms
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.says, labels=metric.labels)
    for labels, value in values:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family
