"""Spans of the client's calls, and the trace that travels with them; only where spans are on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from metaservice import telemetry
from metaservice.subjects import subject_of

if TYPE_CHECKING:
    from protos.laketx.v1 import transaction_pb2

Metadata = tuple[tuple[str, str], ...]
T = TypeVar("T")
QUIET: Final = frozenset({"renew", "ping"})  # calls of a session that are no spans: they keep a lease, they do nothing
_names: dict[type, tuple[str, str]] = {}


def traced(request: Any, metadata: Metadata, call: Callable[[Metadata], T]) -> T:
    """The answer of the call, in a span of its own whose trace travels in the metadata."""
    if telemetry.tracer() is None:
        return call(metadata)
    service, method = _name(request)
    with _span(service, method, request) as (span, trace):
        answer = call((*metadata, *trace))
        _note(span, answer)
        return answer


def traced_session(request: transaction_pb2.SessionRequest, call: Callable[[], T]) -> T:
    """The answer of a session's calls: each is a span, and they last as long as their frame."""
    if telemetry.tracer() is None:
        return call()
    return _one_by_one(list(request.calls), call)


def _one_by_one(calls: Sequence[transaction_pb2.SessionCall], call: Callable[[], T]) -> T:
    if not calls:
        return call()
    one = calls[0]
    kind = one.WhichOneof("call") or ""
    if kind in QUIET:
        return _one_by_one(calls[1:], call)
    inner = getattr(one, kind)
    service, method = _name(inner)
    with _span(service, method, inner) as (span, trace):
        one.traceparent = dict(trace).get("traceparent", "")
        if len(calls) > 1:
            return _beside(calls[1:], call)
        answer = call()
        _note(span, getattr(answer, kind, None))
        return answer


def _beside(calls: Sequence[transaction_pb2.SessionCall], call: Callable[[], T]) -> T:
    """The following calls of a frame are not part of the first one: their spans stand beside it."""
    from opentelemetry import context, trace  # noqa: PLC0415 - imported only where spans are on

    parent = getattr(trace.get_current_span(), "parent", None)
    outside = trace.set_span_in_context(trace.NonRecordingSpan(parent) if parent is not None else trace.INVALID_SPAN)
    token = context.attach(outside)
    try:
        return _one_by_one(calls, call)
    finally:
        context.detach(token)


@contextmanager
def _span(service: str, method: str, request: Any) -> Iterator[tuple[Any, Metadata]]:
    from opentelemetry import propagate  # noqa: PLC0415
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    tracer = telemetry.tracer()
    assert tracer is not None
    about = subject_of(request)
    facts = telemetry.named({"table_id": ",".join(about.tables), "txn_id": about.txn_id, "name": about.name})
    with tracer.start_as_current_span(
        f"{service}/{method}",
        kind=SpanKind.CLIENT,
        attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": method, **facts},
        record_exception=False,
    ) as span:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        try:
            yield span, tuple(carrier.items())
        except Exception as error:
            if reason := getattr(error, "reason", ""):
                span.set_attributes(telemetry.named({"outcome": "REFUSED", "reason": reason}))
            raise


def _note(span: Any, answer: Any) -> None:
    """What the answer says about the outcome of a transaction."""
    oneofs = getattr(getattr(answer, "DESCRIPTOR", None), "oneofs_by_name", {})
    if "outcome" not in oneofs:
        return
    if answer.WhichOneof("outcome") == "conflict":
        rules = answer.conflict.DESCRIPTOR.fields_by_name["rule"].enum_type.values_by_number
        rule = rules[answer.conflict.rule].name.removeprefix("CONFLICT_RULE_")
        span.set_attributes(telemetry.named({"outcome": "CONFLICT", "reason": rule}))
    else:
        span.set_attributes(telemetry.named({"outcome": "OK"}))


def _name(request: Any) -> tuple[str, str]:
    """The service and the method that take such a request."""
    kind = type(request)
    found = _names.get(kind)
    if found is None:
        descriptor = kind.DESCRIPTOR
        services = descriptor.file.services_by_name.values()
        takers = [
            (service.full_name, method.name)
            for service in services
            for method in service.methods
            if method.input_type is descriptor
        ]
        found = _names[kind] = takers[0] if takers else (descriptor.file.package, descriptor.name)
    return found
