"""Watchers see every commit of a table once and in order, through kills, reconnects and every end of a watch."""

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from metaservice.client import BlockedError, MetaClient
from protos.laketx.v1 import catalog_pb2, read_pb2
from tests.conformance.server import stop
from tests.integration.service import TIMEOUT_S, Service, Stubs, code_of, data_file, free_address, reason_of, service

ROUNDS = 4
COMMITS_A_ROUND = 60


@dataclass
class Watcher:
    """Follows a table with a client of its own until it has seen a version."""

    address: str
    table_id: str
    after: int
    seen: list[read_pb2.Version] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def start(self) -> "Watcher":
        self.client = MetaClient(self.address)
        self.client.reach()  # a service that was there is waited for longer than one that never was
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self) -> None:
        try:
            for version in self.client.watch(self.table_id, after_version=self.after):
                self.seen.append(version)
                if version.commit_message == "last":
                    return
        except BaseException as error:  # noqa: BLE001 - the test's own thread reports it
            self.failures.append(error)

    def join(self) -> None:
        self.thread.join(4 * TIMEOUT_S)
        assert not self.thread.is_alive(), f"it waits after {len(self.seen)} versions"
        self.client.close()
        assert self.failures == []


def test_kills_and_reconnects_skip_and_repeat_nothing(tmp_path: Path) -> None:
    server = Service(tmp_path / "db", listen=free_address())
    writer = MetaClient(server.start())
    stubs = Stubs(server.address)
    try:
        table_id = stubs.create("t")
        watchers = [Watcher(server.address, table_id, -1).start() for _ in range(4)]
        for number in range(ROUNDS):
            writing = threading.Thread(target=write, args=(writer, table_id, COMMITS_A_ROUND))
            writing.start()
            if number:
                server.kill()
                server.start()
            writing.join()
            watchers.append(Watcher(server.address, table_id, 17 * number).start())  # it catches up, then follows
        write(writer, table_id, 1, "last")
        for watcher in watchers:
            watcher.join()
        log = stubs.list_versions(table_id)
        assert [each.version for each in log] == list(range(ROUNDS * COMMITS_A_ROUND + 2))
        for watcher in watchers:
            assert watcher.seen == log[watcher.after + 1 :]
    finally:
        writer.close()
        stubs.channel.close()
        if server.process is not None:
            stop(server.process)


def write(client: MetaClient, table_id: str, count: int, message: str = "") -> None:
    for _ in range(count):
        client.append(table_id, [], commit_message=message)


def test_a_watch_resumes_where_any_reader_left_it(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, stubs), MetaClient(server.address) as client:
        table_id = stubs.create("t")
        write(client, table_id, 1_200)  # more than a frame, and than what watchers share
        seen: list[int] = []
        for take in (1, 2, 500, 3, 694):
            watch = client.watch(table_id, after_version=seen[-1] if seen else 0)
            seen += [version.version for version in itertools.islice(watch, take)]
        assert seen == list(range(1, 1_201))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs]]:
    with service(tmp_path_factory.mktemp("watch") / "db", "--watchers-max", "2") as pair:
        yield pair


@dataclass
class Quiet:
    """A connection on which nothing moves but pings, since the first test on this service."""

    states: list[grpc.ChannelConnectivity] = field(default_factory=list)
    begun_s: float = field(default_factory=time.monotonic)


@pytest.fixture(scope="module", autouse=True)
def quiet(running: tuple[Service, Stubs]) -> Iterator[Quiet]:
    options = [
        ("grpc.keepalive_time_ms", 5_500),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    with grpc.insecure_channel(running[0].address, options=options) as channel:
        found = Quiet()
        channel.subscribe(found.states.append, try_to_connect=True)
        yield found


def watch(stubs: Stubs, table_id: str, after: int = 0) -> Iterator[read_pb2.WatchResponse]:
    request = read_pb2.WatchRequest(table_id=table_id, after_version=after)
    return stubs.reads.Watch(request, timeout=TIMEOUT_S)


def refusal(answers: Iterator[read_pb2.WatchResponse]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        list(answers)
    return code_of(caught.value).name, reason_of(caught.value)


@pytest.mark.parametrize(
    ("after", "reason"), [(1, "VERSION_IN_FUTURE"), (2**63 - 1, "VERSION_IN_FUTURE"), (-2, "VERSION_INVALID")]
)
def test_what_cannot_be_followed_is_refused(running: tuple[Service, Stubs], after: int, reason: str) -> None:
    _, stubs = running
    table_id = stubs.create(f"refused_{abs(after) % 1000}")
    assert refusal(watch(stubs, table_id, after)) == ("INVALID_ARGUMENT", reason)


def test_an_unknown_table_is_refused(running: tuple[Service, Stubs]) -> None:
    _, stubs = running
    assert refusal(watch(stubs, "00000000-0000-7000-8000-000000000000")) == ("NOT_FOUND", "TABLE_UNKNOWN")


def test_a_watch_begins_with_an_empty_answer(running: tuple[Service, Stubs]) -> None:
    _, stubs = running
    answers = watch(stubs, stubs.create("empty"))
    assert next(answers) == read_pb2.WatchResponse()
    answers.cancel()  # type: ignore[attr-defined]


def test_too_many_watchers_are_refused_and_places_come_back(running: tuple[Service, Stubs]) -> None:
    server, stubs = running
    table_id = stubs.create("crowded")
    first = watch(stubs, table_id)
    with MetaClient(server.address) as client:
        second = client.watch(table_id, after_version=-1)
        assert next(second).version == 0
        next(first)
        assert refusal(watch(stubs, table_id)) == ("RESOURCE_EXHAUSTED", "TOO_MANY_WATCHERS")
        first.cancel()  # type: ignore[attr-defined]
        third = client.watch(table_id, after_version=-1)  # it asks again until the place is free
        assert next(third).version == 0
        stubs.append(table_id)
        assert [next(each).version for each in (second, third)] == [1, 1]
        third.close()
        fourth = client.watch(table_id, after_version=0)
        assert next(fourth).version == 1


def test_a_dropped_table_ends_its_watches_after_the_last_commit(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, stubs), MetaClient(server.address) as client:
        table_id = stubs.create("t")
        other_id = stubs.create("other")
        answers, other = watch(stubs, table_id, -1), watch(stubs, other_id, -1)
        for each in (answers, other):
            assert next(each).versions == []
        write(client, table_id, 20)
        stubs.catalog.DropTable(catalog_pb2.DropTableRequest(table_id=table_id), timeout=TIMEOUT_S)
        seen: list[int] = []
        with pytest.raises(grpc.RpcError) as caught:
            seen.extend(version.version for answer in answers for version in answer.versions)
        assert seen == list(range(21))
        assert (code_of(caught.value).name, reason_of(caught.value)) == ("FAILED_PRECONDITION", "TABLE_DROPPED")
        with pytest.raises(BlockedError, match="TABLE_DROPPED"):
            next(client.watch(table_id, after_version=0))
        assert [version.version for version in next(other).versions] == [0]


def test_a_graceful_stop_ends_idle_watches_at_once(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--grace-s", "600") as (server, stubs):
        answers = watch(stubs, stubs.create("t"))
        assert next(answers).versions == []
        running_now = server.running()
        running_now.terminate()
        assert refusal(answers) == ("UNAVAILABLE", "STOPPING")
        assert running_now.wait(TIMEOUT_S) == 0


def test_watchers_leave_the_threads_of_calls_alone(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--threads", "2", "--sessions-max", "1") as (_, stubs):
        table_id = stubs.create("t")
        watches = [watch(stubs, table_id) for _ in range(60)]
        for each in watches:
            next(each)
        txn_id = stubs.begin(table_id)
        stubs.register(txn_id, table_id, data_file(txn_id))
        stubs.append(table_id)
        for each in watches:
            assert [version.version for version in next(each).versions] == [1]


def test_a_client_that_closes_ends_its_watches(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, stubs):
        watcher = Watcher(server.address, stubs.create("t"), -1).start()
        watcher.client.close()
        watcher.join()
        assert [version.version for version in watcher.seen] in ([], [0])


@pytest.mark.long
def test_a_connection_on_which_nothing_moves_stays(quiet: Quiet) -> None:
    """Its client asks whether the service is there, more often than ours do: at the fourth time it would be cut off."""
    time.sleep(max(0.0, quiet.begun_s + 24 - time.monotonic()))
    assert quiet.states[-1] is grpc.ChannelConnectivity.READY
    assert quiet.states.count(grpc.ChannelConnectivity.READY) == 1
