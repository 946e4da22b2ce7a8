"""What the service notes about a call where an audit or traces want it: nothing is noted otherwise.

A unary call is one record, and so is a stream; each call of a session has one of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import grpc
from google.rpc import error_details_pb2

from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.errors import MetaError
from metaservice.rpc.auth.authorization import CallContext
from metaservice.rpc.handlers import Call
from metaservice.service.decider.decider import Answer, Decider, Job, Sink, Stamped, as_refusal
from metaservice.shared.call_attributes import NOTHING, Subject, subject_of
from protos.laketx.v1 import catalog_pb2, transaction_pb2

SESSION: Final = "/laketx.v1.TransactionService/Session"
APPEND: Final = "/laketx.v1.TransactionService/Append"
BATCHES: Final = {  # calls that carry several requests: in which field, and of which call each is one
    "/laketx.v1.TransactionService/CommitBatch": ("appends", APPEND),
    "/laketx.v1.CatalogService/CreateBranches": ("branches", "/laketx.v1.CatalogService/CreateBranch"),
    "/laketx.v1.CatalogService/DropBranches": ("branches", "/laketx.v1.CatalogService/DropBranch"),
}
SCAN: Final = "/laketx.v1.ReadService/PlanScan"
PIN: Final = "/laketx.v1.ReadService/PinVersions"
STAMPS_MAX: Final = 16  # of one call: a registration of a million files has more jobs than anybody looks at
ITEMS: Final = (transaction_pb2.BatchItem, catalog_pb2.CreatedBranch, catalog_pb2.DroppedBranch)
OK: Final = "OK"
CONFLICT: Final = "CONFLICT"
KINDS: Final[Mapping[str, str]] = {
    "begin": "BeginTransaction",
    "register": "RegisterFiles",
    "commit": "CommitTransaction",
    "append": "Append",
    "renew": "RenewTransaction",
    "abort": "AbortTransaction",
    "ping": "Ping",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and from where."""

    principal: str  # who it is proven to be; empty where nobody proves it
    declared: str  # who it says that it is
    peer: str
    trace: Mapping[str, str]  # W3C's headers


@dataclass(slots=True)
class Record:
    """A call that has ended. Times in nanoseconds: since 1970, and of `time.perf_counter_ns`."""

    method: str
    request_id: str
    caller: Caller
    subject: Subject
    time_ns: int
    begun_ns: int
    ended_ns: int = 0
    result: object = None  # the answer, or the refusal
    trace: Mapping[str, str] | None = None  # of a call of a session
    stamps: list[Stamped] = field(default_factory=list)


class Sinks(Protocol):
    """An audit or traces."""

    def put(self, record: Record) -> None: ...


class Recorder:
    """Gives records of the calls to whoever wants them."""

    def __init__(
        self,
        decider: Decider,
        sinks: Sequence[Sinks],
        check: Callable[[str], None],
        *,
        traces: bool,
        now_ns: Callable[[], int],
    ) -> None:
        """`check` refuses a method that could not be recorded."""
        self._decider = decider
        self._sinks = sinks
        self._check = check
        self._traces = traces
        self._now_ns = now_ns
        self._local = threading.local()
        self._callers: dict[grpc.ServicerContext, tuple[Caller, str]] = {}
        if traces:
            decider.stamp = self._stamp

    def call(self, call: Call, visit: CallContext, *, streams: bool) -> Call:
        """The same call, recorded. It gets parsed requests, and its refusals are not statuses yet."""
        method, request_id = visit.method, visit.request_id
        if method.startswith("/grpc."):
            return call
        if method == SESSION:
            return self._session(call, visit)
        if streams:
            return self._streamed(call, visit)

        def recorded(request: Any, context: grpc.ServicerContext) -> Any:
            if isinstance(request, Iterator):
                request = first = _First(request)
            else:
                first = None
            record = self._begun(method, request_id, caller_of(context, visit), request)
            try:
                self._check(method)
                self._local.record = record
                record.result = answer = call(request, context)
                if method in BATCHES:
                    self._items(record, request, answer.items)
                return answer
            except Exception as error:
                record.result = as_refusal(error)
                raise
            finally:
                self._local.record = None
                if first is not None:
                    record.subject = first.subject
                self._end(record)

        return recorded

    def turned_away(self, refusal: MetaError, visit: CallContext, context: grpc.ServicerContext) -> None:
        """Records a call that was refused before it got to its method."""
        record = self._begun(visit.method, visit.request_id, caller_of(context, visit), None)
        record.result = refusal
        self._end(record)

    def session(self, context: grpc.ServicerContext, outbox: Sink) -> SessionRecords:
        caller, request_id = self._callers[context]
        return SessionRecords(self, caller, request_id, outbox)

    def check(self, methods: Iterable[str]) -> None:
        for method in methods:
            self._check(method)

    def stamped(self, run: Callable[[], object], record: Record) -> Callable[[], object]:
        """The job, with its times noted in the record."""
        if not self._traces or len(record.stamps) == STAMPS_MAX:
            return run
        stamped = Stamped(run, self._decider.note_decided)
        record.stamps.append(stamped)
        return stamped

    def _items(self, batch: Record, request: Any, items: Iterable[Any]) -> None:
        """Records each request of a batch as a call of its own."""
        field, method = BATCHES[batch.method]
        for part, item in zip(getattr(request, field), items, strict=False):
            self._end(replace(batch, method=method, subject=subject_of(part), result=item))

    def _session(self, call: Call, visit: CallContext) -> Call:
        def recorded(frames: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self._callers[context] = caller_of(context, visit), visit.request_id
            try:
                yield from call(frames, context)
            finally:
                del self._callers[context]

        return recorded

    def _streamed(self, call: Call, visit: CallContext) -> Call:
        method = visit.method

        def recorded(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            record = self._begun(method, visit.request_id, caller_of(context, visit), request)
            pins = method == SCAN and bool(request.pin_id)
            try:
                self._check(PIN if pins else method)
                yield from call(request, context)
            except Exception as error:
                record.result = as_refusal(error)
                raise
            finally:
                self._end(record)
                if pins:  # a change of its own
                    self._end(replace(record, method=PIN))

        return recorded

    def _stamp(self, run: Callable[[], object]) -> Callable[[], object]:
        record: Record | None = getattr(self._local, "record", None)
        return run if record is None else self.stamped(run, record)

    def _begun(self, method: str, request_id: str, caller: Caller, request: object) -> Record:
        subject = subject_of(request)
        return Record(method, request_id, caller, subject, self._now_ns(), time.perf_counter_ns())

    def begun_call(self, kind: str, request_id: str, caller: Caller, request: object) -> Record:
        return self._begun(method_of(kind), request_id, caller, request)

    def _end(self, record: Record) -> None:
        record.ended_ns = time.perf_counter_ns()
        for sink in self._sinks:
            sink.put(record)

    def end(self, record: Record, result: object) -> None:
        record.result = result
        self._end(record)


class SessionRecords:
    """The calls of a session that are under way. Begun by its reader, ended by the decider's thread."""

    def __init__(self, recorder: Recorder, caller: Caller, request_id: str, outbox: Sink) -> None:
        self._recorder = recorder
        self._caller = caller
        self._request_id = request_id
        self._outbox = outbox
        self._open: dict[int, Record] = {}

    def check(self, calls: Iterable[Any]) -> None:
        self._recorder.check(method_of(call.WhichOneof("call") or "") for call in calls)

    def begin(self, calls: Iterable[Any], jobs: list[Job]) -> list[Job]:
        """The jobs, with their times noted."""
        for call in calls:
            kind = call.WhichOneof("call")
            if kind is None or kind == "ping":
                continue
            request_id = f"{self._request_id}/{call.call_id}"
            record = self._recorder.begun_call(kind, request_id, self._caller, getattr(call, kind))
            record.trace = {"traceparent": call.traceparent} if call.traceparent else {}
            self._open[call.call_id] = record
        return [(sink, token, self._stamped(token, run)) for sink, token, run in jobs]

    def _stamped(self, token: Any, run: Callable[[], object]) -> Callable[[], object]:
        number = token[0][0] if isinstance(token[0], list) else token[0]
        record = self._open.get(number)
        return run if record is None else self._recorder.stamped(run, record)

    def sink(self, given: Sequence[Answer]) -> None:
        """Answers the client, then notes it."""
        self._outbox(given)
        for (numbers, _), result in given:
            if isinstance(numbers, list):
                results = [result] * len(numbers) if isinstance(result, MetaError) else result
                stamps: list[Stamped] = []
                for number, outcome in zip(numbers, results, strict=True):  # type: ignore[call-overload]
                    stamps = self._end(number, outcome, stamps)
            else:
                self._end(numbers, result, [])

    def _end(self, number: int, result: object, stamps: list[Stamped]) -> list[Stamped]:
        record = self._open.pop(number, None)
        if record is None:
            return stamps
        record.stamps = record.stamps or stamps  # appends of one job share its times
        self._recorder.end(record, result)
        return record.stamps


class _First(Iterator[Any]):
    """A stream of requests, whose first one says what the call is about."""

    def __init__(self, requests: Iterator[Any]) -> None:
        self._requests = requests
        self.subject = NOTHING

    def __next__(self) -> Any:
        request = next(self._requests)
        if self.subject is NOTHING:
            self.subject = subject_of(request)
        return request


def caller_of(context: grpc.ServicerContext, visit: CallContext) -> Caller:
    given = dict(context.invocation_metadata() or ())
    trace: dict[str, str] = {name: str(given[name]) for name in ("traceparent", "tracestate") if name in given}
    return Caller(visit.proven, visit.declared, context.peer(), trace)


def method_of(kind: str) -> str:
    """The method of a call of a session."""
    return f"/laketx.v1.TransactionService/{KINDS.get(kind, kind)}"


def answer_of(result: object) -> str:
    """OK, CONFLICT, or the reason of the refusal."""
    if isinstance(result, MetaError):
        return result.reason
    if isinstance(result, BaseException):
        return type(result).__name__
    return reason_of(result) or (CONFLICT if conflict_rule(result) else OK)


def reason_of(result: Any) -> str:
    """Return the reason for which an item of a batch was refused; empty if it wasn't."""
    if not isinstance(result, ITEMS) or not result.HasField("error"):
        return ""
    info = error_details_pb2.ErrorInfo()
    reasons = [info.reason for each in result.error.details if each.Unpack(info)]
    return reasons[0] if reasons else "REFUSED"


def conflict_rule(result: Any) -> str:
    """The rule by which the transaction lost; empty: it did not."""
    if isinstance(result, Txn):
        return result.conflict.rule.name if result.state is TxnState.CONFLICT and result.conflict is not None else ""
    outcomes = getattr(type(result), "DESCRIPTOR", None)
    if outcomes is None or "outcome" not in outcomes.oneofs_by_name or result.WhichOneof("outcome") != "conflict":
        return ""
    conflict = result.conflict
    rule: str = type(conflict).DESCRIPTOR.fields_by_name["rule"].enum_type.values_by_number[conflict.rule].name
    return rule.removeprefix("CONFLICT_RULE_")
