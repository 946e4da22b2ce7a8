"""A transaction that begins with its first call, in one frame, is one like any other."""

from collections.abc import Iterator, Sequence

import pytest
from pyroaring import BitMap64

from metaservice.client import LakeTXError, MetaClient, uuid7
from metaservice.client.errors import ErrorKind, MetaServiceError
from metaservice.client.transaction import QUEUE_FILES_MAX
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from tests.integration.service import data_file, day, service

INSERT = common_pb2.OPERATION_INSERT


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("frame") / "db") as (server, _):
        yield server.address


@pytest.fixture(params=[True, False], ids=["session", "single-calls"])
def client(request: pytest.FixtureRequest, address: str) -> Iterator[MetaClient]:
    with MetaClient(address, principal="tests", use_session=request.param) as found:
        yield found


def new_table(client: MetaClient) -> str:
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="string")]
    name = f"t_{uuid7().replace('-', '_')}"
    return client.create_table(catalog_pb2.Table(name=name, columns=columns, partition_columns=["day"])).table_id


def intent(table_id: str) -> transaction_pb2.TableIntent:
    return transaction_pb2.TableIntent(table_id=table_id, operation=INSERT)


def change(table_id: str) -> common_pb2.Change:
    return common_pb2.Change(table_id=table_id)


def test_begin_register_and_commit_in_one_frame(client: MetaClient) -> None:
    table_id = new_table(client)
    txn = client.begin([intent(table_id)], at_once=False)
    txn.queue(table_id, [data_file(txn.txn_id, "a"), data_file(txn.txn_id, "b")])
    assert not list(client.list_transactions(table_id=table_id)), "nothing was sent"
    committed = txn.commit([change(table_id)])
    assert committed.tables[0].version == 1
    assert (txn.tables, txn.lost) == ({}, None), "what has ended is not begun again, nor kept alive"
    assert txn.txn_id not in client._heartbeat._leased
    assert client.get_transaction(txn.txn_id).state == transaction_pb2.TRANSACTION_STATE_COMMITTED
    assert [entry.file.path for entry in client.list_files(table_id)] == [
        f"{txn.txn_id}/a",
        f"{txn.txn_id}/b",
    ]


def test_delete_sets_wait_for_the_commit_and_many_do_not(client: MetaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    table_id = new_table(client)
    client.append(table_id, [data_file(txn_id := uuid7(), "f")], txn_id=txn_id)
    (old,) = [entry.file for entry in client.list_files(table_id)]
    delete = transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_DELETE)
    registered: list[int] = []
    register = client.register

    def counted(
        txn_id: str, table_id: str, files: Sequence[common_pb2.DataFile], sets: Sequence[common_pb2.DeleteSet] = ()
    ) -> transaction_pb2.RegisterFilesResponse:
        registered.append(len(files) + len(sets))
        return register(txn_id, table_id, files, sets)

    monkeypatch.setattr(client, "register", counted)
    for count in (1, QUEUE_FILES_MAX + 1):
        with client.begin([delete], at_once=False) as txn:
            hidden = [
                common_pb2.DeleteSet(
                    path=f"{txn.txn_id}/gone-{number}",
                    partition=day(),
                    bitmap=BitMap64([old.first_row_id + count % 2]).serialize(),
                    touches=[old.path],
                )
                for number in range(count)
            ]
            txn.queue(table_id, [], hidden)
            assert registered == ([] if count == 1 else [count])
            txn.commit([change(table_id)])
    entries = [one.delete_set.path for one in client.list_files(table_id) if one.HasField("delete_set")]
    assert len(entries) == 1 + (QUEUE_FILES_MAX + 1)
    assert client.get_table(table_id=table_id).head_version == 3


def test_what_begin_refuses_the_commit_tells(client: MetaClient) -> None:
    unknown = uuid7()
    with pytest.raises(MetaServiceError) as caught, client.begin([intent(unknown)], at_once=False) as txn:
        txn.commit([change(unknown)])
    assert (caught.value.kind, caught.value.reason) == (ErrorKind.NOT_FOUND, "TABLE_UNKNOWN")


def test_whoever_asks_what_it_reads_begins_it(client: MetaClient) -> None:
    table_id = new_table(client)
    client.append(table_id, [data_file(txn_id := uuid7(), "f")], txn_id=txn_id)
    txn = client.begin([intent(table_id)], at_once=False)
    assert txn.tables[table_id].read_version == 1
    assert txn.lease_s > 0
    txn.register(table_id, [data_file(txn.txn_id, "g")])
    assert not txn.explain([change(table_id)]).HasField("conflict")
    assert txn.commit([change(table_id)]).tables[0].version == 2


def test_one_that_was_never_sent_leaves_nothing(client: MetaClient) -> None:
    table_id = new_table(client)
    with client.begin([intent(table_id)], at_once=False) as txn:
        pass
    with pytest.raises(LakeTXError):
        client.get_transaction(txn.txn_id)


def test_a_repeated_frame_gets_the_first_answer(client: MetaClient) -> None:
    """The answer was lost: the client sends all of it again."""
    table_id, txn_id = new_table(client), uuid7()
    begin = transaction_pb2.BeginTransactionRequest(txn_id=txn_id, tables=[intent(table_id)])
    files = [data_file(txn_id, "f")]
    queued = [transaction_pb2.RegisterFilesRequest(txn_id=txn_id, table_id=table_id, files=files)]
    first = client.commit(txn_id, [change(table_id)], queued, begin=begin)
    again = client.commit(txn_id, [change(table_id)], queued, begin=begin)
    assert first.committed.tables[0].version == again.committed.tables[0].version == 1
    assert [one.txn_id for one in client.list_versions(table_id)].count(txn_id) == 1


def test_after_a_refused_commit_it_can_be_mended(client: MetaClient) -> None:
    table_id = new_table(client)
    with client.begin([intent(table_id)], at_once=False) as txn:
        with pytest.raises(MetaServiceError) as caught:
            txn.commit([common_pb2.Change(table_id=table_id, files=[data_file(uuid7(), "of-another")])])
        assert caught.value.kind is ErrorKind.INVALID
        files = [data_file(txn.txn_id, "mine")]
        assert txn.commit([common_pb2.Change(table_id=table_id, files=files)]).tables[0].version == 1


def test_a_refused_one_is_aborted_at_the_end_of_its_block(client: MetaClient) -> None:
    table_id = new_table(client)
    with pytest.raises(MetaServiceError), client.begin([intent(table_id)], at_once=False) as txn:
        txn.commit([common_pb2.Change(table_id=table_id, files=[data_file(uuid7(), "of-another")])])
    assert client.get_transaction(txn.txn_id).state == transaction_pb2.TRANSACTION_STATE_ABORTED


def test_adopting_begins_at_once(client: MetaClient) -> None:
    """How many files came with the adopted ones is known from the begin alone."""
    table_id = new_table(client)
    with pytest.raises(MetaServiceError):
        client.begin([intent(table_id)], adopt_from=uuid7(), at_once=False)
