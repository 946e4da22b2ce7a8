"""The client against a service of the wire alone: many threads, a broken stream, a refused stream, heartbeats."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from google.rpc import status_pb2

from metaservice.client import CommitOutcomeUnknownError, ConflictError, InvalidError, MetaClient, StaleError
from protos.laketx.v1 import common_pb2, transaction_pb2_grpc
from protos.laketx.v1 import transaction_pb2 as wire

INSERT = wire.TableIntent(table_id="t", operation=common_pb2.OPERATION_INSERT)


class FakeService(transaction_pb2_grpc.TransactionServiceServicer):
    """Remembers the first answer of a commit, and does what a test sets."""

    def __init__(self) -> None:
        self.commits: dict[str, int] = {}
        self.commit_calls = 0
        self.frames = 0
        self.renewed = 0
        self.break_commits = 0
        self.break_code = grpc.StatusCode.UNAVAILABLE
        self.refuse_sessions = False
        self.lease_ms = 60_000
        self.conflict = False
        self.aborted: list[str] = []
        self.registered_messages = 0
        self.lock = threading.Lock()

    def Session(
        self, request_iterator: Iterator[wire.SessionRequest], context: grpc.ServicerContext
    ) -> Iterator[wire.SessionResponse]:
        if self.refuse_sessions:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
        for request in request_iterator:
            self.frames += 1
            replies = [self.reply(call) for call in request.calls]
            if self.break_commits and any(call.HasField("commit") for call in request.calls):
                self.break_commits -= 1
                context.abort(self.break_code, "the answer is lost")
            yield wire.SessionResponse(replies=reversed(replies))

    def reply(self, call: wire.SessionCall) -> wire.SessionReply:
        reply = wire.SessionReply(call_id=call.call_id)
        match call.WhichOneof("call"):
            case "begin":
                reply.begin.CopyFrom(self.begun())
            case "commit":
                reply.commit.CopyFrom(self.decided(call.commit.txn_id))
            case "append":
                reply.append.committed.CopyFrom(self.decided(call.append.txn_id).committed)
            case "renew":
                self.renewed += 1
                reply.renew.lease_ms = self.lease_ms
                reply.renew.doomed.message = "somebody was faster"
            case "abort":
                self.aborted.append(call.abort.txn_id)
                reply.abort.SetInParent()
            case "ping":
                reply.ping.payload = call.ping.payload
            case _:
                reply.error.CopyFrom(status_pb2.Status(code=3, message="not this one"))
        return reply

    def begun(self) -> wire.BeginTransactionResponse:
        return wire.BeginTransactionResponse(lease_ms=self.lease_ms, tables=[wire.BegunTable(table_id="t")])

    def decided(self, txn_id: str) -> wire.CommitTransactionResponse:
        if self.conflict:
            return wire.CommitTransactionResponse(conflict=common_pb2.Conflict(message="lost"))
        with self.lock:
            self.commit_calls += 1
            version = self.commits.setdefault(txn_id, len(self.commits) + 1)
        table = common_pb2.TableCommit(table_id="t", version=version)
        return wire.CommitTransactionResponse(committed=common_pb2.Committed(tables=[table]))

    def BeginTransaction(
        self, request: wire.BeginTransactionRequest, context: grpc.ServicerContext
    ) -> wire.BeginTransactionResponse:
        return self.begun()

    def CommitTransaction(
        self, request: wire.CommitTransactionRequest, context: grpc.ServicerContext
    ) -> wire.CommitTransactionResponse:
        answer = self.decided(request.txn_id)
        if self.break_commits:
            self.break_commits -= 1
            context.abort(self.break_code, "the answer is lost")
        return answer

    def RegisterFiles(
        self, request_iterator: Iterator[wire.RegisterFilesRequest], context: grpc.ServicerContext
    ) -> wire.RegisterFilesResponse:
        files = 0
        for request in request_iterator:
            self.registered_messages += 1
            files += len(request.files)
        return wire.RegisterFilesResponse(registered_files=files)


def build_service() -> FakeService:
    return FakeService()  # type: ignore[abstract]  # the calls left out answer UNIMPLEMENTED


@contextmanager
def connected(service: FakeService, retry_budget_s: float = 10.0) -> Iterator[MetaClient]:
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool)
        transaction_pb2_grpc.add_TransactionServiceServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with MetaClient(f"127.0.0.1:{port}", retry_budget_s=retry_budget_s) as client:
                yield client
        finally:
            server.stop(0).wait()


def test_each_thread_gets_its_own_answers() -> None:
    service = build_service()

    def ping_often(client: MetaClient, who: int) -> bool:
        return all(client.ping(b"%d %d" % (who, turn)) == b"%d %d" % (who, turn) for turn in range(100))

    with connected(service) as client, ThreadPoolExecutor(16) as threads:
        assert all(threads.map(lambda who: ping_often(client, who), range(16)))
    assert service.frames < 16 * 100, "calls of many threads share frames"


@pytest.mark.parametrize("refuse_sessions", [False, True], ids=["session", "single-calls"])
@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED], ids=lambda code: code.name)
def test_a_commit_without_an_answer_is_repeated_under_its_id(code: grpc.StatusCode, refuse_sessions: bool) -> None:
    """A service that stops answers CANCELLED to what it can't serve any more: that says no more than UNAVAILABLE."""
    service = build_service()
    service.break_commits, service.break_code, service.refuse_sessions = 2, code, refuse_sessions
    with connected(service) as client:
        txn = client.begin([INSERT])
        committed = txn.commit([common_pb2.Change(table_id="t")])
    assert committed.tables[0].version == 1
    assert (list(service.commits), service.commit_calls) == ([txn.txn_id], 3)


def test_a_commit_that_nobody_answers_is_unknown() -> None:
    service = build_service()
    service.break_commits = 1_000_000
    with connected(service, retry_budget_s=0.5) as client:
        with pytest.raises(CommitOutcomeUnknownError) as raised, client.begin([INSERT]) as txn:
            txn.commit([common_pb2.Change(table_id="t")])
        assert raised.value.txn_id == txn.txn_id
    assert service.aborted == [], "what may have committed isn't aborted"


def test_a_refused_session_falls_back_to_single_calls() -> None:
    service = build_service()
    service.refuse_sessions = True
    with connected(service) as client:
        committed = client.begin([INSERT]).commit([common_pb2.Change(table_id="t")])
    assert committed.tables[0].version == 1
    assert service.frames == 0


def test_refusals_and_lost_races() -> None:
    service = build_service()
    with connected(service) as client:
        with pytest.raises(InvalidError):
            client.register("x", "t", [common_pb2.DataFile(path="a")])
        service.conflict = True
        with pytest.raises(ConflictError) as raised, client.begin([INSERT]) as txn:
            txn.commit([common_pb2.Change(table_id="t")])
        assert raised.value.conflict.message == "lost"
        assert service.aborted == []
        with client.begin([INSERT]) as txn:
            pass
        assert service.aborted == [txn.txn_id]


def test_many_files_go_in_chunks() -> None:
    service = build_service()
    with connected(service) as client:
        answer = client.register("x", "t", [common_pb2.DataFile(path=str(number)) for number in range(2_500)])
    assert (answer.registered_files, service.registered_messages) == (2_500, 3)


def test_the_heartbeat_renews_and_tells_the_doomed() -> None:
    service = build_service()
    service.lease_ms = 120
    with connected(service) as client:
        txn = client.begin([INSERT])
        wait_until(lambda: service.renewed >= 3)
        assert txn.doomed is not None
        assert txn.doomed.message == "somebody was faster"
        txn.abort()
        time.sleep(0.05)
        renewed = service.renewed
        time.sleep(0.2)
        assert service.renewed == renewed, "an ended transaction is renewed no more"


def test_the_heartbeat_tells_a_lost_lease() -> None:
    service = build_service()
    service.lease_ms = 120
    stale = status_pb2.Status(code=10, message="too late")
    service.reply = lambda call: (  # type: ignore[method-assign]
        wire.SessionReply(call_id=call.call_id, error=stale)
        if call.HasField("renew")
        else wire.SessionReply(call_id=call.call_id, begin=service.begun())
    )
    with connected(service) as client:
        txn = client.begin([INSERT])
        wait_until(lambda: txn.lost is not None)
        assert isinstance(txn.lost, StaleError)


def wait_until(condition: object, seconds: float = 5.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
