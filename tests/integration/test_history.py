"""History and lists of transactions, filtered: each page is bounded, all of them together are what the filter means."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaservice.client import BlockedError, GoneError, InvalidError, MetaClient, uuid7
from metaservice.core import limits
from metaservice.rpc.pipeline.open_streams import StreamLimits, Streams
from metaservice.rpc.server import Server, ServerSettings
from metaservice.rpc.services import watching
from metaservice.server.process import RealClocks
from metaservice.server.settings import read_settings
from metaservice.server.store_opening import OpenState
from metaservice.server.wiring import Service, build_service
from metaservice.service.decider.decider import Answer
from metaservice.store import keys
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from tests.integration.service import TIMEOUT_S

COMMITS = 40
OPERATIONS = (common_pb2.OPERATION_INSERT, common_pb2.OPERATION_CUSTOM, common_pb2.OPERATION_CREATE)
PEOPLE = ("ana", "bo", "")
MESSAGES = ("", "Load of Monday", "load of tuesday", "ÄNDERUNG 100 %")
TAGS: tuple[dict[str, str], ...] = ({}, {"job": "a"}, {"job": "b", "run": "1"}, {"run": ""})


def fail(error: BaseException) -> None:
    raise error


@dataclass
class Past:
    """A service in this process with a history, and all of it as an unfiltered list gives it."""

    service: Service
    client: MetaClient
    address: str
    table_id: str
    versions: list[read_pb2.Version]
    txns: list[wire.Transaction]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    arguments = ["--data", str(tmp_path_factory.mktemp("history") / "db"), "--reserve-bytes", "0"]
    found = read_settings(arguments, {})
    service = build_service(OpenState(found), RealClocks(), found)
    server = Server(
        service.calls, service.operators, ServerSettings("127.0.0.1:0", threads=16), lambda: uuid4().hex, fail
    )
    service.decider.start()
    service.calls.bells.start()
    server.start()
    clients = [MetaClient(server.address, principal=name, client_name=f"program-{name}") for name in PEOPLE]
    try:
        table_id = make_history(clients)
        client = clients[0]
        versions, txns = list(client.list_versions(table_id)), list(client.list_transactions())
        assert len(versions) == COMMITS + 1
        yield Past(service, client, server.address, table_id, versions, txns)
    finally:
        for client in clients:
            client.close()
        server.stop(0)
        service.decider.stop()
        service.decider.state.store.close()


def make_history(clients: Sequence[MetaClient]) -> str:
    column = catalog_pb2.Column(name="id", type="bigint")
    first = clients[0]
    table_id = first.create_table(
        catalog_pb2.Table(name="t", columns=[column], profile="delta_write_serializable")
    ).table_id
    other_id = first.create_table(catalog_pb2.Table(name="other", columns=[column])).table_id
    for number in range(COMMITS):
        client = clients[number % 7 % len(clients)]
        message, tags = MESSAGES[number % len(MESSAGES)], TAGS[number // 3 % len(TAGS)]
        if number % 5 == 4:
            intent = wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_CUSTOM)
            with client.begin([intent], commit_message=message, properties=tags) as txn:
                txn.commit([common_pb2.Change(table_id=table_id, changes_data=False)])
        else:
            client.append(table_id, [], commit_message=message, properties=tags)
        if number % 4 == 0:
            intent = wire.TableIntent(table_id=other_id, operation=common_pb2.OPERATION_INSERT)
            client.begin([intent]).abort("not needed")
    return table_id


def fits(one: read_pb2.Version, wanted: read_pb2.VersionFilter) -> bool:
    return all(
        [
            wanted.principal in ("", one.principal.name),
            wanted.client in ("", one.principal.client),
            not wanted.operations or one.operation in wanted.operations,
            not wanted.logical_only or one.HasField("time_version_us"),
            wanted.message_contains.lower() in one.commit_message.lower(),
            all(key in one.properties for key in wanted.properties),
            all(value in ("", one.properties.get(key)) for key, value in wanted.properties.items()),
            not wanted.HasField("from_version") or one.version >= wanted.from_version,
            not wanted.HasField("to_version") or one.version <= wanted.to_version,
            not wanted.HasField("from_time_us") or one.commit_time_us >= wanted.from_time_us,
            not wanted.HasField("to_time_us") or one.commit_time_us <= wanted.to_time_us,
        ]
    )


@st.composite
def filters(draw: st.DrawFn, times: Sequence[int]) -> read_pb2.VersionFilter:
    def maybe(values: st.SearchStrategy[int]) -> int | None:
        return draw(st.none() | values)

    some_time = st.sampled_from([-5, 0, *times, times[0] + 1, 2**62]).flatmap(lambda us: st.integers(us - 1, us + 1))
    bounds = sorted(draw(st.lists(st.integers(0, COMMITS + 3), min_size=2, max_size=2)))
    moments = sorted(draw(st.lists(some_time, min_size=2, max_size=2)))
    return read_pb2.VersionFilter(
        principal=draw(st.sampled_from([*PEOPLE, "nobody"])),
        client=draw(st.sampled_from(["", "", "program-bo"])),
        operations=draw(st.lists(st.sampled_from(OPERATIONS), max_size=2)),
        logical_only=draw(st.booleans()),
        message_contains=draw(st.sampled_from(["", "", "load", "LOAD OF m", "änder", "%", "no such"])),
        properties=draw(st.sampled_from([{}, {}, {"job": ""}, {"job": "a"}, {"job": "b", "run": "1"}, {"x": ""}])),
        from_version=maybe(st.just(bounds[0])),
        to_version=maybe(st.just(bounds[1])),
        from_time_us=maybe(st.just(moments[0])),
        to_time_us=maybe(st.just(moments[1])),
    )


@given(data=st.data(), page_size=st.integers(1, 12), looks=st.integers(1, 12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_pages_together_are_what_the_filter_means(
    past: Past, monkeypatch: pytest.MonkeyPatch, data: st.DataObject, page_size: int, looks: int
) -> None:
    wanted = data.draw(filters([version.commit_time_us for version in past.versions]))
    monkeypatch.setattr(limits, "PAGE_SCAN_MAX", looks)
    found = list(past.client.list_versions(past.table_id, matching=wanted, page_size=page_size))
    assert found == [version for version in past.versions if fits(version, wanted)]


@pytest.mark.parametrize("state", [0, wire.TRANSACTION_STATE_COMMITTED, wire.TRANSACTION_STATE_ABORTED, 3])
@pytest.mark.parametrize("only_table", [True, False])
@pytest.mark.parametrize("looks", [1, 7, 10_000])
def test_a_filter_of_transactions_never_ends_early(
    past: Past,
    monkeypatch: pytest.MonkeyPatch,
    state: wire.TransactionState.ValueType,
    only_table: bool,
    looks: int,
) -> None:
    monkeypatch.setattr(limits, "PAGE_SCAN_MAX", looks)
    table_id = past.table_id if only_table else ""
    found = list(past.client.list_transactions(state=state, table_id=table_id, page_size=4))
    assert [txn.txn_id for txn in found] == [
        txn.txn_id
        for txn in past.txns
        if state in (0, txn.state) and (not only_table or table_id in [each.table_id for each in txn.tables])
    ]


def test_a_page_is_bounded_by_bytes_too(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE_SCAN_BYTES_MAX", 1)
    assert list(past.client.list_versions(past.table_id)) == past.versions


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (read_pb2.VersionFilter(from_version=3, to_version=2), "RANGE_REVERSED"),
        (read_pb2.VersionFilter(from_time_us=3, to_time_us=2), "RANGE_REVERSED"),
        (read_pb2.VersionFilter(from_version=-1), "VERSION_INVALID"),
        (read_pb2.VersionFilter(operations=[common_pb2.OPERATION_UNSPECIFIED]), "OPERATION_INVALID"),
        (read_pb2.VersionFilter(message_contains="x" * 5_000), "TEXT_TOO_LONG"),
    ],
)
def test_filters_that_cannot_be_meant_are_refused(past: Past, wanted: read_pb2.VersionFilter, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason):
        list(past.client.list_versions(past.table_id, matching=wanted))


def test_a_watch_below_what_is_kept_says_what_is_kept(past: Past) -> None:
    column = catalog_pb2.Column(name="id", type="bigint")
    table_id = past.client.create_table(catalog_pb2.Table(name="trimmed", columns=[column])).table_id
    for _ in range(5):
        past.client.append(table_id, [])

    def trim() -> None:
        for version in range(3):
            past.service.decider.state.batch.delete(keys.commit_key(keys.uuid_bytes(table_id), version))

    past.service.decider.call(trim)
    for after in (-1, 0, 1):
        with pytest.raises(GoneError, match="VERSION_RETIRED") as caught:
            next(past.client.watch(table_id, after_version=after))
        assert caught.value.facts["oldest"] == "3"
    assert next(past.client.watch(table_id, after_version=2)).version == 3


def test_a_commit_in_the_group_of_a_drop_is_seen(past: Past) -> None:
    column = catalog_pb2.Column(name="id", type="bigint")
    table_id = past.client.create_table(catalog_pb2.Table(name="short_lived", columns=[column])).table_id
    watch = past.client.watch(table_id, after_version=-1)
    assert next(watch).version == 0
    calls = past.service.calls
    append = wire.AppendRequest(txn_id=uuid7(), table_id=table_id, client_features=[])
    answered = threading.Event()

    def sink(given: Sequence[Answer]) -> None:
        assert not isinstance(given[0][1], Exception)
        answered.set()

    past.service.decider.submit(
        [
            (sink, None, calls.prepared_append(append)),
            (sink, None, lambda: calls.catalog.drop(table_id, validate_only=False)),
        ]
    )
    assert answered.wait(TIMEOUT_S)
    assert next(watch).version == 1
    with pytest.raises(BlockedError, match="TABLE_DROPPED"):
        next(watch)


@given(
    moves=st.lists(st.tuples(st.integers(0, 4), st.integers(0, COMMITS)), max_size=40),
    frame_most=st.integers(1, 9),
    cache_most=st.integers(1, 12),
    cache_bytes=st.sampled_from([1, 300, 1 << 20]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_watchers_share_is_the_log(
    past: Past,
    monkeypatch: pytest.MonkeyPatch,
    moves: list[tuple[int, int]],
    frame_most: int,
    cache_most: int,
    cache_bytes: int,
) -> None:
    """Watchers that are at different places see the head move and take frames in any order."""
    for name, most in [
        ("FRAME_VERSIONS_MAX", frame_most),
        ("CACHE_VERSIONS_MAX", cache_most),
        ("CACHE_BYTES_MAX", cache_bytes),
    ]:
        monkeypatch.setattr(watching, name, most)
    watches = watching.Watches(past.service.calls, Streams(StreamLimits(), lambda lane, why: None))
    table = past.service.calls.reads.get_table(table_id=past.table_id)
    log = past.versions[::-1]
    at = [-1, 0, 7, 20, 33]
    head = 0
    for who, step in moves:
        head = min(COMMITS, head + step // 8)
        if at[who] < head:
            frame, last = watches._frame(table, at[who], head)
            assert list(read_pb2.WatchResponse.FromString(frame).versions) == log[at[who] + 1 : last + 1]
            assert at[who] < last <= min(head, at[who] + frame_most)
            at[who] = last
