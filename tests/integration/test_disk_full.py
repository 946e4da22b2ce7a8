"""A full disk: writes are refused, reads go on, nothing acknowledged is lost, and room is all it takes to go on."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from protos.laketx.v1 import transaction_pb2
from tests.integration.service import TIMEOUT_S, Service, Stubs, code_of, reason_of, service

MIB = 1 << 20
DISK_MIB = 300
RECOVERY_S = 60.0
MESSAGE = "x" * 4096
CODE = grpc.StatusCode


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True, text=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a tmpfs is not permitted here; the quota's test stands in")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path, leave_bytes: int) -> None:
    """Takes all but so much of the disk."""
    room = os.statvfs(path.parent)
    with path.open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_frsize - leave_bytes)


def append_until_refused(stubs: Stubs, table_id: str, most: int) -> tuple[dict[str, int], grpc.RpcError]:
    acked: dict[str, int] = {}
    for _ in range(most):
        try:
            answer = stubs.append(table_id, message=MESSAGE)
        except grpc.RpcError as error:
            return acked, error
        version = answer.committed.tables[0].version
        acked[str(version)] = answer.committed.commit_time_us
    raise AssertionError("the disk never filled")


def check_readable(stubs: Stubs, table_id: str, acked: dict[str, int]) -> None:
    versions = stubs.list_versions(table_id)
    assert [each.version for each in versions] == list(range(len(versions)))
    times = {str(each.version): each.commit_time_us for each in versions}
    assert {version: times[version] for version in acked} == acked
    assert len(stubs.list_files(table_id)) == len(versions) - 1


def check_recovers(server: Service, stubs: Stubs, table_id: str) -> None:
    deadline = time.monotonic() + RECOVERY_S
    while True:
        server.running()
        try:
            assert stubs.append(table_id).WhichOneof("outcome") == "committed"
        except grpc.RpcError as error:
            code, reason = code_of(error), reason_of(error)
            assert code in (CODE.RESOURCE_EXHAUSTED, CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED)
            assert time.monotonic() < deadline, f"{code} {reason}"
            time.sleep(0.1)
        else:
            return


def test_a_store_at_its_quota_refuses_writes_and_is_read(tmp_path: Path) -> None:
    flags = ("--store-bytes-max", str(4 * MIB), "--reserve-bytes", str(2 * MIB))
    with service(tmp_path / "db", *flags) as (server, stubs):
        table_id = stubs.create("t")
        is_open = stubs.begin(table_id)
        acked, refusal = append_until_refused(stubs, table_id, 5_000)
        assert (code_of(refusal), reason_of(refusal)) == (CODE.RESOURCE_EXHAUSTED, "DISK_FULL")
        check_readable(stubs, table_id, acked)
        with pytest.raises(grpc.RpcError) as caught:
            stubs.begin(table_id)
        assert reason_of(caught.value) == "DISK_FULL"
        renew = transaction_pb2.RenewTransactionRequest(txn_id=is_open)
        assert stubs.txns.RenewTransaction(renew, timeout=TIMEOUT_S).lease_ms > 0
        abort = transaction_pb2.AbortTransactionRequest(txn_id=is_open)
        stubs.txns.AbortTransaction(abort, timeout=TIMEOUT_S)
        assert stubs.get(is_open).state == transaction_pb2.TRANSACTION_STATE_ABORTED
        server.kill()
        server.flags = ("--store-bytes-max", str(64 * MIB), "--reserve-bytes", str(2 * MIB))
        server.start()
        again = Stubs(server.address)
        check_recovers(server, again, table_id)
        check_readable(again, table_id, acked)
        again.channel.close()


def test_a_disk_without_the_reserve_refuses_writes_until_there_is_room(disk: Path) -> None:
    with service(disk / "db") as (server, stubs):
        table_id = stubs.create("t")
        stubs.append(table_id)
        fill(disk / "ballast", 97 * MIB)
        acked, refusal = append_until_refused(stubs, table_id, 5_000)
        assert (code_of(refusal), reason_of(refusal)) == (CODE.RESOURCE_EXHAUSTED, "DISK_FULL")
        check_readable(stubs, table_id, acked)
        (disk / "ballast").unlink()
        check_recovers(server, stubs, table_id)
        check_readable(stubs, table_id, acked)


def test_a_disk_without_any_room_loses_nothing(disk: Path) -> None:
    with service(disk / "db", "--reserve-bytes", "0") as (server, stubs):
        table_id = stubs.create("t")
        stubs.append(table_id)
        fill(disk / "ballast", 1 * MIB)
        acked, refusal = append_until_refused(stubs, table_id, 5_000)
        assert code_of(refusal) in (CODE.RESOURCE_EXHAUSTED, CODE.UNAVAILABLE), refusal
        assert reason_of(refusal) in ("DISK_FULL", "STORE_FAILED")
        (disk / "ballast").unlink()
        check_recovers(server, stubs, table_id)
        check_readable(stubs, table_id, acked)
        server.kill()
        server.start()
        again = Stubs(server.address)
        check_readable(again, table_id, acked)
        again.channel.close()
