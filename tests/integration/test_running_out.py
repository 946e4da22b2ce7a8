"""A service that runs out of something refuses calls and lives on, or ends with a code: it is never alive and deaf."""

import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from metaservice.server.process import EXIT_BROKEN
from protos.laketx.v1 import admin_pb2, admin_pb2_grpc, read_pb2
from tests.conformance.server import ROOT, stop
from tests.integration.service import TIMEOUT_S, Service, Stubs, reason_of, service

CONNECTIONS = 400
STREAMS = 200
SERVING = health_pb2.HealthCheckResponse.SERVING


def health(channel: grpc.Channel) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return int(stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S, wait_for_ready=True).status)


def test_without_descriptors_those_connected_are_served(tmp_path: Path) -> None:
    server = Service(tmp_path / "db", descriptors_max=200)
    stubs = Stubs(server.start())
    try:
        table_id = stubs.create("t")
        host, _, port = server.address.rpartition(":")
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))
            for _ in range(5):
                assert stubs.append(table_id).WhichOneof("outcome") == "committed"
            txn = stubs.begin(table_id)  # and what writes many files goes on: the store has descriptors of its own
            assert stubs.get(txn).txn_id == txn
            assert health(stubs.channel) == SERVING
        fresh = Stubs(server.address)  # their places come back
        assert health(fresh.channel) == SERVING
        fresh.channel.close()
        assert server.running().poll() is None
    finally:
        stubs.channel.close()
        if server.process is not None:
            stop(server.process)


def test_without_descriptors_the_status_is_refused_and_nothing_ends(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, stubs):
        asking = admin_pb2_grpc.AdminServiceStub(stubs.channel)
        process = server.running()
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert asking.GetStatus(admin_pb2.GetStatusRequest(), timeout=TIMEOUT_S).store_bytes
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1, before[1]))
        with pytest.raises(grpc.RpcError) as caught:
            asking.GetStatus(admin_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
        assert reason_of(caught.value) == "FOLDER_UNREADABLE"
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        assert asking.GetStatus(admin_pb2.GetStatusRequest(), timeout=TIMEOUT_S).store_bytes
        assert process.poll() is None


def test_without_memory_for_threads_calls_are_refused_and_answered(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--grace-s", "0.2") as (server, stubs):
        table_id = stubs.create("t")
        process = server.running()
        room = bytes_of_memory(process) + (24 << 20)  # three stacks
        resource.prlimit(process.pid, resource.RLIMIT_AS, (room, room))
        request = read_pb2.WatchRequest(table_id=table_id, after_version=0)
        watches: list[Any] = [stubs.reads.Watch(request, timeout=TIMEOUT_S) for _ in range(STREAMS)]
        assert "NO_THREAD" in {refusal(watch) for watch in watches[-20:]}
        assert health(stubs.channel) == SERVING
        assert stubs.append(table_id).WhichOneof("outcome") == "committed"
        for watch in watches:
            watch.cancel()


def test_a_thread_that_is_lost_ends_the_process_with_its_code(tmp_path: Path) -> None:
    program = "from metaservice.server import process; import threading; process.end_on_lost_thread()\n"
    program += "threading.Thread(target=lambda: 1 / 0).start(); threading.Event().wait()"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == EXIT_BROKEN


def refusal(call: Any) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    return reason_of(caught.value)


def bytes_of_memory(process: subprocess.Popen[str]) -> int:
    """Of its address space."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmSize")) * 1024
