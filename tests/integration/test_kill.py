"""SIGKILL under load: what was acknowledged is there, once, and what was not is there whole or not at all."""

import itertools
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from protos.laketx.v1 import common_pb2
from tests.conformance.play import new_uuid7
from tests.conformance.server import stop
from tests.histories.wire import persist
from tests.integration.bucket import bucket, known_to
from tests.integration.high_availability import STORE
from tests.integration.service import Service, Stubs, code_of, data_file, free_address

WRITERS = 16
RETRY_S = 60.0
UP_S = (0.25, 0.4, 0.15, 0.5, 0.3)
AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}


@dataclass
class Writer:
    """Writes until told to stop; every second transaction is one call, the others are three."""

    stubs: Stubs
    table_id: str
    done: threading.Event
    acked: dict[str, common_pb2.Committed] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        try:
            number = 0
            while not self.done.is_set():
                number += 1
                txn_id = new_uuid7()
                answer = self.persist(txn_id, single=bool(number % 2))
                if answer is None:
                    self.lost.append(txn_id)
                else:
                    self.acked[txn_id] = answer
        except BaseException as error:  # noqa: BLE001 - the test's own thread reports it
            self.failures.append(error)

    def persist(self, txn_id: str, *, single: bool) -> common_pb2.Committed | None:
        deadline = time.monotonic() + RETRY_S
        while True:
            try:
                return self.append(txn_id) if single else self.stages(txn_id)
            except grpc.RpcError as error:
                if code_of(error) not in AGAIN or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def append(self, txn_id: str) -> common_pb2.Committed:
        return self.stubs.append(self.table_id, txn_id).committed

    def stages(self, txn_id: str) -> common_pb2.Committed | None:
        """Repeats the stages with the same ids, whichever of them the kill cut off."""
        self.stubs.begin(self.table_id, operation=common_pb2.OPERATION_CUSTOM, txn_id=txn_id)
        files = [data_file(txn_id, name) for name in ("a", "b")]
        try:
            self.stubs.register(txn_id, self.table_id, *files)
        except grpc.RpcError as error:
            if code_of(error) is not grpc.StatusCode.ABORTED:  # it ended before the kill; the commit tells how
                raise
        answer = self.stubs.commit(txn_id, self.change())
        return answer.committed if answer.WhichOneof("outcome") == "committed" else None

    def change(self) -> common_pb2.Change:
        return common_pb2.Change(table_id=self.table_id, changes_data=True, registered_files=2)


def test_ten_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    check_kills(Service(tmp_path / "db", listen=free_address()), rounds=10)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, 20])
def test_kills_of_a_store_in_a_bucket_lose_and_repeat_nothing(tmp_path: Path, rounds: int) -> None:
    with bucket(tmp_path) as variables:
        server = Service(tmp_path / "db", "--store", STORE, listen=free_address(), environment=known_to(variables))
        check_kills(server, rounds)


@pytest.mark.long
def test_a_hundred_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    check_kills(Service(tmp_path / "db", listen=free_address()), rounds=100)


def check_kills(server: Service, rounds: int) -> None:
    stubs = Stubs(server.start())
    try:
        table_id = persist(lambda: stubs.create("t", profile="delta_write_serializable"))
        for number in range(rounds):
            writers = write_through_a_kill(server, table_id, UP_S[number % len(UP_S)])
            check_answers(stubs, table_id, writers)
        check_log(stubs, table_id)
    finally:
        stubs.channel.close()
        if server.process is not None:
            stop(server.process)


def write_through_a_kill(server: Service, table_id: str, up_s: float) -> list[Writer]:
    done = threading.Event()
    writers = [Writer(Stubs(server.address), table_id, done) for _ in range(WRITERS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    time.sleep(up_s)
    server.kill()
    server.start()
    done.set()
    for thread in threads:
        thread.join(2 * RETRY_S)
    assert [writer.failures for writer in writers if writer.failures] == []
    assert not any(thread.is_alive() for thread in threads)
    for writer in writers:
        writer.stubs.channel.close()
    return writers


def check_answers(stubs: Stubs, table_id: str, writers: list[Writer]) -> None:
    """Every acknowledged commit is in the log once, as acknowledged; a repeat gets the first answer."""
    versions = stubs.list_versions(table_id)
    assert [each.version for each in versions] == list(range(len(versions)))
    times = [each.commit_time_us for each in versions]
    assert times == sorted(set(times))
    by_txn = {each.txn_id: each for each in versions}
    assert len(by_txn) == len(versions)
    for writer in writers:
        assert writer.acked
        for txn_id, committed in writer.acked.items():
            found = by_txn[txn_id]
            assert (found.version, found.commit_time_us) == (committed.tables[0].version, committed.commit_time_us)
        assert not by_txn.keys() & set(writer.lost)
        single = [each for each in writer.acked if by_txn[each].files_added == 1][-2:]
        for txn_id in single:
            assert stubs.append(table_id, txn_id).committed == writer.acked[txn_id]
        for txn_id in [each for each in writer.acked if by_txn[each].files_added == 2][-2:]:
            assert stubs.commit(txn_id, writer.change()).committed == writer.acked[txn_id]
    assert len(stubs.list_versions(table_id)) == len(versions)


def check_log(stubs: Stubs, table_id: str) -> None:
    """What is live is what the log adds; no transaction is half-done."""
    versions = stubs.list_versions(table_id)
    live = stubs.list_files(table_id)
    expected = {
        (f"{each.txn_id}/{name}", each.version)
        for each in versions[1:]
        for name in (("f",) if each.files_added == 1 else ("a", "b"))
    }
    assert {(entry.file.path, entry.added_version) for entry in live} == expected
    assert len(live) == sum(each.files_added for each in versions)
    starts = sorted((entry.file.first_row_id, entry.file.rows) for entry in live)
    assert all(first + rows <= after for (first, rows), (after, _) in itertools.pairwise(starts))
    for txn in stubs.list_txns():
        assert txn.state != 1, f"{txn.txn_id} is open"
