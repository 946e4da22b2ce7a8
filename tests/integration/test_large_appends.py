"""Large appends are converted and hashed by the thread of their caller, before the decider's turn."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from metaservice.client import InvalidError, MetaClient, add_column, uuid7
from metaservice.core.commit.transaction import TxnState
from metaservice.core.errors import MetaError
from metaservice.rpc.server import Server, ServerSettings
from metaservice.rpc.services.calls import CONVERTED_IN_TURN_MAX
from metaservice.server.process import RealClocks
from metaservice.server.settings import read_settings
from metaservice.server.store_opening import OpenState
from metaservice.server.wiring import Service, build_service
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire


def fail(error: BaseException) -> None:
    raise error


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, MetaClient]]:
    found = read_settings(["--data", str(tmp_path_factory.mktemp("large") / "db"), "--reserve-bytes", "0"], {})
    service = build_service(OpenState(found), RealClocks(), found)
    server = Server(
        service.calls, service.operators, ServerSettings("127.0.0.1:0", threads=8), lambda: uuid4().hex, fail
    )
    service.decider.start()
    service.calls.bells.start()
    server.start()
    try:
        with MetaClient(server.address) as client:
            yield service, client
    finally:
        server.stop(0)
        service.decider.stop()
        service.decider.state.store.close()


def new_table(client: MetaClient) -> str:
    columns = [catalog_pb2.Column(name="id", type="bigint")]
    return client.create_table(catalog_pb2.Table(name=f"t_{uuid7().replace('-', '_')}", columns=columns)).table_id


def request(table_id: str, size: int, *, schema_version: int = 0) -> wire.AppendRequest:
    txn_id = uuid7()
    file = common_pb2.DataFile(
        path=f"{txn_id}/f", kind=common_pb2.FILE_KIND_INLINED, rows=1, bytes=size, content=bytes(size)
    )
    return wire.AppendRequest(txn_id=txn_id, table_id=table_id, schema_version=schema_version, files=[file])


@pytest.mark.parametrize("size", [1, 2 * CONVERTED_IN_TURN_MAX])
def test_only_a_large_append_is_converted_before_its_turn(served: tuple[Service, MetaClient], size: int) -> None:
    service, client = served
    table_id = new_table(client)
    append = request(table_id, size)
    job = service.calls.prepared_appends([append], append.ByteSize())
    append.ClearField("files")  # who reads the request now finds nothing
    service.decider.call(job)
    files = [one.file for one in client.list_files(table_id)]
    assert len(files) == (size > CONVERTED_IN_TURN_MAX)
    for file in files:
        assert (file.bytes, file.schema_version, file.inlined, file.content) == (size, 1, True, b"")
        assert [one.content for one in client.read_inlined(table_id, [file.path])] == [bytes(size)]


def test_metadata_that_changes_before_its_turn_converts_it_again(served: tuple[Service, MetaClient]) -> None:
    service, client = served
    table_id = new_table(client)
    early = request(table_id, 2 * CONVERTED_IN_TURN_MAX)
    for file in early.files:
        file.schema_version = 2
    unborn = request(uuid7(), 2 * CONVERTED_IN_TURN_MAX)
    refused = service.calls.prepared_appends([early, unborn], 4 * CONVERTED_IN_TURN_MAX)
    job = service.calls.prepared_appends([early, unborn], 4 * CONVERTED_IN_TURN_MAX)
    (first, second) = service.decider.call(refused)
    assert isinstance(first, MetaError)
    assert isinstance(second, MetaError)
    assert (first.reason, second.reason) == ("SCHEMA_VERSION_INVALID", "TABLE_UNKNOWN")
    client.alter_columns(table_id, add_column("note", "string"))
    (first, second) = service.decider.call(job)
    assert not isinstance(first, MetaError)
    assert first.state is TxnState.COMMITTED
    assert isinstance(second, MetaError)


def test_each_append_of_a_large_batch_has_its_answer_and_a_repeat_gets_it_again(
    served: tuple[Service, MetaClient],
) -> None:
    client = served[1]
    table_id = new_table(client)
    appends = [request(table_id, CONVERTED_IN_TURN_MAX // 3) for _ in range(6)]
    appends[2].files[0].rows = 0
    appends.append(appends[0])
    first = client.commit_batch(appends)
    assert [isinstance(one, common_pb2.Committed) for one in first] == [True, True, False, *[True] * 4]
    assert [one.tables[0].version for one in first if isinstance(one, common_pb2.Committed)] == [1, 2, 3, 4, 5, 1]
    assert isinstance(first[2], InvalidError)
    client.drop_table(table_id)
    again = client.commit_batch([appends[0], appends[2]])
    assert again[0] == first[0]
    assert not isinstance(again[1], common_pb2.Committed)
