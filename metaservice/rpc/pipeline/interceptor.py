"""What every call passes first: it gets a thread of its kind or is refused, its bytes are parsed by our code, and what
it meets becomes a status.

The interceptor is the one place where a refusal becomes a status and where anything unexpected ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_status import rpc_status

from metaservice.core import quotas
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.quotas import Quota
from metaservice.metrics import CallMetrics
from metaservice.rpc.auth.authorization import Authorizer, CallContext
from metaservice.rpc.convert import answers
from metaservice.rpc.handlers import Call, Continuation, Handler, call_of
from metaservice.rpc.observe.call_records import Recorder
from metaservice.rpc.observe.refusal_log import RefusalLog
from metaservice.rpc.pipeline.activity import Activity
from metaservice.rpc.pipeline.open_streams import Streams
from metaservice.rpc.pipeline.rate_limits import Rates
from metaservice.rpc.pipeline.thread_pools import Lane, Seat
from metaservice.service.decider.decider import as_refusal

PRINCIPAL: Final = "x-laketx-principal"
PRINCIPAL_CHARS_MAX: Final = 128
SESSION: Final = "/laketx.v1.TransactionService/Session"
RAW_ANSWERS: Final = {  # bytes already
    SESSION,
    "/laketx.v1.ReadService/ListFiles",
    "/laketx.v1.ReadService/PlanScan",
    "/laketx.v1.ReadService/Watch",
}
CALLS: Final = "calls"
PROBES: Final = "probes"
LANES: Final[Mapping[str, str]] = {  # all other methods are single calls
    SESSION: quotas.SESSIONS,
    "/laketx.v1.ReadService/Watch": quotas.WATCHERS,
    "/laketx.v1.ReadService/PlanScan": quotas.PLANS,
    "/laketx.v1.ReadService/PlanChanges": quotas.PLANS,
    "/laketx.v1.ReadService/ListFiles": quotas.PLANS,
    "/laketx.v1.ReadService/ReadInlined": quotas.PLANS,
    "/laketx.v1.TransactionService/RegisterFiles": quotas.REGISTRATIONS,
    "/laketx.v1.AdminService/Check": quotas.CHECKS,
    "/laketx.v1.AdminService/GetStatus": PROBES,
    "/grpc.health.v1.Health/Check": PROBES,
    "/grpc.health.v1.Health/Watch": quotas.CHECKS,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": quotas.CHECKS,
}
SHOWN_BY_ALL: Final = ("/grpc.", "/laketx.v1.AdminService/GetStatus")  # by processes that don't lead too
PROBE_THREADS: Final = 4
CALLS_WAITING_MAX: Final = 4_096
REFUSALS_WAITING_MAX: Final = 4_096
THREADS_READY: Final = 8  # from the start: where the system gives no thread later on, these serve


Parse = Callable[[bytes], Message] | None


def principal_of(metadata: Mapping[str, str | bytes]) -> str:
    """The principal whose quotas the call uses, as its client says; empty: none."""
    given = metadata.get(PRINCIPAL)
    return unquote(str(given))[:PRINCIPAL_CHARS_MAX] if given else ""


class Routed:
    """A handler that runs on the threads of its lane: gRPC reads the attribute."""

    __slots__ = ("_call", "experimental_thread_pool")

    def __init__(self, call: Call, lane: Lane | Seat) -> None:
        self._call = call
        self.experimental_thread_pool = lane

    def __call__(self, requests: Any, context: grpc.ServicerContext) -> Any:
        return self._call(requests, context)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes, by kind of call."""

    calls: Lane
    probes: Lane
    refusals: Lane
    streams: Mapping[str, Lane]
    quotas: Mapping[str, Quota]

    @classmethod
    def build(cls, threads: int, limits: Mapping[str, Quota]) -> Lanes:
        streams = {name: Lane(name, limits[name].most) for name in dict.fromkeys(LANES.values()) if name != PROBES}
        calls = Lane(CALLS, threads, waiting=CALLS_WAITING_MAX, ready=THREADS_READY)
        probes = Lane(PROBES, PROBE_THREADS, waiting=CALLS_WAITING_MAX, ready=PROBE_THREADS)
        return cls(calls, probes, Lane("refusals", 1, waiting=REFUSALS_WAITING_MAX, ready=1), streams, limits)

    @property
    def most(self) -> int:
        return sum(lane.most for lane in (self.calls, self.probes, self.refusals, *self.streams.values()))

    def stop(self) -> None:
        for lane in (self.calls, self.probes, self.refusals, *self.streams.values()):
            lane.stop()

    def find(self, method: str) -> Lane:
        name = LANES.get(method)
        if name is None:
            return self.calls
        return self.probes if name == PROBES else self.streams[name]

    def check(self, lane: Lane, principal: str) -> None:
        """Refuses a call for which no thread is free. On gRPC's thread, which passes the call on next."""
        quota = self.quotas.get(lane.name)
        if lane.is_full():
            if quota is None:
                raise MetaError(ErrorKind.EXHAUSTED, "TOO_MANY_CALLS", most=lane.most)
            raise quotas.refusal(lane.name, quota.most)
        if quota is not None and lane.held[principal] >= quota.each:
            raise quotas.refusal(lane.name, quota.each, principal)
        if not lane.has_thread():
            raise MetaError(
                ErrorKind.EXHAUSTED, "NO_THREAD", "the system gives the service no more threads: repeat the call later"
            )


class CallInterceptor(grpc.ServerInterceptor):
    """Gives calls their threads, turns refusals into statuses, logs calls with their request id, and ends the process
    on unexpected errors.
    """

    def __init__(
        self,
        next_id: Callable[[], str],
        fail_stop: Callable[[BaseException], None],
        activity: Activity,
        lanes: Lanes,
        streams: Streams,
        metrics: CallMetrics,
        rates: Rates,
        gate: Authorizer,
        recorder: Recorder | None = None,
        may_not_answer: Callable[[], MetaError | None] = lambda: None,
    ) -> None:
        self._may_not_answer = may_not_answer
        self._gate = gate
        self._rates = rates
        self._recorder = recorder
        self._log = RefusalLog()
        self._activity = activity
        self._next_id = next_id
        self._fail_stop = fail_stop
        self._lanes = lanes
        self._streams = streams
        self._metrics = metrics

    def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        handler = continuation(details)
        if handler is None:
            return None
        method: str = details.method
        given = dict(details.invocation_metadata or ())
        declared = principal_of(given)
        principal = self._gate.peek(given) or declared
        visit = CallContext(self._gate, method, str(given.get("x-request-id", ""))[:64] or self._next_id(), declared)
        lane = self._lanes.find(method)
        try:
            if lane is not self._lanes.probes:
                self._rates.take(principal)
            self._lanes.check(lane, principal)
        except MetaError as refusal:
            self._metrics.count_error(method, refusal.reason)
            return grpc.stream_unary_rpc_method_handler(Routed(self._refusing(refusal, visit), self._lanes.refusals))
        encode = handler.response_serializer
        call = visit.guarded(
            call_of(handler), asks_often=handler.request_streaming, tells_often=handler.response_streaming
        )
        if self._recorder is not None:
            call = self._recorder.call(call, visit, streams=handler.response_streaming)
        parse = None if method == SESSION else handler.request_deserializer  # its frames have a thread that parses
        if not handler.request_streaming and not handler.response_streaming:
            routed = Routed(self._single(call, self._read_request(parse, lane), visit), lane)
            return grpc.stream_unary_rpc_method_handler(routed, None, encode)
        take = self._read_requests(parse) if handler.request_streaming else self._read_request(parse, lane)
        seat = lane.seat(principal)
        if not handler.response_streaming:
            received = self._received(call, take, lane)
            routed = Routed(self._single(received, lambda requests, _: requests, visit), seat)
            return grpc.stream_unary_rpc_method_handler(routed, None, encode)
        routed = Routed(self._sent(call, take, lane, visit), seat)
        return grpc.stream_stream_rpc_method_handler(routed, None, None if method in RAW_ANSWERS else encode)

    def _refusing(self, refusal: MetaError, visit: CallContext) -> Call:
        def refused(_: Iterator[bytes], context: grpc.ServicerContext) -> None:
            if refusal.kind not in (ErrorKind.EXHAUSTED, ErrorKind.UNAVAILABLE):
                self._turned_away(refusal, visit, context)
            self._refuse(refusal, context, visit)

        return refused

    def _enter(self, visit: CallContext, context: grpc.ServicerContext) -> None:
        if not visit.method.startswith(SHOWN_BY_ALL) and (refusal := self._may_not_answer()) is not None:
            raise refusal
        try:
            visit.enter(context)
        except MetaError as refusal:
            self._turned_away(refusal, visit, context)
            raise

    def _turned_away(self, refusal: MetaError, visit: CallContext, context: grpc.ServicerContext) -> None:
        if self._recorder is not None:
            self._recorder.turned_away(refusal, visit, context)

    def _single(self, call: Call, take: Call, visit: CallContext) -> Call:
        activity = self._activity_of(visit.method)

        def single(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            try:
                activity.begin()
                try:
                    self._enter(visit, context)
                    return call(take(requests, context), context)
                finally:
                    activity.end()
            except Exception as error:  # noqa: BLE001 - every exception is told apart in one place
                self._refuse(error, context, visit)

        return single

    def _received(self, call: Call, take: Call, lane: Lane) -> Call:
        """A stream of requests with one answer."""

        def received(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            self._streams.open(context, lane)
            try:
                return call(take(requests, context), context)
            finally:
                self._streams.close(context)

        return received

    def _sent(self, call: Call, take: Call, lane: Lane, visit: CallContext) -> Call:
        """A stream of answers: it is active when the client's side takes one."""
        activity = self._activity_of(visit.method)

        def sent(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                activity.begin()
                try:
                    self._enter(visit, context)
                    stream = self._streams.open(context, lane)
                    try:
                        for answer in call(take(requests, context), context):
                            stream.touch()
                            yield answer
                            stream.touch()
                    finally:
                        self._streams.close(context)
                finally:
                    activity.end()
            except Exception as error:  # noqa: BLE001 - every exception is told apart in one place
                self._refuse(error, context, visit)

        return sent

    def _read_request(self, parse: Parse, lane: Lane) -> Call:
        def read(requests: Iterator[bytes], context: grpc.ServicerContext) -> Message | bytes:
            raw = self._streams.first(requests, context, lane)
            if raw is None:
                raise invalid("REQUEST_MISSING", "the call ended without its request: send one")
            return parse(raw) if parse is not None else raw

        return read

    def _read_requests(self, parse: Parse) -> Call:
        def many(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Message] | Iterator[bytes]:
            raws = self._streams.of(context).touching(requests)
            return map(parse, raws) if parse is not None else raws

        return many

    def _activity_of(self, method: str) -> Activity:
        """The activity of a call; probes don't keep a service alive."""
        return Activity() if method.startswith("/grpc.") else self._activity

    def _refuse(self, error: Exception, context: grpc.ServicerContext, visit: CallContext) -> None:
        if isinstance(error, NotImplementedError):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error) or "not built yet")
        if isinstance(error, grpc.RpcError) or not context.is_active():
            context.abort(grpc.StatusCode.CANCELLED, "nobody waits for the answer")
        if isinstance(error, DecodeError):
            error = MetaError(ErrorKind.INVALID, "MESSAGE_UNREADABLE")
        error = as_refusal(error)
        if not isinstance(error, MetaError):
            self._fail_stop(error)
            return
        self._log.say(error, visit.method, visit.request_id, visit.proven or visit.declared)
        error = self._gate.without_hints(visit.who, error)
        context.set_trailing_metadata((("x-request-id", visit.request_id),))
        context.abort_with_status(rpc_status.to_status(answers.status(error)))
