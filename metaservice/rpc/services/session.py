"""The session stream: frames of calls in, frames of answers out, each with whatever is ready.

A reader thread submits the calls of a frame to the decider in order. Answers queue in a mailbox, which the handler's
thread empties into the next frame.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from metaservice.core import limits
from metaservice.core.access import Identity
from metaservice.core.commit.transaction import Txn
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.metrics import CallMetrics
from metaservice.rpc.auth.authorization import Authorizer
from metaservice.rpc.auth.rights import SESSION_CALLS
from metaservice.rpc.convert import answers
from metaservice.rpc.convert.paging import in_parts
from metaservice.rpc.observe.call_records import Recorder, SessionRecords
from metaservice.rpc.pipeline.interceptor import SESSION, principal_of
from metaservice.rpc.pipeline.open_streams import Streams
from metaservice.rpc.pipeline.rate_limits import Rates
from metaservice.rpc.pipeline.thread_pools import Lane
from metaservice.rpc.services.apart import apart, of_appends
from metaservice.rpc.services.calls import CONVERTED_IN_TURN_MAX, UseCases
from metaservice.service.decider.decider import Answer, Job, Mailbox, Sink
from protos.laketx.v1 import transaction_pb2 as pb

log = logging.getLogger("laketx.session")
OPEN_JOBS_MAX: Final = 4_096  # of one session; a frame may go beyond
Prepare = Callable[[Any], Callable[[], object]]
_NONE: Final[dict[str, Prepare]] = {}


class Sessions:
    """Opens session streams."""

    def __init__(
        self,
        calls: UseCases,
        gate: Authorizer,
        streams: Streams,
        rates: Rates,
        metrics: CallMetrics,
        sessions_max: int,
        recorder: Recorder | None = None,
    ) -> None:
        self._calls = calls
        self._gate = gate
        self._recorder = recorder
        self._streams = streams
        self._rates = rates
        self._metrics = metrics
        self._readers = Lane("session-readers", sessions_max)
        self._starting = threading.Lock()
        self.stopping = False
        self._serve: dict[str, Callable[[Any], object]] = {
            "begin": calls.begin,
            "register": calls.register,
            "commit": calls.commit,
            "renew": calls.renew,
            "abort": calls.abort,
            "ping": calls.ping,
        }
        self._prepare: dict[str, Prepare] = {"begin": calls.prepared_begin, "commit": calls.prepared_commit}

    def stop(self) -> None:
        """Answers the received calls, then ends the streams: a client would keep its own open for its lifetime."""
        self.stopping = True

    def join(self) -> None:
        """Waits for the readers, which end with their streams."""
        self._readers.stop()

    def open(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        who = self._gate.identify(SESSION, context)
        name = who.principal or principal_of(dict(context.invocation_metadata() or ()))
        talk = _SessionStream(self, frames, name, who)
        if self._recorder is not None:
            talk.records = self._recorder.session(context, talk.outbox.put)
        stream = self._streams.of(context)
        stream.ring = talk.outbox.ring
        with self._starting:
            if not self._readers.has_thread():
                raise MetaError(
                    ErrorKind.EXHAUSTED, "NO_THREAD", "the system gives the service no more threads: use unary calls"
                )
            self._readers.submit(talk.read)
        try:
            while True:
                given = talk.outbox.take(timeout_s=1.0)
                if given:
                    yield from _frames(given)
                    talk.sent(len(given))
                if talk.unreadable and talk.is_answered:
                    raise talk.unreadable[0]
                if not given and talk.is_answered:
                    self._gate.still(who)  # each call is checked by itself; a session without any ends
                if not context.is_active() or ((talk.closed or self.stopping or stream.over) and talk.is_answered):
                    return  # a call that comes in this moment goes unanswered: its client repeats it
        finally:
            talk.end()

    def submit(self, talk: _SessionStream, raw: bytes) -> None:
        calls = pb.SessionRequest.FromString(raw).calls
        records = talk.records
        sink = talk.outbox.put if records is None else records.sink
        jobs = self._jobs(sink, self._checked(talk, calls), len(raw))
        talk.open += len(jobs)
        try:
            self._rates.take(talk.principal, len(calls))
            if records is not None:
                records.check(calls)
        except MetaError as refusal:
            self._metrics.count_error(SESSION, refusal.reason, len(calls))
            talk.outbox.put([(token, refusal) for _, token, _ in jobs])
            return
        if records is not None:
            jobs = records.begin(calls, jobs)
        self._calls.decider.submit(jobs)

    def _checked(
        self, talk: _SessionStream, calls: Iterable[pb.SessionCall]
    ) -> Iterator[tuple[pb.SessionCall, MetaError | None]]:
        """The calls with what refuses them: the caller's rights, as things stand."""
        if self._gate.is_open:
            yield from ((call, None) for call in calls)
            return
        for call in calls:
            kind = call.WhichOneof("call") or ""
            try:
                self._gate.still(talk.who)
                method = SESSION_CALLS.get(kind)
                if method is not None:
                    self._gate.check(talk.who, method, getattr(call, kind))
            except MetaError as refusal:
                yield call, refusal
            else:
                yield call, None

    def _jobs(
        self,
        sink: Sink,
        calls: Iterable[tuple[pb.SessionCall, MetaError | None]],
        size: int,
    ) -> list[Job]:
        """The calls of a frame of so many bytes, in order; consecutive appends are one job."""
        prepare = self._prepare if size > CONVERTED_IN_TURN_MAX else _NONE
        jobs: list[Job] = []
        appends: list[pb.SessionCall] = []
        for call, refusal in calls:
            kind = call.WhichOneof("call")
            if refusal is not None:
                if appends:
                    jobs.append(self._appends(sink, appends, size))
                    appends = []
                jobs.append((sink, (call.call_id, "error"), partial(_raise, refusal)))
                continue
            if kind == "append":
                appends.append(call)
                continue
            if appends:
                jobs.append(self._appends(sink, appends, size))
                appends = []
            serve = self._serve.get(kind or "")
            if serve is None or kind is None:
                jobs.append((sink, (call.call_id, "error"), _refuse))
            elif kind in prepare:
                request = getattr(call, kind)
                jobs.append((sink, (call.call_id, kind), apart(kind, request, prepare[kind](request))))
            else:
                request = getattr(call, kind)
                jobs.append((sink, (call.call_id, kind), apart(kind, request, partial(serve, request))))
        if appends:
            jobs.append(self._appends(sink, appends, size))
        return jobs

    def _appends(self, sink: Sink, calls: list[pb.SessionCall], size: int) -> Job:
        numbers, appends = [call.call_id for call in calls], [call.append for call in calls]
        return sink, (numbers, "appends"), of_appends(appends, self._calls.prepared_appends(appends, size))


class _SessionStream:
    """One session: calls read and answers sent, counted in jobs."""

    def __init__(self, sessions: Sessions, frames: Iterator[bytes], principal: str, who: Identity) -> None:
        self.outbox: Mailbox[Answer] = Mailbox()
        self.open = 0
        self.closed = False
        self.unreadable: list[DecodeError] = []
        self.principal = principal
        self.who = who
        self.records: SessionRecords | None = None
        self._sessions = sessions
        self._frames = frames
        self._answered = 0
        self._ended = False
        self._full = False
        self._moved = threading.Condition()

    @property
    def is_answered(self) -> bool:
        return self._answered >= self.open

    def sent(self, count: int) -> None:
        self._answered += count
        if self._full:
            with self._moved:
                self._moved.notify()

    def end(self) -> None:
        with self._moved:
            self._ended = True
            self._moved.notify()

    def _has_room(self) -> bool:
        return self.open - self._answered < OPEN_JOBS_MAX

    def _wait_for_room(self) -> None:
        """Stops reading from a client that doesn't take its answers. The sender checks `_full` after it has counted."""
        with self._moved:
            self._full = True
            self._moved.wait_for(lambda: self._ended or self._has_room())
            self._full = False

    def read(self) -> None:
        """Runs on a thread of its own, until the client has no more frames."""
        try:
            for raw in self._frames:
                self._sessions.submit(self, raw)
                if not self._has_room():
                    self._wait_for_room()
                if self._ended or self._sessions.stopping:
                    break
        except DecodeError as error:
            self.unreadable.append(error)
        except Exception as error:  # noqa: BLE001 - gRPC ends a broken stream with exceptions of many kinds
            log.debug("session ended: %r", error)
        finally:
            self.closed = True
            self.outbox.ring()


def _raise(refusal: MetaError) -> object:
    raise refusal


def _refuse() -> object:
    raise invalid("CALL_MISSING", "the session call has no request: set one")


def _frames(given: Iterable[tuple[Any, Any]]) -> Iterator[bytes]:
    """Usually one frame; more if it would be larger than an answer can be."""
    frame = _frame(given)
    raw = frame.SerializeToString()
    if len(raw) <= limits.ANSWER_BYTES_MAX:
        yield raw
        return
    for part in in_parts(frame.replies, len(frame.replies)):
        yield pb.SessionResponse(replies=part).SerializeToString()


def _frame(given: Iterable[tuple[Any, Any]]) -> pb.SessionResponse:
    frame = pb.SessionResponse()
    replies: Any = frame.replies  # each answer is written, or copied once, to where it stands
    for (call_id, kind), result in given:
        if kind == "appends":
            results: Sequence[Txn | MetaError] = [result] * len(call_id) if isinstance(result, MetaError) else result
            for number, outcome in zip(call_id, results, strict=True):
                if isinstance(outcome, MetaError):
                    replies.add(call_id=number, error=answers.status(outcome))
                else:
                    answers.fill_outcome(replies.add(call_id=number).append, outcome)
        elif isinstance(result, MetaError):
            replies.add(call_id=call_id, error=answers.status(result))
        else:
            replies.add(call_id=call_id, **{kind: result})
    return frame
