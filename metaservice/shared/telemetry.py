"""OpenTelemetry, where its standard variables switch it on. Its packages, `laketx[otel]`, are imported only then.

A program that has set up OpenTelemetry itself keeps its own set-up: spans go to its tracer provider.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span, Tracer

SIGNALS: Final = ("traces", "metrics", "logs")
SCOPE: Final = "laketx"
NONE: Final[Mapping[str, str | int]] = {}

_tracer: Tracer | None = None
_is_decided = False


def enabled_signals(environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Those that an endpoint or an exporter of the environment asks for.

    The specification exports to localhost where nothing is set; here nothing set means off.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return frozenset()
    return frozenset(each for each in SIGNALS if _is_enabled(each.upper(), environment))


def _is_enabled(signal: str, environment: Mapping[str, str]) -> bool:
    exporters = environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if exporters:
        return "otlp" in [each.strip() for each in exporters.split(",")]
    return any(
        environment.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    )


def is_installed() -> bool:
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.sdk") is not None


def uses_http(signal: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether OTLP travels over HTTP; by default over gRPC, as in the SDK's own configuration."""
    protocol = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"
    )
    return protocol.strip().lower() == "http/protobuf"


def resource(name: str, version: str = "", environment: Mapping[str, str] = os.environ) -> Resource:
    """What exports are about: the environment's names win."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - imported only where it is switched on

    given = {"service.version": version} if version else {}
    is_named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create(given if is_named else {**given, "service.name": name})


def span_provider(name: str, version: str = "") -> Any:
    """A tracer provider that exports by OTLP; it is nobody else's."""
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    if uses_http("traces"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    else:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[assignment]  # noqa: PLC0415
            OTLPSpanExporter,
        )
    provider = TracerProvider(resource=resource(name, version))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def tracer() -> Tracer | None:
    """The tracer of this program's spans; None where it has none. Decided at the first call."""
    if not _is_decided:
        _decide()
    return _tracer


def _decide() -> None:
    global _tracer, _is_decided  # noqa: PLW0603 - one for the process
    own = sys.modules.get("opentelemetry.trace")
    if own is not None and not isinstance(own.get_tracer_provider(), own.ProxyTracerProvider):
        _tracer = own.get_tracer(SCOPE)
    elif "traces" in enabled_signals() and is_installed():
        try:
            _tracer = span_provider("laketx-client").get_tracer(SCOPE)
        except Exception as error:  # noqa: BLE001 - a wrong variable is no reason for a write to fail
            logging.getLogger(SCOPE).warning("OpenTelemetry can't be set up, so nothing is exported: %r", error)
    _is_decided = True


@contextmanager
def span(name: str, attributes: Mapping[str, str | int] = NONE) -> Iterator[Span | None]:
    """Open a span of this program, the current one in the block; None if spans are off."""
    current = tracer()
    if current is None:
        yield None
        return
    with current.start_as_current_span(name, attributes=named(attributes)) as opened:
        yield opened


def named(attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    """Attributes of LakeTX: `txn_id` is `laketx.txn_id`."""
    return {f"laketx.{name}": value for name, value in attributes.items() if value != ""}
