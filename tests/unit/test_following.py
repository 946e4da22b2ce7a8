"""Where the next call goes, after one failed: asked of real standbys."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import grpc
import pytest

from metaservice.client.credentials import Address
from metaservice.client.leader_channel import LeaderChannel
from metaservice.rpc.services.standby import Standby, StandbyAnswers
from metaservice.server.ha.leadership import not_leader
from protos.laketx.v1 import admin_pb2

NOBODY = "127.0.0.1:1"


@contextmanager
def standby(leader: str) -> Iterator[str]:
    told = StandbyAnswers(lambda: not_leader(leader), lambda: admin_pb2.GetStatusResponse(leader=leader))
    server = Standby("127.0.0.1:0", told, None, 100)
    server.start()
    yield server.address
    server.stop()


def next_after_a_call(method: str, *targets: str) -> str:
    with LeaderChannel(targets, grpc.insecure_channel) as channel:
        with suppress(grpc.RpcError):
            channel.unary_unary(method)(b"", timeout=10)
        return channel.open()[0]


@pytest.mark.parametrize(("leader", "following"), [("c:1", "c:1"), ("", "b:1"), ("elsewhere:1", "b:1")])
def test_a_standby_names_the_leader(leader: str, following: str) -> None:
    with standby(leader) as one:
        assert next_after_a_call("/laketx.v1.CatalogService/ListTables", one, "b:1", "c:1") == following


def test_after_an_address_without_an_answer_comes_the_next() -> None:
    assert next_after_a_call("/laketx.v1.CatalogService/ListTables", NOBODY, "b:1") == "b:1"


def test_an_answer_changes_nothing() -> None:
    with standby("b:1") as one:
        assert next_after_a_call("/laketx.v1.AdminService/GetStatus", one, "b:1") == one


def test_a_stream_follows_too() -> None:
    with ExitStack() as stack:
        two = stack.enter_context(standby(""))
        one = stack.enter_context(standby(two))
        channel = stack.enter_context(LeaderChannel([one, two], grpc.insecure_channel))
        with pytest.raises(grpc.RpcError):
            list(channel.unary_stream("/laketx.v1.ReadService/Watch")(b"", timeout=10))
        assert channel.open()[0] == two


def test_addresses_are_divided_by_commas() -> None:
    assert Address.of("laketxs://a:7070, b:7070").targets == ["a:7070", "b:7070"]
    assert Address.of("unix:/tmp/a,b").targets == ["unix:/tmp/a,b"]
