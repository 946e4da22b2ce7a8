"""Names through a real service: tables in any case and renamed, columns of any name, what older folders hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from metaservice.client import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    MetaClient,
    NotFoundError,
    add_column,
    comment_column,
    rename_column,
    uuid7,
)
from metaservice.store import keys
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.port import Batch
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from tests.integration.service import Service, Stubs, data_file, service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs, MetaClient]]:
    with (
        service(tmp_path_factory.mktemp("names") / "db") as (server, stubs),
        MetaClient(server.address, principal="ann") as client,
    ):
        yield server, stubs, client


@pytest.fixture
def client(served: tuple[Service, Stubs, MetaClient]) -> MetaClient:
    return served[2]


def table(name: str) -> catalog_pb2.Table:
    columns = [catalog_pb2.Column(name=each, type="string", nullable=True) for each in ("id", "day")]
    return catalog_pb2.Table(name=name, columns=columns, partition_columns=["day"])


def test_two_tables_whose_names_differ_in_case_alone_are_refused(client: MetaClient) -> None:
    client.create_namespace("Shop")
    made = client.create_table(table("shop.Orders"))
    assert made.name == "Shop.Orders"
    for name in ("Shop.Orders", "SHOP.ORDERS", "shop.orders"):
        assert client.get_table(name).table_id == made.table_id
        assert client.create_table(table(name), if_not_exists=True).table_id == made.table_id
        with pytest.raises(AlreadyExistsError, match="TABLE_EXISTS"):
            client.create_table(table(name))
    with pytest.raises(AlreadyExistsError, match="NAMESPACE_EXISTS"):
        client.create_namespace("SHOP")
    assert client.create_namespace("shop", if_not_exists=True).name == "Shop"
    assert [one.name for one in client.list_tables(namespace="SHOP")] == ["Shop.Orders"]
    client.drop_table(made.table_id)
    second = client.create_table(table("shop.orders"))
    with pytest.raises(AlreadyExistsError, match="TABLE_EXISTS"):
        client.undrop_table(made.table_id)
    client.drop_table(second.table_id)
    assert [one.table_id for one in client.find_dropped_tables("SHOP.orders")][1:] == [made.table_id]
    client.undrop_table(made.table_id)
    assert client.get_table("shop.orders").name == "Shop.Orders"
    with pytest.raises(NotFoundError, match="TABLE_UNKNOWN"):
        client.get_table("shop.order")


def test_a_dropped_table_comes_back_into_its_own_namespace(client: MetaClient) -> None:
    client.create_namespace("home")
    made = client.create_table(table("home.t"))
    client.drop_table(made.table_id)
    client.drop_namespace("HOME")
    client.create_namespace("Home")
    with pytest.raises(NotFoundError, match="NAMESPACE_UNKNOWN"):
        client.undrop_table(made.table_id)


def test_a_table_gets_another_name_and_its_old_one_is_free_at_once(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, _), MetaClient(server.address) as client:
        table_id = rename_all(client)
    with service(tmp_path / "db") as (server, _), MetaClient(server.address) as client:
        assert {one.name for one in client.list_tables()} == {"b.NEW", "other"}
        assert [one.commit_message for one in client.list_versions(table_id)][::-1][1] == "moved"


def rename_all(client: MetaClient) -> str:
    client.create_namespace("a")
    client.create_namespace("b")
    made = client.create_table(table("a.old"))
    intent = wire.TableIntent(table_id=made.table_id, operation=common_pb2.OPERATION_INSERT)
    with client.begin([intent]) as txn:
        txn.register(made.table_id, [data_file(txn.txn_id)])
        renamed = client.rename_table(made.table_id, "B.New", commit_message="moved")
        assert (renamed.name, renamed.table_id, renamed.schema_version) == ("b.New", made.table_id, made.schema_version)
        txn.commit([common_pb2.Change(table_id=made.table_id)])  # a rename conflicts with no write
    assert client.get_table("b.new").head_version == 2
    with pytest.raises(NotFoundError, match="TABLE_UNKNOWN"):
        client.get_table("a.old")
    other = client.create_table(table("a.OLD"))
    for taken in ("a.old", "A.Old"):
        with pytest.raises(AlreadyExistsError, match="TABLE_EXISTS"):
            client.rename_table(made.table_id, taken)
    with pytest.raises(NotFoundError, match="NAMESPACE_UNKNOWN"):
        client.rename_table(made.table_id, "nowhere.t")
    with pytest.raises(InvalidError, match="NAME_INVALID"):
        client.rename_table(made.table_id, "a.b.c")
    client.rename_table(made.table_id, "b.NEW")  # its own in another case
    client.drop_table(made.table_id)
    client.rename_table(other.table_id, "b.new")
    with pytest.raises(AlreadyExistsError, match="TABLE_EXISTS"):
        client.undrop_table(made.table_id)
    client.rename_table(other.table_id, "other")
    assert client.undrop_table(made.table_id).name == "b.NEW"
    return made.table_id


def test_a_repeated_rename_gets_its_first_answer(client: MetaClient) -> None:
    one = client.create_table(table("first"))
    txn_id, alteration = uuid7(), common_pb2.Alteration(name="second")
    version = client.alter_table(one.table_id, alteration, txn_id=txn_id).version
    client.rename_table(one.table_id, "third")
    client.create_table(table("second"))
    assert client.alter_table(one.table_id, alteration, txn_id=txn_id).version == version
    assert client.get_table("third").table_id == one.table_id


def test_two_renames_in_one_transaction_take_two_names(client: MetaClient) -> None:
    ids = [client.create_table(table(name)).table_id for name in ("x1", "x2")]
    intents = [wire.TableIntent(table_id=one, operation=common_pb2.OPERATION_ALTER) for one in ids]
    changes = [
        common_pb2.Change(table_id=one, alteration=common_pb2.Alteration(name=name))
        for one, name in zip(ids, ("same", "Same"), strict=True)
    ]
    with pytest.raises(InvalidError, match="NAME_INVALID"), client.begin(intents) as txn:
        txn.commit(changes)
    assert [client.get_table(name).table_id for name in ("x1", "x2")] == ids


def test_a_rename_loses_to_an_alter_alone(client: MetaClient) -> None:
    made = client.create_table(table("slow"))
    intent = wire.TableIntent(table_id=made.table_id, operation=common_pb2.OPERATION_ALTER)
    change = common_pb2.Change(table_id=made.table_id, alteration=common_pb2.Alteration(name="quick"))
    with client.begin([intent]) as txn:
        client.alter_columns(made.table_id, add_column("v", "int"))
        try:
            txn.commit([change])
        except ConflictError:
            pytest.fail("a quiet change of metadata conflicts with nobody")
    assert client.get_table("quick").schema_version == 2


def test_columns_of_any_name_and_case_over_the_wire(client: MetaClient) -> None:
    names = ["Größe", "a.b", "a b", "x=y/z"]
    wanted = catalog_pb2.Table(
        name="odd",
        columns=[catalog_pb2.Column(name=name, type="int", nullable=name != "a.b", comment=name) for name in names],
        partition_columns=["X=Y/Z"],
        primary_key=["A.B", "x=Y/z"],
        buckets=1,
    )
    wanted.columns[3].nullable = False
    made = client.create_table(wanted)
    assert (list(made.primary_key), list(made.partition_columns)) == (["a.b", "x=y/z"], ["x=y/z"])
    changed = client.alter_columns(
        made.table_id, rename_column("A B", "c.d"), comment_column("`C.D`", "now"), add_column("s", "struct<`p q`:int>")
    )
    assert [one.name for one in changed.columns] == ["Größe", "a.b", "c.d", "x=y/z", "s"]
    assert changed.columns[2].comment == "now"
    for name in ("_change_type", "_Row_Id", "a\x07b", ""):
        with pytest.raises(InvalidError, match=r"COLUMN_RESERVED|NAME_INVALID"):
            client.create_table(catalog_pb2.Table(name="no", columns=[catalog_pb2.Column(name=name, type="int")]))


def test_a_folder_with_two_such_tables_from_before_opens(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, _), MetaClient(server.address) as client:
        ids = [client.create_table(table(name)).table_id for name in ("twin", "other")]
    store = RocksStore(tmp_path / "db")
    raw = store.get(keys.table_key(keys.uuid_bytes(ids[1]), 0))
    assert raw is not None
    batch = Batch()
    batch.delete(keys.name_key("other"))
    batch.put(keys.name_key("TWIN"), keys.uuid_bytes(ids[1]))
    batch.put(keys.table_key(keys.uuid_bytes(ids[1]), 0), raw.replace(b"\x05other", b"\x04TWIN"))
    store.write(batch)
    store.sync()
    store.close()
    with service(tmp_path / "db") as (server, _), MetaClient(server.address) as client:
        assert [client.get_table(name).table_id for name in ("twin", "TWIN")] == ids
        with pytest.raises(NotFoundError, match="TABLE_UNKNOWN"):
            client.get_table("Twin")
        client.rename_table(ids[1], "free")
        assert client.get_table("Twin").table_id == ids[0]
