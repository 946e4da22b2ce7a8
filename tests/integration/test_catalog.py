"""The catalog through a real service: namespaces, schemas and their versions, dropping and bringing back, restarts."""

import base64
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from metaservice.client import (
    AlreadyExistsError,
    BlockedError,
    ConflictError,
    GoneError,
    InvalidError,
    MetaClient,
    NotFoundError,
    StaleError,
    add_column,
    comment_column,
    drop_column,
    key_scope,
    move_column,
    relax_column,
    rename_column,
    uuid7,
    widen_column,
)
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from tests.fixtures.make_data import FIXTURES
from tests.integration.order_tables import column, fresh, ids, live, orders, raises
from tests.integration.service import Service, Stubs, data_file, reason_of, service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs, MetaClient]]:
    with (
        service(tmp_path_factory.mktemp("catalog") / "db") as (server, stubs),
        MetaClient(server.address, principal="ann") as client,
    ):
        yield server, stubs, client


@pytest.fixture
def client(served: tuple[Service, Stubs, MetaClient]) -> MetaClient:
    return served[2]


@pytest.fixture
def stubs(served: tuple[Service, Stubs, MetaClient]) -> Stubs:
    return served[1]


def append(client: MetaClient, table_id: str, schema_version: int = 0) -> str:
    txn_id = uuid7()
    client.append(table_id, [data_file(txn_id)], txn_id=txn_id, schema_version=schema_version)
    return f"{txn_id}/f"


# -- namespaces --------------------------------------------------------------------------------------------------


def test_a_namespace_holds_tables(client: MetaClient) -> None:
    name = fresh("shop")
    with raises(NotFoundError, "NAMESPACE_UNKNOWN"):
        client.create_table(orders(f"{name}.orders"))
    made = client.create_namespace(name, properties={"user.owner": "ann"})
    assert (made.name, dict(made.properties)) == (name, {"user.owner": "ann"})
    assert client.get_namespace(name) == made
    with raises(AlreadyExistsError, "NAMESPACE_EXISTS"):
        client.create_namespace(name)
    assert client.create_namespace(name, if_not_exists=True) == made
    table = client.create_table(orders(f"{name}.orders"))
    for validate_only in (True, False):
        with raises(BlockedError, "NAMESPACE_NOT_EMPTY"):
            client.drop_namespace(name, validate_only=validate_only)
    client.drop_table(table.table_id)
    client.drop_namespace(name, validate_only=True)
    client.drop_namespace(name)
    with raises(NotFoundError, "NAMESPACE_UNKNOWN"):
        client.drop_namespace(name)
    with raises(NotFoundError, "NAMESPACE_UNKNOWN"):
        client.undrop_table(table.table_id)
    client.create_namespace(name)
    assert client.undrop_table(table.table_id).name == f"{name}.orders"


def test_a_repeated_creation_of_a_namespace_gets_its_answer(stubs: Stubs) -> None:
    request = catalog_pb2.CreateNamespaceRequest(name=fresh("ns"), request_id=uuid7())
    answers = [stubs.catalog.CreateNamespace(request) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].created


def test_lists_come_in_pages(client: MetaClient, stubs: Stubs) -> None:
    one, two = fresh("page"), fresh("page")
    for name in (one, two):
        client.create_namespace(name)
    expected = sorted(f"{one}.{letter}" for letter in "edcba")
    for name in [*expected[::-1], f"{two}.x", fresh("bare")]:
        client.create_table(orders(name))
    for size in (1, 2, 5, 500):
        assert [table.name for table in client.list_tables(namespace=one, page_size=size)] == expected
        everything = [table.name for table in client.list_tables(page_size=size)]
        assert everything == sorted(everything)
        assert set(expected) < set(everything)
        assert {one, two} <= {each.name for each in client.list_namespaces(page_size=size)}
    token = stubs.catalog.ListTables(catalog_pb2.ListTablesRequest(namespace=one, page_size=1)).next_page_token
    for bad in (token[:-2], token[::-1], "!!!", "é", base64.urlsafe_b64encode(b"x" * 3).decode(), "A" * 9_000):
        with raises(InvalidError, "PAGE_TOKEN_INVALID"):
            client._call(stubs.catalog.ListTables, catalog_pb2.ListTablesRequest(namespace=one, page_token=bad))
    for request in (
        catalog_pb2.ListTablesRequest(namespace=two, page_token=token),
        catalog_pb2.ListTablesRequest(namespace=one, page_token=token, include_dropped=True),
    ):
        with raises(InvalidError, "PAGE_TOKEN_INVALID"):
            client._call(stubs.catalog.ListTables, request)
    with raises(NotFoundError, "NAMESPACE_UNKNOWN"):
        list(client.list_tables(namespace=fresh("nobody")))


def test_tables_are_listed_by_a_part_of_their_name(client: MetaClient, stubs: Stubs) -> None:
    namespace = fresh("part")
    client.create_namespace(namespace)
    for name in ("Orders", "old_orders", "items", "orderly"):
        client.create_table(orders(f"{namespace}.{name}"))
    client.drop_table(client.get_table(f"{namespace}.orderly").table_id)

    def listed(part: str, **more: Any) -> list[str]:
        names, token = [], ""
        while True:
            request = catalog_pb2.ListTablesRequest(
                namespace=namespace, name_contains=part, page_size=1, page_token=token, **more
            )
            page = stubs.catalog.ListTables(request)
            names += [table.name.partition(".")[2] for table in page.tables]
            token = page.next_page_token
            if not token:
                return names

    assert listed("ORDER") == ["Orders", "old_orders"]
    assert listed("order", include_dropped=True) == ["Orders", "old_orders", "orderly"]
    assert listed("nothing", include_dropped=True) == []
    assert len(listed(namespace)) == 3
    token = stubs.catalog.ListTables(
        catalog_pb2.ListTablesRequest(namespace=namespace, name_contains="o", page_size=1)
    ).next_page_token
    with raises(InvalidError, "PAGE_TOKEN_INVALID"):
        client._call(stubs.catalog.ListTables, catalog_pb2.ListTablesRequest(namespace=namespace, page_token=token))
    with raises(InvalidError, "TEXT_TOO_LONG"):
        client._call(stubs.catalog.ListTables, catalog_pb2.ListTablesRequest(name_contains="x" * 257))


@pytest.mark.parametrize("name", ["", "a b", "a.b", "é", "x" * 129, "a\x00"])
def test_names_of_namespaces_are_checked(client: MetaClient, name: str) -> None:
    with raises(InvalidError, "NAME_INVALID"):
        client.create_namespace(name)


# -- schemas -----------------------------------------------------------------------------------------------------


def test_columns_change_and_every_version_stays_readable(client: MetaClient, stubs: Stubs) -> None:
    table = client.create_table(orders(fresh(), column("pay", "int"), column("to", "struct<zip:int,city:string>")))
    assert ids(table) == {"id": 1, "day": 2, "pay": 3, "to": 4, "to.zip": 5, "to.city": 6}
    first = append(client, table.table_id)
    second = client.alter_columns(
        table.table_id,
        rename_column("pay", "salary"),
        widen_column("salary", "bigint"),
        add_column("pay", "decimal(10, 2)", comment="gross", after="id"),
        rename_column("to.zip", "code"),
        add_column("to.geo", "struct<lat:double,lon:double>", first=True),
        relax_column("id"),
    )
    assert second.schema_version == 2
    assert [(one.name, one.type, one.nullable) for one in second.columns] == [
        ("id", "bigint", True),
        ("pay", "decimal(10,2)", True),
        ("day", "string", True),
        ("salary", "bigint", True),
        ("to", "struct<geo:struct<lat:double,lon:double>,code:int,city:string>", True),
    ]
    assert ids(second)["salary"] == 3
    assert [ids(second)[name] for name in ("pay", "to.code", "to.geo", "to.geo.lat")] == [7, 5, 8, 9]
    later = append(client, table.table_id, schema_version=2)
    third = client.alter_columns(table.table_id, drop_column("pay"), move_column("to"))
    assert [one.name for one in third.columns] == ["to", "id", "day", "salary"]
    fourth = client.alter_columns(table.table_id, add_column("pay", "string"))
    assert ids(fourth)["pay"] == 11
    assert live(stubs, table.table_id) == {first: 1, later: 2}
    schemas = list(client.list_schemas(table.table_id, page_size=3))
    assert [(one.schema_version, one.version) for one in schemas] == [(1, 0), (2, 2), (3, 4), (4, 5)]
    assert [list(one.columns) for one in schemas] == [list(one.columns) for one in (table, second, third, fourth)]
    for known, version in ((table, 1), (second, 3), (third, 4), (fourth, 5)):
        for found in (
            client.get_table(table_id=table.table_id, schema_version=known.schema_version),
            client.get_table(known.name, version=version),
        ):
            assert list(found.columns) == list(known.columns)
            assert found.head_version == 5
    for bad in (0, 5, -1):
        with raises(InvalidError, "SCHEMA_VERSION_INVALID"):
            client.get_table(table_id=table.table_id, schema_version=bad)
    with raises(InvalidError, "VERSION_IN_FUTURE"):
        client.get_table(table_id=table.table_id, version=6)


def test_a_change_of_columns_meets_who_began_before_it(client: MetaClient) -> None:
    table_id = client.create_table(orders(fresh())).table_id
    insert = wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)
    before = client.begin([insert]).txn_id
    compaction = client.begin([wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_CLUSTER)]).txn_id
    quiet = client.alter_columns(table_id, comment_column("id", "a number"))
    assert (quiet.schema_version, quiet.columns[0].comment) == (1, "a number")
    change = common_pb2.Change(table_id=table_id, files=[data_file(before)])
    assert client.commit(before, [change]).WhichOneof("outcome") == "committed"
    late = client.begin([insert]).txn_id
    client.alter_columns(table_id, add_column("x", "int"))
    lost = client.commit(late, [common_pb2.Change(table_id=table_id, files=[data_file(late)])]).conflict
    for conflict in (lost, client.renew(compaction).doomed):
        assert conflict.rule == common_pb2.CONFLICT_RULE_METADATA_CHANGED
    assert lost.advice == common_pb2.ADVICE_RELOAD
    with pytest.raises(ConflictError):
        append(client, table_id, schema_version=1)
    append(client, table_id, schema_version=2)
    insert.schema_version = 1
    with raises(StaleError, "SCHEMA_VERSION_MISMATCH"):
        client.begin([insert])


def test_a_table_as_of_a_version_a_time_and_a_tag_in_one_call(client: MetaClient, stubs: Stubs) -> None:
    table = client.create_table(orders(fresh()))
    append(client, table.table_id)
    client.create_tag(table.table_id, "before", version=1)
    (at,) = (one.commit_time_us for one in client.list_versions(table.table_id) if one.version == 1)
    client.alter_columns(table.table_id, add_column("x", "int"))
    for request in (
        catalog_pb2.GetTableRequest(name=table.name, version=1),
        catalog_pb2.GetTableRequest(name=table.name, time_us=at),
        catalog_pb2.GetTableRequest(table_id=table.table_id, tag="before"),
    ):
        answer = stubs.catalog.GetTable(request)
        assert (answer.version, answer.table.schema_version, answer.table.head_version) == (1, 1, 2)
    assert not stubs.catalog.GetTable(catalog_pb2.GetTableRequest(name=table.name)).HasField("version")
    for request, reason in (
        (catalog_pb2.GetTableRequest(name=table.name, tag="none"), "TAG_UNKNOWN"),
        (catalog_pb2.GetTableRequest(name=table.name, time_us=1), "VERSION_RETIRED"),
        (catalog_pb2.GetTableRequest(name=table.name, version=3), "VERSION_IN_FUTURE"),
        (catalog_pb2.GetTableRequest(name=table.name, version=1, tag="before"), "VERSION_TWICE"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            stubs.catalog.GetTable(request)
        assert reason_of(refused.value) == reason


def test_a_begin_names_the_definition_that_it_knows(client: MetaClient) -> None:
    """What rows come and go makes no other definition; any change of it does, and the name is a part of it."""
    table = client.create_table(orders(fresh()))
    insert = wire.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_INSERT)
    insert.definition = table.definition
    append(client, table.table_id)
    known = client.begin([insert]).txn_id
    change = common_pb2.Change(table_id=table.table_id, files=[data_file(known)])
    assert client.commit(known, [change]).WhichOneof("outcome") == "committed"
    seen = {table.definition}
    for alteration in (
        common_pb2.Alteration(schema_changes=[comment_column("id", "a number")]),
        common_pb2.Alteration(schema_changes=[add_column("x", "int")]),
        common_pb2.Alteration(set_properties={"user.team": "sales"}),
        common_pb2.Alteration(comment="orders"),
        common_pb2.Alteration(profile="row_level"),
        common_pb2.Alteration(name=fresh()),
    ):
        altered = client.alter_table(table.table_id, alteration).table
        assert altered.definition not in seen
        assert client.get_table(altered.name).definition == altered.definition
        seen.add(altered.definition)
        with raises(StaleError, "DEFINITION_CHANGED"):
            client.begin([insert])
        insert.definition = altered.definition
        client.begin([insert]).abort("only a look")


def test_of_two_changes_of_columns_the_later_loses(client: MetaClient) -> None:
    table_id = client.create_table(orders(fresh())).table_id
    alter = wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_ALTER)
    both = [client.begin([alter]).txn_id for _ in range(2)]
    alteration = common_pb2.Alteration(schema_changes=[add_column("y", "int")])
    outcomes = [client.commit(each, [common_pb2.Change(table_id=table_id, alteration=alteration)]) for each in both]
    assert [each.WhichOneof("outcome") for each in outcomes] == ["committed", "conflict"]


def test_a_refused_change_leaves_nothing_and_a_repeated_one_is_done_once(client: MetaClient, stubs: Stubs) -> None:
    table_id = client.create_table(orders(fresh())).table_id
    before = (client.get_table(table_id=table_id), stubs.list_txns(), stubs.list_versions(table_id))
    with raises(InvalidError, "COLUMN_UNKNOWN"):
        client.alter_columns(table_id, add_column("x", "int"), drop_column("idd"))
    with raises(InvalidError, "SCHEMA_CHANGE_EMPTY"):
        client.alter_columns(table_id, common_pb2.SchemaChange())
    with raises(InvalidError, "ALTERATION_EMPTY"):
        client.alter_columns(table_id)
    assert (client.get_table(table_id=table_id), stubs.list_txns(), stubs.list_versions(table_id)) == before
    alteration, txn_id = common_pb2.Alteration(schema_changes=[add_column("x", "int")]), uuid7()
    answers = [client.alter_table(table_id, alteration, txn_id=txn_id) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].table.schema_version == 2


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (catalog_pb2.Table(columns=[column("a", "decimalxyz")]), "TYPE_UNKNOWN"),
        (catalog_pb2.Table(columns=[column("a", "decimal(40,2)")]), "DECIMAL_INVALID"),
        (catalog_pb2.Table(columns=[column("a", "int"), column("A", "int")]), "COLUMN_TWICE"),
        (catalog_pb2.Table(columns=[column("a", "int")], primary_key=["a"], buckets=1), "KEY_NULLABLE"),
        (catalog_pb2.Table(columns=[column("a", "array<int>")], partition_columns=["a"]), "TYPE_NOT_ALLOWED"),
        (catalog_pb2.Table(), "COLUMNS_INVALID"),
        (orders("x", **{"data.retain.hour": "1"}), "PROPERTY_UNKNOWN"),
        (orders("x", **{"data.retain.hours": "-1"}), "PROPERTY_INVALID"),
        (orders("x", **{"write.compression": "zip"}), "PROPERTY_INVALID"),
        (orders("x", **{"user.": "1"}), "PROPERTY_UNKNOWN"),
    ],
)
def test_a_table_that_is_none_is_refused(client: MetaClient, table: catalog_pb2.Table, reason: str) -> None:
    table.name = fresh("bad")
    with raises(InvalidError, reason):
        client.create_table(table)
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.get_table(table.name)


def keyed(name: str, *key: str, **properties: str) -> catalog_pb2.Table:
    """Of `id` and `day`, partitioned by day."""
    columns = [column("id", "bigint", nullable=False), column("day", "string", nullable="day" not in key)]
    return catalog_pb2.Table(
        name=name, columns=columns, partition_columns=["day"], primary_key=key, buckets=1, properties=properties
    )


def test_a_key_contains_the_partition_columns_or_says_where_it_is_unique(client: MetaClient) -> None:
    name = fresh()
    ways: tuple[Callable[[catalog_pb2.Table], object], ...] = (
        client.create_table,
        lambda table: client.create_table(table, validate_only=True),
        lambda table: client.create_table(table, if_not_exists=True),
        lambda table: client.create_table(table, or_replace=True),
    )
    for create in ways:
        with pytest.raises(InvalidError) as refused:
            create(keyed(name, "id"))
        assert (refused.value.reason, refused.value.facts["missing"]) == ("KEY_LACKS_PARTITION", "day")
        for way_out in ("add day to", 'key_scope="table"', 'key_scope="partition"'):
            assert way_out in str(refused.value)
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.get_table(name)
    for table, scope in (
        (keyed(fresh(), "day", "id"), "table"),
        (keyed(fresh(), "id", "day", **{"key.scope": "table"}), "table"),
        (keyed(fresh(), "id", **{"key.scope": "table"}), "table"),
        (keyed(fresh(), "id", **{"key.scope": "partition"}), "partition"),
        (keyed(fresh(), "id", "day", **{"key.scope": "partition"}), "partition"),
        (orders(fresh()), None),
    ):
        assert key_scope(client.create_table(table)) == scope
    with raises(InvalidError, "KEY_SCOPE_WITHOUT_KEY"):
        client.create_table(orders(fresh(), **{"key.scope": "partition"}))
    with raises(InvalidError, "PROPERTY_INVALID"):
        client.create_table(keyed(fresh(), "id", **{"key.scope": "bucket"}))


def test_the_scope_of_a_key_changes_by_a_check_only(client: MetaClient) -> None:
    wanted = keyed(fresh(), "id", **{"key.scope": "partition"})
    table = client.create_table(wanted)
    with raises(BlockedError, "PROPERTY_FIXED"):
        client.alter_table(table.table_id, common_pb2.Alteration(remove_properties=["key.scope"]))
    unique = client.create_table(keyed(fresh(), "id", **{"key.scope": "table"}))
    with raises(BlockedError, "PROPERTY_FIXED"):
        client.alter_table(unique.table_id, common_pb2.Alteration(set_properties={"key.scope": "partition"}))
    with raises(BlockedError, "PROPERTY_FIXED"):
        client.create_table(keyed(fresh(), "id", **{"key.scope": "partition", "key.scope.checked": "1:1"}))
    with raises(BlockedError, "REPLACE_CHANGES_LAYOUT"):
        client.create_table(keyed(wanted.name, "id", **{"key.scope": "table"}), or_replace=True)
    for again in (wanted, keyed(wanted.name, "id")):  # what it doesn't say stays
        assert dict(client.create_table(again, or_replace=True).properties) == {"key.scope": "partition"}
    assert key_scope(client.create_table(keyed(wanted.name, "id"), if_not_exists=True)) == "partition"


def test_a_table_from_before_key_scopes_keeps_its_key(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "data-v1", tmp_path / "db")
    with service(tmp_path / "db") as (server, _), MetaClient(server.address) as client:
        [table] = [one for one in client.list_tables() if one.primary_key]
        assert (dict(table.properties), key_scope(table)) == ({}, "partition")
        again = catalog_pb2.Table()
        again.CopyFrom(table)
        assert client.create_table(again, if_not_exists=True).table_id == table.table_id
        assert client.create_table(again, or_replace=True).schema_version == table.schema_version + 1
        again.name = "another"
        with raises(InvalidError, "KEY_LACKS_PARTITION"):
            client.create_table(again)


def test_properties_are_counted_and_corrected(client: MetaClient) -> None:
    table_id = client.create_table(orders(fresh())).table_id
    with pytest.raises(InvalidError) as error:
        client.alter_table(table_id, common_pb2.Alteration(remove_properties=["data.retain.hour"]))
    assert error.value.facts["did_you_mean"] == "data.retain.hours"
    for start in (0, 32):
        properties = {f"user.p{number}": "x" for number in range(start, start + 32)}
        client.alter_table(table_id, common_pb2.Alteration(set_properties=properties))
    with raises(InvalidError, "TOO_MANY_PROPERTIES"):
        client.alter_table(table_id, common_pb2.Alteration(set_properties={"user.q": "x"}))
    client.alter_table(
        table_id, common_pb2.Alteration(set_properties={"user.q": "x"}, remove_properties=["user.p0", "user.p1"])
    )
    assert len(client.get_table(table_id=table_id).properties) == 63


# -- dropping, replacing -----------------------------------------------------------------------------------------


def test_a_dropped_table_comes_back_with_its_history(client: MetaClient, stubs: Stubs) -> None:
    name = fresh()
    table_id = client.create_table(orders(name)).table_id
    path = append(client, table_id)
    txn_id = client.begin([wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)]).txn_id
    history = stubs.list_versions(table_id)
    assert client.drop_table(table_id, validate_only=True) == 1
    assert client.drop_table(table_id) == 1
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.get_table(name)
    with raises(BlockedError, "TABLE_DROPPED"):
        append(client, table_id)
    [found] = client.find_dropped_tables(name)
    assert (found.table_id, found.undrop_until_us - found.drop_time_us) == (table_id, 168 * 3_600_000_000)
    other = client.create_table(orders(name)).table_id
    with raises(AlreadyExistsError, "TABLE_EXISTS"):
        client.undrop_table(table_id)
    client.drop_table(other)
    assert {one.table_id for one in client.find_dropped_tables(name)} == {table_id, other}
    for size in (1, 2, 500):
        everything = [one.table_id for one in client.list_tables(include_dropped=True, page_size=size)]
        assert len(everything) == len(set(everything))
        assert {table_id, other} <= set(everything)
    assert client.undrop_table(table_id) == client.undrop_table(table_id) == client.get_table(name)
    assert stubs.list_versions(table_id) == history
    assert live(stubs, table_id) == {path: 1}
    with raises(BlockedError, "TABLE_DROPPED"):
        client.commit(txn_id, [common_pb2.Change(table_id=table_id)])
    later = append(client, table_id)
    assert live(stubs, table_id) == {path: 1, later: 1}
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.undrop_table(uuid7())


def test_retention_ends_the_way_back(client: MetaClient) -> None:
    name = fresh()
    table_id = client.create_table(orders(name, **{"data.retain.hours": "0"})).table_id
    client.drop_table(table_id)
    with raises(GoneError, "RETENTION_OVER"):
        client.undrop_table(table_id)
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.get_table(name)


def test_creating_where_a_table_may_be(client: MetaClient, stubs: Stubs) -> None:
    name = fresh()
    table = client.create_table(orders(name), if_not_exists=True)
    assert client.create_table(orders(name, column("x", "int")), if_not_exists=True) == table
    with raises(AlreadyExistsError, "TABLE_EXISTS"):
        client.create_table(orders(name))
    request = catalog_pb2.CreateTableRequest(
        request_id=uuid7(), table=orders(fresh()), mode=catalog_pb2.CREATE_MODE_IF_NOT_EXISTS
    )
    answers = [stubs.catalog.CreateTable(request) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].created


@pytest.mark.parametrize("profile", ["maxcompute", "delta_serializable", "delta_write_serializable"])
def test_a_replacement_is_one_commit(client: MetaClient, stubs: Stubs, profile: str) -> None:
    wanted = orders(fresh(), column("n", "int"), **{"user.a": "1"})
    wanted.profile = profile
    table = client.create_table(wanted, or_replace=True)
    path = append(client, table.table_id)
    late = client.begin([wire.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_INSERT)]).txn_id
    other = orders(wanted.name, column("n", "string"), column("x", "int"))
    other.profile = profile
    request_id = uuid7()
    replaced = client.create_table(other, or_replace=True, request_id=request_id)
    assert (replaced.table_id, replaced.schema_version, replaced.head_version) == (table.table_id, 2, 2)
    assert ids(replaced) == {"id": 1, "day": 2, "n": 4, "x": 5}
    assert dict(replaced.properties) == {}
    assert live(stubs, table.table_id) == {}
    assert live(stubs, table.table_id, version=1) == {path: 1}
    [made, first, last] = stubs.list_versions(table.table_id)
    assert (last.operation, last.files_removed, last.principal.name) == (common_pb2.OPERATION_OVERWRITE, 1, "ann")
    assert last.time_version_us > first.time_version_us > made.commit_time_us
    assert client.create_table(other, or_replace=True, request_id=request_id) == replaced
    with raises(AlreadyExistsError, "TRANSACTION_ID_REUSED"):
        client.create_table(wanted, or_replace=True, request_id=request_id)
    change = common_pb2.Change(table_id=table.table_id, files=[data_file(late)])
    assert client.commit(late, [change]).conflict.rule == common_pb2.CONFLICT_RULE_METADATA_CHANGED
    flat = orders(wanted.name)
    del flat.partition_columns[:]
    with raises(BlockedError, "REPLACE_CHANGES_LAYOUT"):
        client.create_table(flat, or_replace=True)
    with raises(InvalidError, "TRANSACTION_ID_INVALID"):
        client.create_table(other, or_replace=True, request_id="123e4567-e89b-42d3-a456-426614174000")
    assert len(stubs.list_versions(table.table_id)) == 3


def test_what_is_only_checked_changes_nothing(client: MetaClient, stubs: Stubs) -> None:
    name = fresh()
    would = client.create_table(orders(name), validate_only=True)
    assert ids(would) == {"id": 1, "day": 2}
    with raises(NotFoundError, "TABLE_UNKNOWN"):
        client.get_table(name)
    table = client.create_table(orders(name))
    before = (client.get_table(name), stubs.list_txns(), stubs.list_versions(table.table_id))
    with raises(AlreadyExistsError, "TABLE_EXISTS"):
        client.create_table(orders(name), validate_only=True)
    wider = client.create_table(orders(name, column("x", "int")), or_replace=True, validate_only=True)
    alteration = common_pb2.Alteration(schema_changes=[add_column("x", "int")])
    altered = client.alter_table(table.table_id, alteration, validate_only=True)
    for found in (wider, altered.table):
        assert (ids(found), found.schema_version) == ({"id": 1, "day": 2, "x": 3}, 2)
    with raises(InvalidError, "COLUMN_UNKNOWN"):
        client.alter_table(table.table_id, common_pb2.Alteration(schema_changes=[drop_column("x")]), validate_only=True)
    assert (client.get_table(name), stubs.list_txns(), stubs.list_versions(table.table_id)) == before


# -- restarts ----------------------------------------------------------------------------------------------------


def test_all_of_it_survives_a_kill(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, _):
        with MetaClient(server.address) as client:
            client.create_namespace("a", properties={"user.x": "y"})
            client.create_namespace("gone")
            client.drop_namespace("gone")
            table = client.create_table(orders("a.t", column("n", "struct<x:int>")))
            client.alter_columns(table.table_id, drop_column("n"), comment_column("id", "a number"))
            dropped = client.create_table(orders("a.d"))
            client.drop_table(dropped.table_id)
            before = read_all(client, table.table_id)
        server.kill()
        server.start()
        with MetaClient(server.address) as client:
            assert read_all(client, table.table_id) == before
            with raises(NotFoundError, "NAMESPACE_UNKNOWN"):
                client.create_table(orders("gone.t"))
            again = client.alter_columns(table.table_id, add_column("n", "struct<x:int>"))
            assert (ids(again)["n"], ids(again)["n.x"], again.schema_version) == (5, 6, 3)
            client.undrop_table(dropped.table_id)
            server.kill()
            server.start()
            assert client.get_table("a.d").table_id == dropped.table_id
            assert client.find_dropped_tables("a.d") == []


def test_a_folder_of_before_namespaces_opens(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "data-v1", tmp_path / "db")
    with service(tmp_path / "db") as (server, _), MetaClient(server.address) as client:
        assert [one.name for one in client.list_namespaces()] == ["shop"]
        table = client.get_table("shop.rows", schema_version=1)
        assert ids(table) == {"id": 1, "day": 2}
        assert [one.schema_version for one in client.list_schemas(table.table_id)] == [1]
        altered = client.alter_columns(table.table_id, add_column("x", "int"))
        assert ids(altered) == {"id": 1, "day": 2, "x": 3}
        client.create_table(orders("shop.more"))


def read_all(client: MetaClient, table_id: str) -> list[object]:
    return [
        list(client.list_namespaces()),
        list(client.list_tables(include_dropped=True)),
        list(client.list_schemas(table_id)),
        client.get_table(table_id=table_id, schema_version=1),
    ]


@pytest.mark.parametrize("keyed", [False, True])
def test_the_table_says_what_its_profile_asks_of_writers(client: MetaClient, keyed: bool) -> None:
    found = {}
    for profile in ("maxcompute", "delta_serializable", "delta_write_serializable", "row_level"):
        named = catalog_pb2.Column(name="id", type="bigint", nullable=False)
        wanted = catalog_pb2.Table(name=f"asks_{keyed}_{profile}", columns=[named], profile=profile)
        if keyed:
            wanted.primary_key.append("id")
            wanted.buckets = 1
        made = client.create_table(wanted)
        rules = client.get_table(table_id=made.table_id).rules
        assert made.rules == rules
        found[profile] = {field.name for field, value in rules.ListFields() if value}
    by_files = {"counts_reads", "counts_key_lookups", "takes_custom"}
    assert found == {
        "maxcompute": set(),
        "delta_serializable": by_files,
        "delta_write_serializable": by_files,
        "row_level": {"counts_reads", "wants_keys"} if keyed else {"counts_reads"},
    }
    change = common_pb2.Alteration(profile="row_level")
    altered = client.alter_table(client.get_table(f"asks_{keyed}_maxcompute").table_id, change)
    assert altered.table.rules == catalog_pb2.WriteRules(counts_reads=True, wants_keys=keyed)
