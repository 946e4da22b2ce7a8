"""Streams take no thread from calls, whatever their clients do or leave undone; they end when they are idle."""

import itertools
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from metaservice.client import MetaClient
from metaservice.rpc.pipeline.interceptor import LANES
from protos.laketx.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    catalog_pb2,
    common_pb2,
    maintenance_pb2,
    read_pb2,
    transaction_pb2,
)
from tests.conformance.play import new_uuid7
from tests.integration.service import (
    TIMEOUT_S,
    Stubs,
    append_request,
    code_of,
    data_file,
    facts_of,
    free_address,
    reason_of,
    service,
)

PROMPT_S = 10.0  # far above what a call takes, far below what an idle stream lasts
FILES = (transaction_pb2, catalog_pb2, read_pb2, maintenance_pb2, admin_pb2)
IDLE_PER_METHOD = 40
APPEND = "/laketx.v1.TransactionService/Append"
SESSION = "/laketx.v1.TransactionService/Session"


@dataclass(frozen=True)
class Method:
    """One of the wire's calls."""

    path: str
    takes_many: bool
    sends_many: bool


def methods() -> list[Method]:
    return [
        Method(f"/{service.full_name}/{one.name}", one.client_streaming, one.server_streaming)
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for one in service.methods
    ]


STREAMS = [one for one in methods() if one.takes_many or one.sends_many]


@dataclass
class Silent:
    """Calls that are opened and send nothing."""

    channel: grpc.Channel
    calls: list[Any] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def nothing(self) -> Iterator[Any]:
        self.done.wait()
        yield from ()

    def open(self, path: str) -> Any:
        call: Any = self.channel.stream_stream(path)(self.nothing())
        self.calls.append(call)
        return call

    def end(self) -> None:
        for call in self.calls:
            call.cancel()
        self.done.set()


Connect = Callable[[str], Silent]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def build(address: str) -> Silent:
            channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
            stack.callback(channel.close)
            made = Silent(channel)
            stack.callback(made.end)
            return made

        yield build


def failure(call: Any) -> tuple[str, str]:
    """How it ended; where it doesn't, in vain."""
    try:
        list(call)
    except grpc.RpcError as error:
        return code_of(error).name, reason_of(error)
    return "OK", ""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def check_that_calls_work(stubs: Stubs, table_id: str) -> None:
    health: Any = health_pb2_grpc.HealthStub(stubs.channel)
    assert health.Check(health_pb2.HealthCheckRequest(), timeout=PROMPT_S).status == 1
    admin_pb2_grpc.AdminServiceStub(stubs.channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=PROMPT_S)
    append = append_request(table_id, new_uuid7())
    assert stubs.txns.Append(append, timeout=PROMPT_S).WhichOneof("outcome") == "committed"


QUOTAS = {"sessions": "TOO_MANY_SESSIONS", "watchers": "TOO_MANY_WATCHERS", "plans": "TOO_MANY_PLANS"}
REGISTER = "/laketx.v1.TransactionService/RegisterFiles"
FEW = ["--grace-s", "0.2"]
FEW += [flag for name in (*QUOTAS, "registrations") for flag in (f"--{name}-max", "6", f"--{name}-each", "6")]


def test_every_stream_of_the_wire_has_a_lane() -> None:
    assert {one.path for one in STREAMS} == {path for path in LANES if path.startswith("/laketx.")} - {
        "/laketx.v1.AdminService/GetStatus"  # no stream, but a call that is answered when all others aren't
    }


def test_idle_streams_of_every_kind_leave_threads_for_calls(tmp_path: Path, connect: Connect) -> None:
    with service(tmp_path / "db", "--threads", "4", "--stream-idle-s", "5", *FEW) as (server, stubs):
        table_id = stubs.create("t")
        opened = []
        for stream in STREAMS:
            idle = connect(server.address)
            opened += [idle.open(stream.path) for _ in range(IDLE_PER_METHOD)]
        check_that_calls_work(stubs, table_id)
        ends = {failure(call) for call in opened}
        expected = {*QUOTAS.values(), "TOO_MANY_REGISTRATIONS", "TOO_MANY_CHECKS"}
        assert {reason for _, reason in ends} == {*expected, ""}
        check_that_calls_work(stubs, table_id)


def test_calls_without_a_request_give_their_threads_to_those_with_one(tmp_path: Path, connect: Connect) -> None:
    with service(tmp_path / "db", "--threads", "2", *FEW) as (server, stubs):
        table_id = stubs.create("t")
        idle = connect(server.address)
        for path in (APPEND, "/laketx.v1.AdminService/GetStatus"):
            for _ in range(4):
                idle.open(path)
        check_that_calls_work(stubs, table_id)


def test_streams_that_never_began_give_their_slots_to_others(tmp_path: Path, connect: Connect) -> None:
    with service(tmp_path / "db", *FEW) as (server, stubs):
        idle = connect(server.address)
        for _ in range(6):
            idle.open(REGISTER)
        table_id = stubs.create("t")
        with MetaClient(server.address, use_session=False) as client:  # it asks again until there is a place
            txn = client.begin([transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)])
            txn.register(table_id, [data_file(txn.txn_id)])
            assert txn.commit([common_pb2.Change(table_id=table_id)]).tables[0].version == 1


def test_one_principal_leaves_slots_for_others(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--watchers-max", "3", "--watchers-each", "2", "--grace-s", "0.2") as (server, stubs):
        table_id = stubs.create("t")
        request = read_pb2.WatchRequest(table_id=table_id, after_version=0)

        def watch(principal: str) -> Any:
            call = stubs.reads.Watch(request, timeout=TIMEOUT_S, metadata=(("x-laketx-principal", principal),))
            opened.append(call)
            return call

        opened: list[Any] = []
        for _ in range(2):
            next(watch("etl%20one"))
        with pytest.raises(grpc.RpcError) as caught:
            next(watch("etl%20one"))
        assert facts_of(caught.value) == {"quota": "watchers", "most": "2", "principal": "etl one"}
        next(watch("bi"))
        with pytest.raises(grpc.RpcError) as caught:
            next(watch("others"))
        assert facts_of(caught.value) == {"quota": "watchers", "most": "3"}
        for call in opened:
            call.cancel()
        with MetaClient(server.address, principal="etl one") as client:  # it asks again until there is a place
            assert next(client.watch(table_id, after_version=-1)).version == 0


def test_idle_streams_end_and_clients_open_others(tmp_path: Path, connect: Connect) -> None:
    with service(tmp_path / "db", "--stream-idle-s", "1", *FEW) as (server, stubs):
        table_id = stubs.create("t")
        idle = connect(server.address)
        quiet = stubs.reads.Watch(read_pb2.WatchRequest(table_id=table_id, after_version=0), timeout=TIMEOUT_S)
        session, registering, append = idle.open(SESSION), idle.open(REGISTER), idle.open(APPEND)
        with MetaClient(server.address) as client:
            watch = client.watch(table_id, after_version=-1)
            assert next(watch).version == 0
            assert client.append(table_id, []).tables[0].version == 1
            assert failure(session) == failure(quiet) == ("OK", "")
            assert failure(registering) == failure(append) == ("CANCELLED", "")
            assert client.append(table_id, []).tables[0].version == 2
            assert [next(watch).version for _ in range(2)] == [1, 2]


def test_streams_end_at_their_deadline(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--stream-deadline-s", "1", *FEW) as (server, stubs):
        table_id = stubs.create("t")
        with MetaClient(server.address) as client:
            watch = client.watch(table_id, after_version=0)
            end_s = time.monotonic() + 3
            count = 0
            while time.monotonic() < end_s:
                count += 1
                assert client.append(table_id, []).tables[0].version == next(watch).version == count


def test_a_plan_that_nobody_reads_ends(tmp_path: Path) -> None:
    metrics = free_address()
    names = [f"{number:0900}" for number in range(4_000)]
    with service(tmp_path / "db") as (_, stubs):  # a large request may take its time
        table_id = stubs.create("t")
        for _ in range(4):  # a plan of 15 MB: more than what is on its way at a time
            txn = stubs.begin(table_id)
            stubs.commit(txn, common_pb2.Change(table_id=table_id, files=[data_file(txn, name) for name in names]))
    with service(tmp_path / "db", "--stream-idle-s", "1", "--metrics-listen", metrics) as (_, stubs):
        plan = stubs.reads.PlanScan(read_pb2.PlanScanRequest(table_id=table_id), timeout=TIMEOUT_S)

        def ended() -> bool:
            with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=TIMEOUT_S) as answer:
                return 'laketx_streams_ended_total{lane="plans",why="idle"} 1' in answer.read().decode()

        wait_until(ended)
        assert failure(plan) == ("CANCELLED", "")
    with service(tmp_path / "db") as (_, stubs):
        whole = stubs.reads.PlanScan(read_pb2.PlanScanRequest(table_id=table_id), timeout=TIMEOUT_S)
        assert sum(len(part.entries) for part in whole) == 4 * len(names)


def test_a_session_that_takes_no_answers_is_read_no_further(tmp_path: Path) -> None:
    frame = transaction_pb2.SessionRequest()
    for number in range(256):
        frame.calls.add(call_id=number).ping.payload = b"p" * 4_096
    raw, offered = frame.SerializeToString(), 300  # frames of 1 MB

    with service(tmp_path / "db", "--stream-idle-s", "2", "--grace-s", "0.2") as (_, stubs):
        stubs.create("t")
        admin = admin_pb2_grpc.AdminServiceStub(stubs.channel)
        frames: Any = itertools.repeat(raw, offered)
        session: Any = stubs.channel.stream_stream(SESSION)(frames)

        def status() -> admin_pb2.GetStatusResponse:
            return admin.GetStatus(admin_pb2.GetStatusRequest(), timeout=TIMEOUT_S)

        wait_until(lambda: status().sessions == 1)
        wait_until(lambda: status().sessions == 0)
        assert 1 <= status().jobs / len(frame.calls) < offered / 3, "frames that were read"
        session.cancel()
