"""The session stream: frames of calls in, frames of answers out, both as full as they happen to be.

A reader thread hands the calls of a frame to the decider in their order; answers queue in a mailbox that the handler's
thread empties into the next frame.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.rpc import answers
from metaservice.rpc.calls import Calls
from metaservice.service.decider import Answer, Job, Mailbox
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
            "begin": calls.begin,
            "register": calls.register,
            "commit": calls.commit,
            "append": calls.append,
            "renew": calls.renew,
            "abort": calls.abort,
            "ping": calls.ping,
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
                    jobs = [self._job(sink, call) for call in pb.SessionRequest.FromString(raw).calls]
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

    def _job(self, sink: Callable[[Sequence[Answer]], object], call: pb.SessionCall) -> Job:
        kind = call.WhichOneof("call")
        serve = self._serve.get(kind or "")
        if serve is None or kind is None:
            return sink, (call.call_id, "error"), _refuse
        request = getattr(call, kind)
        return sink, (call.call_id, kind), lambda: serve(request)


def _refuse() -> object:
    raise invalid("CALL_MISSING", "a session call holds one request")


def _frame(given: Sequence[Answer]) -> bytes:
    replies: list[pb.SessionReply] = []
    for (call_id, kind), result in given:
        if isinstance(result, MetaError):
            replies.append(pb.SessionReply(call_id=call_id, error=answers.status(result)))
        else:
            answer: Any = {kind: result}
            replies.append(pb.SessionReply(call_id=call_id, **answer))
    return pb.SessionResponse(replies=replies).SerializeToString()
