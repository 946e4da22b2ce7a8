"""Tables that are made, or redefined, by the commit that brings their rows; through a real service."""

import time
from collections.abc import Iterator

import grpc
import pytest

from metaservice.client import MetaClient, NotFoundError, add_column, uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from tests.integration.order_tables import column, fresh, ids, live, orders, raises
from tests.integration.service import Service, Stubs, data_file, reason_of, service

LEASE_MS = 1_500
ALL = common_pb2.Scope(all=True)
UNBORN = "_new_"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs, MetaClient]]:
    with (
        service(tmp_path_factory.mktemp("new tables") / "db", "--lease-ms", str(LEASE_MS)) as (server, stubs),
        MetaClient(server.address, principal="ann") as client,
    ):
        yield server, stubs, client


@pytest.fixture
def client(served: tuple[Service, Stubs, MetaClient]) -> MetaClient:
    return served[2]


@pytest.fixture
def stubs(served: tuple[Service, Stubs, MetaClient]) -> Stubs:
    return served[1]


def unborn() -> str:
    return UNBORN + uuid7().replace("-", "")


def begin(
    stubs: Stubs, table_id: str, operation: common_pb2.Operation.ValueType = common_pb2.OPERATION_OVERWRITE
) -> str:
    txn_id = uuid7()
    intent = wire.TableIntent(table_id=table_id, operation=operation)
    stubs.txns.BeginTransaction(wire.BeginTransactionRequest(txn_id=txn_id, tables=[intent]))
    return txn_id


def commit(
    stubs: Stubs, txn_id: str, change: common_pb2.Change, *replacements: catalog_pb2.Table
) -> wire.CommitTransactionResponse:
    return stubs.txns.CommitTransaction(
        wire.CommitTransactionRequest(txn_id=txn_id, changes=[change], replacements=replacements)
    )


def redefined(table: catalog_pb2.Table, *more: catalog_pb2.Column) -> catalog_pb2.Table:
    found = orders(table.name, *more)
    found.table_id = table.table_id
    return found


def refusal(stubs: Stubs, request: wire.CommitTransactionRequest) -> str:
    with pytest.raises(grpc.RpcError) as raised:
        stubs.txns.CommitTransaction(request)
    return reason_of(raised.value)


def test_a_table_gets_its_name_with_its_rows(client: MetaClient, stubs: Stubs) -> None:
    name = fresh()
    made = client.create_table(orders(unborn()))
    assert not [one for one in client.list_tables() if one.table_id == made.table_id]
    txn_id = begin(stubs, made.table_id)
    change = common_pb2.Change(
        table_id=made.table_id,
        scope=ALL,
        files=[data_file(txn_id)],
        alteration=common_pb2.Alteration(name=name),
    )
    assert commit(stubs, txn_id, change).committed.tables[0].version == 1
    table = client.get_table(name)
    assert (table.table_id, table.schema_version) == (made.table_id, made.schema_version)
    assert len(live(stubs, table.table_id)) == 1
    assert [one.name for one in client.list_tables() if one.table_id == table.table_id] == [name]


def test_a_name_that_is_taken_meanwhile(client: MetaClient, stubs: Stubs) -> None:
    """Nothing is left of the table that came late."""
    there = client.create_table(orders(fresh()))
    made = client.create_table(orders(unborn()))
    txn_id = begin(stubs, made.table_id)
    change = common_pb2.Change(
        table_id=made.table_id, scope=ALL, alteration=common_pb2.Alteration(name=there.name.upper())
    )
    request = wire.CommitTransactionRequest(txn_id=txn_id, changes=[change])
    assert refusal(stubs, request) == "TABLE_EXISTS"
    client.abort(txn_id)
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.get_table(made.name)
    assert client.get_table(there.name) == there


def test_a_table_goes_with_the_transaction_that_it_was_made_for(client: MetaClient, stubs: Stubs) -> None:
    """Also when nobody is there to end it."""
    named = client.create_table(orders(fresh()))
    left, ended = (client.create_table(orders(unborn())) for _ in range(2))
    begin(stubs, left.table_id)
    begin(stubs, named.table_id)
    client.abort(begin(stubs, ended.table_id))
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.get_table(ended.name)
    deadline_s = time.monotonic() + 60
    while [one for one in stubs.list_txns() if one.state == wire.TRANSACTION_STATE_OPEN]:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.get_table(left.name)
    assert client.get_table(named.name) == named
    assert not [one.name for one in client.list_tables(include_dropped=True) if UNBORN in one.name]


@pytest.mark.parametrize("profile", ["maxcompute", "delta_serializable", "delta_write_serializable", "row_level"])
def test_rows_come_under_the_definition_that_they_bring(client: MetaClient, stubs: Stubs, profile: str) -> None:
    wanted = orders(fresh(), column("n", "int"))
    wanted.profile = profile
    table = client.create_table(wanted)
    old = uuid7()
    client.append(table.table_id, [data_file(old)], txn_id=old)
    wider = redefined(table, column("n", "string"), column("x", "int"))
    wider.profile = profile
    would = client.create_table(wider, or_replace=True, validate_only=True)
    late = begin(stubs, table.table_id, common_pb2.OPERATION_INSERT)
    txn_id = begin(stubs, table.table_id)
    file = data_file(txn_id)
    file.schema_version = would.schema_version
    change = common_pb2.Change(table_id=table.table_id, scope=ALL, files=[file])
    answer = commit(stubs, txn_id, change, wider)
    assert answer.committed.tables[0].version == 2
    assert commit(stubs, txn_id, change, wider) == answer
    now = client.get_table(wanted.name)
    assert (now.schema_version, ids(now)) == (2, {"id": 1, "day": 2, "n": 4, "x": 5})
    assert (now.schema_version, ids(now)) == (would.schema_version, ids(would))
    assert live(stubs, table.table_id) == {file.path: 2}
    assert live(stubs, table.table_id, 1) == {f"{old}/f": 1}
    lost = commit(stubs, late, common_pb2.Change(table_id=table.table_id, files=[data_file(late)]))
    assert lost.conflict.rule == common_pb2.CONFLICT_RULE_METADATA_CHANGED


def test_a_definition_that_loses_to_another(client: MetaClient, stubs: Stubs) -> None:
    table = client.create_table(orders(fresh()))
    txn_id = begin(stubs, table.table_id)
    client.alter_columns(table.table_id, add_column("x", "int"))
    change = common_pb2.Change(table_id=table.table_id, scope=ALL, files=[data_file(txn_id)])
    answer = commit(stubs, txn_id, change, redefined(table, column("y", "int")))
    assert answer.conflict.rule == common_pb2.CONFLICT_RULE_METADATA_CHANGED
    assert set(ids(client.get_table(table.name))) == {"id", "day", "x"}


def test_only_an_overwrite_of_everything_redefines(client: MetaClient, stubs: Stubs) -> None:
    table = client.create_table(orders(fresh()))
    other = redefined(table, column("x", "int"))
    one = common_pb2.Partition(values=[common_pb2.PartitionValue(column="day", value=common_pb2.Value(text="mon"))])
    some = common_pb2.Scope(named=common_pb2.PartitionList(partitions=[one]))
    for operation, change in (
        (common_pb2.OPERATION_OVERWRITE, common_pb2.Change(scope=some)),
        (common_pb2.OPERATION_TRUNCATE, common_pb2.Change(scope=ALL)),
        (common_pb2.OPERATION_INSERT, common_pb2.Change()),
        (common_pb2.OPERATION_ALTER, common_pb2.Change()),
    ):
        change.table_id = table.table_id
        txn_id = begin(stubs, table.table_id, operation)
        request = wire.CommitTransactionRequest(txn_id=txn_id, changes=[change], replacements=[other])
        assert refusal(stubs, request) == "ALTERATION_MISMATCH"
    txn_id = begin(stubs, table.table_id)
    change = common_pb2.Change(table_id=table.table_id, scope=ALL)
    stranger = redefined(client.create_table(orders(fresh())))
    for replacements in ([stranger], [other, other]):
        request = wire.CommitTransactionRequest(txn_id=txn_id, changes=[change], replacements=replacements)
        assert refusal(stubs, request) == "CHANGES_MISMATCH"
    change.alteration.comment = "both"
    assert refusal(stubs, wire.CommitTransactionRequest(txn_id=txn_id, changes=[change], replacements=[other])) == (
        "ALTERATION_MISMATCH"
    )
    assert client.get_table(table.name) == table
