"""Calls over the session stream, or unary calls while the service refuses it; part of `MetaClient`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast

import grpc

from metaservice.client.calling import Caller, in_parts
from metaservice.client.errors import (
    ErrorKind,
    MetaServiceError,
    UnauthenticatedError,
    decode_rpc_error,
    decode_status,
)
from metaservice.client.leader_channel import NOT_LEADER
from metaservice.client.session import Session
from metaservice.client.tracing import traced, traced_session
from protos.laketx.v1 import common_pb2, transaction_pb2_grpc
from protos.laketx.v1 import transaction_pb2 as wire

CHUNK_FILES: Final = 1_000
SESSION_REFUSED_FOR_S: Final = 30.0


class SessionCalls(Caller):
    """Begin, register, commit, append, renew, abort and ping. Threads share one session stream."""

    _channel: grpc.Channel
    _transactions: transaction_pb2_grpc.TransactionServiceStub
    _is_alone: bool  # no other process can lead
    _session: Session | None
    _session_lock: threading.Lock
    _no_session_until_s: float

    def _session_call(self, request: wire.SessionRequest) -> wire.SessionReply:
        """Try the request's calls once; return the last reply, or raise the first error."""
        session = self._session
        if session is None or session.is_broken:
            session = self._open_session()
        if session is None:
            return self._one_by_one(request.calls)
        return traced_session(request, lambda: self._answer(session, request))

    def _answer(self, session: Session, request: wire.SessionRequest) -> wire.SessionReply:
        try:
            replies = session.call(request, self._timeout_s)
        except MetaServiceError as error:
            if error.reason == "CALL_TIMED_OUT" and not self._is_alone:
                self._leave(session)  # its process may stand still, and keep the connection
            raise
        if replies[-1].HasField("error"):
            refused = decode_status(next(reply.error for reply in replies if reply.HasField("error")))
            if isinstance(refused, UnauthenticatedError) or refused.reason == NOT_LEADER:
                self._leave(session)
            raise refused
        return replies[-1]

    def _leave(self, session: Session) -> None:
        """Close a session whose token or process is no longer valid: the next call opens another."""
        with self._session_lock:
            if self._session is not session:
                return
            self._session = None
        session.close()

    def _one_by_one(self, calls: Sequence[wire.SessionCall]) -> wire.SessionReply:
        """Make unary calls in the order of a session.

        The last call may know its answer even if earlier ones come too late.
        """
        first: MetaServiceError | None = None
        for call in calls[:-1]:
            try:
                self._unary_call(call)
            except MetaServiceError as error:
                if error.kind is ErrorKind.UNAVAILABLE:
                    raise
                first = first or error
        try:
            return self._unary_call(calls[-1])
        except MetaServiceError as error:
            raise first or error from error

    def _open_session(self) -> Session | None:
        """Return an open session; None while the service refuses sessions."""
        with self._session_lock:
            session = self._session
            if session is not None:
                if not session.is_broken:
                    return session
                self._session = None
                if session.is_refused:
                    self._no_session_until_s = max(self._no_session_until_s, time.monotonic() + SESSION_REFUSED_FOR_S)
            if time.monotonic() < self._no_session_until_s:
                return None
            self._session = Session(self._channel, self._metadata)
            self._offered = None  # this may be another release
            return self._session

    def _unary_call(self, call: wire.SessionCall) -> wire.SessionReply:
        name = call.WhichOneof("call")
        assert name is not None
        if name == "register":
            answer: object = self._register_parts(call.register.txn_id, call.register.table_id, iter([call.register]))
            return wire.SessionReply(register=cast(wire.RegisterFilesResponse, answer))
        if name == "ping":
            return wire.SessionReply(ping=wire.PingResponse(payload=call.ping.payload))
        methods: Mapping[str, Callable[..., object]] = {
            "begin": self._transactions.BeginTransaction,
            "commit": self._transactions.CommitTransaction,
            "append": self._transactions.Append,
            "renew": self._transactions.RenewTransaction,
            "abort": self._transactions.AbortTransaction,
        }
        try:
            answer = traced(
                getattr(call, name),
                self._metadata,
                lambda metadata: methods[name](getattr(call, name), timeout=self._timeout_s, metadata=metadata),
            )
        except grpc.RpcError as error:
            raise decode_rpc_error(error) from error
        reply = wire.SessionReply()
        getattr(reply, name).CopyFrom(answer)
        return reply

    def _renew_once(self, txn_id: str) -> wire.RenewTransactionResponse:
        request = wire.SessionRequest()
        request.calls.add().renew.txn_id = txn_id
        return self._session_call(request).renew

    def _register_streamed(
        self,
        txn_id: str,
        table_id: str,
        files: Sequence[common_pb2.DataFile],
        delete_sets: Sequence[common_pb2.DeleteSet],
    ) -> wire.RegisterFilesResponse:
        def parts() -> Iterator[wire.RegisterFilesRequest]:
            for some in in_parts(files, CHUNK_FILES):
                yield wire.RegisterFilesRequest(txn_id=txn_id, table_id=table_id, files=some)
            for sets in in_parts(delete_sets, CHUNK_FILES):
                yield wire.RegisterFilesRequest(txn_id=txn_id, table_id=table_id, delete_sets=sets)

        return self._retries.run(lambda: self._register_parts(txn_id, table_id, parts()))

    def _register_parts(
        self, txn_id: str, table_id: str, parts: Iterator[wire.RegisterFilesRequest]
    ) -> wire.RegisterFilesResponse:
        # No deadline of a single call: it may carry a million files.
        try:
            return traced(
                wire.RegisterFilesRequest(txn_id=txn_id, table_id=table_id),
                self._metadata,
                lambda metadata: self._transactions.RegisterFiles(parts, timeout=None, metadata=metadata),
            )
        except grpc.RpcError as error:
            raise decode_rpc_error(error) from error
