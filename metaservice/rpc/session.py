"""The session stream: frames of calls in, frames of answers out, both as full as they happen to be.

A reader thread hands the calls of a frame to the decider in their order; answers queue in a mailbox that the handler's
thread empties into the next frame.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.transaction import Txn
from metaservice.rpc import answers
from metaservice.rpc.calls import Calls
from metaservice.service.decider import Answer, Job, Mailbox, Sink
from protos.laketx.v1 import transaction_pb2 as pb

log = logging.getLogger("laketx.session")


class Sessions:
    """Opens session streams, a bounded number at a time."""

    def __init__(self, calls: Calls, sessions_max: int) -> None:
        self._calls = calls
        self._room = threading.BoundedSemaphore(sessions_max)
        self._sessions_max = sessions_max
        self.stopping = False
        self._serve: dict[str, Callable[[Any], object]] = {
            "register": calls.register,
            "renew": calls.renew,
            "abort": calls.abort,
            "ping": calls.ping,
        }
        self._prepare: dict[str, Callable[[Any], Callable[[], object]]] = {
            "begin": calls.prepared_begin,
            "commit": calls.prepared_commit,
        }

    def stop(self) -> None:
        """Answer what has come, then end the streams: a client would keep its own open for as long as it lives."""
        self.stopping = True

    def open(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        if not self._room.acquire(blocking=False):
            raise MetaError(ErrorKind.EXHAUSTED, "TOO_MANY_SESSIONS", most=self._sessions_max)
        try:
            yield from self._talk(frames, context)
        finally:
            self._room.release()

    def _talk(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        outbox: Mailbox[Answer] = Mailbox()
        sink = outbox.put
        state = {"closed": False, "open": 0}
        unreadable: list[DecodeError] = []

        def read() -> None:
            try:
                for raw in frames:
                    jobs = self._jobs(sink, pb.SessionRequest.FromString(raw).calls)
                    state["open"] += len(jobs)
                    self._calls.decider.submit(jobs)
                    if self.stopping:
                        break
            except DecodeError as error:
                unreadable.append(error)
            except Exception as error:  # noqa: BLE001 - gRPC ends a broken stream with exceptions of many kinds
                log.debug("session ended: %r", error)
            finally:
                state["closed"] = True
                outbox.ring()

        threading.Thread(target=read, name="session-reader", daemon=True).start()
        answered = 0
        while True:
            given = outbox.take(timeout_s=1.0)
            if given:
                answered += len(given)
                yield _frame(given)
            if unreadable and answered >= state["open"]:
                raise unreadable[0]
            if not context.is_active() or ((state["closed"] or self.stopping) and answered >= state["open"]):
                return  # a call that comes in this moment goes unanswered: its client repeats it

    def _jobs(self, sink: Sink, calls: Iterable[pb.SessionCall]) -> list[Job]:
        """The calls in their order; appends that follow each other are one job."""
        jobs: list[Job] = []
        appends: list[pb.SessionCall] = []
        for call in calls:
            kind = call.WhichOneof("call")
            if kind == "append":
                appends.append(call)
                continue
            if appends:
                jobs.append(self._appends(sink, appends))
                appends = []
            prepare, serve = self._prepare.get(kind or ""), self._serve.get(kind or "")
            if prepare is not None:
                jobs.append((sink, (call.call_id, kind), prepare(getattr(call, kind or ""))))
            elif serve is None or kind is None:
                jobs.append((sink, (call.call_id, "error"), _refuse))
            else:
                jobs.append((sink, (call.call_id, kind), partial(serve, getattr(call, kind))))
        if appends:
            jobs.append(self._appends(sink, appends))
        return jobs

    def _appends(self, sink: Sink, calls: list[pb.SessionCall]) -> Job:
        numbers = [call.call_id for call in calls]
        return sink, (numbers, "appends"), lambda: self._calls.append_many([call.append for call in calls])


def _refuse() -> object:
    raise invalid("CALL_MISSING", "a session call holds one request")


def _frame(given: Iterable[tuple[Any, Any]]) -> bytes:
    frame = pb.SessionResponse()
    replies: Any = frame.replies  # each answer is written, or copied once, to where it stands
    for (call_id, kind), result in given:
        if kind == "appends":
            results: Sequence[Txn | MetaError] = [result] * len(call_id) if isinstance(result, MetaError) else result
            for number, found in zip(call_id, results, strict=True):
                if isinstance(found, MetaError):
                    replies.add(call_id=number, error=answers.status(found))
                else:
                    answers.fill_outcome(replies.add(call_id=number).append, found)
        elif isinstance(result, MetaError):
            replies.add(call_id=call_id, error=answers.status(result))
        else:
            replies.add(call_id=call_id, **{kind: result})
    return frame.SerializeToString()
