"""Spans of the client's calls, and the trace that travels with them; only where spans are on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from metaservice.shared import telemetry
from metaservice.shared.call_attributes import subject_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from protos.laketx.v1 import transaction_pb2

Metadata = tuple[tuple[str, str], ...]
T = TypeVar("T")
QUIET: Final = frozenset({"renew", "ping"})  # calls of a session that are no spans: they keep a lease, they do nothing
_names: dict[type, tuple[str, str]] = {}


def traced(request: Any, metadata: Metadata, call: Callable[[Metadata], T]) -> T:
    """The answer of the call, in a span of its own whose trace travels in the metadata."""
    tracer = telemetry.tracer()
    if tracer is None:
        return call(metadata)
    from opentelemetry import propagate, trace  # noqa: PLC0415 - imported only where spans are on

    span = _begun(tracer, request)
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    try:
        answer = call((*metadata, *carrier.items()))
        _note(span, answer)
        return answer
    except BaseException as error:
        _note_error(span, error)
        raise
    finally:
        span.end()


def traced_session(request: transaction_pb2.SessionRequest, call: Callable[[], T]) -> T:
    """Run a frame's calls; each call is a span that lasts as long as the frame."""
    tracer = telemetry.tracer()
    if tracer is None:
        return call()
    spans: list[tuple[str, Span]] = []
    for part in request.calls:
        name = part.WhichOneof("call") or ""
        if name not in QUIET:
            span = _begun(tracer, getattr(part, name))
            part.traceparent = _header(span)
            spans.append((name, span))
    try:
        answer = call()
        for kind, span in spans[-1:]:
            _note(span, getattr(answer, kind, None))
        return answer
    except BaseException as error:
        for _, span in spans:
            _note_error(span, error)
        raise
    finally:
        for _, span in spans:
            span.end()


def _begun(tracer: Tracer, request: Any) -> Span:
    """A span below the program's current one. It does not become the current one: nothing of the program is inside."""
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    service, method = _name(request)
    span = tracer.start_span(f"{service}/{method}", kind=SpanKind.CLIENT)
    if span.is_recording():
        about = subject_of(request)
        facts = telemetry.named({"table_id": ",".join(about.tables), "txn_id": about.txn_id, "name": about.name})
        span.set_attributes({"rpc.system": "grpc", "rpc.service": service, "rpc.method": method, **facts})
    return span


def _header(span: Span) -> str:
    """W3C's traceparent."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}" if context.is_valid else ""


def _note(span: Span, answer: Any) -> None:
    """Note in a span the outcome of the answer's transaction."""
    if not span.is_recording() or "outcome" not in getattr(getattr(answer, "DESCRIPTOR", None), "oneofs_by_name", {}):
        return
    if answer.WhichOneof("outcome") == "conflict":
        rules = answer.conflict.DESCRIPTOR.fields_by_name["rule"].enum_type.values_by_number
        rule = rules[answer.conflict.rule].name.removeprefix("CONFLICT_RULE_")
        span.set_attributes(telemetry.named({"outcome": "CONFLICT", "reason": rule}))
    else:
        span.set_attributes(telemetry.named({"outcome": "OK"}))


def _note_error(span: Span, error: BaseException) -> None:
    if span.is_recording():
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

        reason = getattr(error, "reason", "") or type(error).__name__
        span.set_attributes(telemetry.named({"outcome": "REFUSED", "reason": reason}))
        span.set_status(Status(StatusCode.ERROR, reason))


def _name(request: Any) -> tuple[str, str]:
    """Return the service and the method that accept such a request."""
    kind = type(request)
    names = _names.get(kind)
    if names is None:
        descriptor = kind.DESCRIPTOR
        services = descriptor.file.services_by_name.values()
        takers = [
            (service.full_name, method.name)
            for service in services
            for method in service.methods
            if method.input_type is descriptor
        ]
        names = _names[kind] = takers[0] if takers else (descriptor.file.package, descriptor.name)
    return names
