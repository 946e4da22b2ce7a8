"""What clients say that they know, over the wire: raw stubs say nothing, as clients of earlier releases do."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import grpc
import pytest

from metaservice.client import BlockedError, InvalidError, MetaClient, default_column, uuid7
from metaservice.client.tracing import Metadata
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2, read_pb2, transaction_pb2
from protos.laketx.v1.maintenance_pb2_grpc import MaintenanceServiceStub
from tests.integration.service import PRINCIPAL, TIMEOUT_S, Stubs, code_of, facts_of, reason_of, service

SAYS = (("x-laketx-features", "other,inlined_rows"),)
INLINED, INLINED_DELTA = common_pb2.FILE_KIND_INLINED, common_pb2.FILE_KIND_INLINED_DELTA
PLAIN, DELTA = common_pb2.FILE_KIND_UNSPECIFIED, common_pb2.FILE_KIND_DELTA
ID = catalog_pb2.Column(name="id", type="bigint", nullable=True)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stubs, MetaClient]]:
    with service(tmp_path_factory.mktemp("features") / "db") as (running, found), MetaClient(running.address) as client:
        yield found, client


def append(
    client: MetaClient, table_id: str, kind: common_pb2.FileKind.ValueType = INLINED, content: bytes = b"rows"
) -> str:
    txn_id = uuid7()
    file = common_pb2.DataFile(path=f"{txn_id}/f", rows=1, bytes=len(content), content=content, kind=kind)
    client.append(table_id, [file], txn_id=txn_id)
    return file.path


@pytest.mark.parametrize("keyed", [False, True])
def test_inlined_rows_are_stored_as_files_of_the_plain_kinds(stubs: tuple[Stubs, MetaClient], keyed: bool) -> None:
    _, client = stubs
    wanted = catalog_pb2.Table(name=f"kinds_{keyed}", columns=[catalog_pb2.Column(name="id", type="bigint")])
    if keyed:
        wanted.primary_key.append("id")
        wanted.buckets = 1
    table_id = client.create_table(wanted).table_id
    plain, inlined, other = (DELTA, INLINED_DELTA, INLINED) if keyed else (PLAIN, INLINED, INLINED_DELTA)
    for kind in (plain, inlined):  # the plain ones as clients sent them before there were other kinds
        append(client, table_id, kind)
    found = [(one.file.kind, one.file.inlined, one.file.content) for one in client.list_files(table_id)]
    assert found == [(plain, True, b"")] * 2
    with pytest.raises(InvalidError, match="FILE_KIND_INVALID"):
        append(client, table_id, other)
    with pytest.raises(InvalidError, match="INLINED_INVALID"):
        append(client, table_id, inlined, b"")


def test_a_reader_that_does_not_know_inlined_rows_is_refused_them(stubs: tuple[Stubs, MetaClient]) -> None:
    raw, client = stubs
    table_id = client.create_table(catalog_pb2.Table(name="read", columns=[ID])).table_id
    txn_id = uuid7()
    client.append(table_id, [common_pb2.DataFile(path=f"{txn_id}/f", rows=1, bytes=1)], txn_id=txn_id)
    assert len(raw.list_files(table_id)) == 1
    append(client, table_id)
    whole = read_pb2.PlanScanRequest(table_id=table_id)
    explained = read_pb2.PlanScanRequest(table_id=table_id, without_stats=True, explain=True)
    calls: tuple[Callable[[Metadata], Iterable[object]], ...] = (
        lambda said: raw.reads.ListFiles(read_pb2.ListFilesRequest(table_id=table_id), metadata=said),
        lambda said: raw.reads.PlanScan(whole, metadata=said),
        lambda said: raw.reads.PlanScan(explained, metadata=said),
        lambda said: raw.reads.PlanChanges(read_pb2.PlanChangesRequest(table_id=table_id), metadata=said),
    )
    for call in calls:
        with pytest.raises(grpc.RpcError) as refused:
            list(call(()))
        assert code_of(refused.value) is grpc.StatusCode.FAILED_PRECONDITION
        assert (reason_of(refused.value), facts_of(refused.value)) == ("CLIENT_TOO_OLD", {"lacks": "inlined_rows"})
        assert list(call(SAYS))
    assert len(raw.list_files(table_id, version=1)) == 1, "a version without such rows"


def test_a_worker_that_does_not_know_inlined_rows_gets_other_tasks(stubs: tuple[Stubs, MetaClient]) -> None:
    raw, client = stubs
    table_id = client.create_table(catalog_pb2.Table(name="work", columns=[ID])).table_id
    for _ in range(2):
        append(client, table_id)
    client.request_tasks(table_id, common_pb2.OPERATION_MINOR_COMPACT)
    tasks = MaintenanceServiceStub(raw.channel)

    def claim(*said: tuple[str, str]) -> maintenance_pb2.ClaimTaskResponse:
        request = maintenance_pb2.ClaimTaskRequest(request_id=uuid7(), worker=PRINCIPAL)
        return tasks.ClaimTask(request, timeout=TIMEOUT_S, metadata=said)

    assert not claim().HasField("task")
    assert claim(*SAYS).task.table_id == table_id


def test_a_writer_that_does_not_know_defaults_adds_no_rows(stubs: tuple[Stubs, MetaClient]) -> None:
    raw, client = stubs
    table_id = client.create_table(catalog_pb2.Table(name="written", columns=[ID])).table_id
    client.alter_columns(table_id, default_column("id", "7"))
    for operation in (common_pb2.OPERATION_INSERT, common_pb2.OPERATION_OVERWRITE, common_pb2.OPERATION_MERGE):
        with pytest.raises(grpc.RpcError) as refused:
            raw.begin(table_id, operation=operation)
        assert (reason_of(refused.value), facts_of(refused.value)) == ("CLIENT_TOO_OLD", {"lacks": "column_defaults"})
        client.begin([transaction_pb2.TableIntent(table_id=table_id, operation=operation)]).abort()
    with pytest.raises(grpc.RpcError):
        raw.append(table_id)
    assert raw.begin(table_id, operation=common_pb2.OPERATION_DELETE)
    client.alter_columns(table_id, default_column("id", ""))
    assert raw.begin(table_id)


def test_a_client_that_does_not_know_images_of_single_columns_neither_writes_nor_reads_them(
    stubs: tuple[Stubs, MetaClient],
) -> None:
    raw, client = stubs
    wanted = catalog_pb2.Table(name="partial", columns=[catalog_pb2.Column(name="id", type="bigint")])
    wanted.primary_key.append("id")
    wanted.buckets = 1
    wanted.properties["merge.engine"] = "partial"
    table_id = client.create_table(wanted).table_id
    for operation in (common_pb2.OPERATION_INSERT, common_pb2.OPERATION_DELETE, common_pb2.OPERATION_MAJOR_COMPACT):
        with pytest.raises(grpc.RpcError) as refused:
            raw.begin(table_id, operation=operation)
        assert reason_of(refused.value) == "PARTIAL_IMAGES"
    txn_id = uuid7()
    image = common_pb2.DataFile(path=f"{txn_id}/f", rows=1, bytes=1, kind=DELTA, set_columns=[1])
    with pytest.raises(grpc.RpcError) as refused:
        raw.txns.Append(transaction_pb2.AppendRequest(txn_id=uuid7(), table_id=table_id, principal=PRINCIPAL))
    assert reason_of(refused.value) == "PARTIAL_IMAGES"
    client.append(table_id, [image], txn_id=txn_id)
    calls: tuple[Callable[[], Iterable[object]], ...] = (
        lambda: raw.reads.ListFiles(read_pb2.ListFilesRequest(table_id=table_id)),
        lambda: raw.reads.PlanScan(read_pb2.PlanScanRequest(table_id=table_id)),
        lambda: raw.reads.PlanScan(read_pb2.PlanScanRequest(table_id=table_id, with_rows=True), metadata=SAYS),
        lambda: raw.reads.PlanChanges(read_pb2.PlanChangesRequest(table_id=table_id)),
    )
    for call in calls:
        with pytest.raises(grpc.RpcError) as refused:
            list(call())
        assert reason_of(refused.value) == "PARTIAL_IMAGES"
    assert len(list(client.list_files(table_id))) == 1


def test_a_service_that_keeps_its_format_offers_nothing_that_needs_another(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--store-format", "1") as (running, _), MetaClient(running.address) as client:
        table_id = client.create_table(catalog_pb2.Table(name="t", columns=[ID])).table_id
        assert not client.offers("inlined_rows")
        with pytest.raises(BlockedError, match="FEATURE_NOT_OFFERED"):
            append(client, table_id)
        with pytest.raises(BlockedError, match="FEATURE_NOT_OFFERED"):
            client.alter_columns(table_id, default_column("id", "7"))
        assert client.get_status().store_format == 1


def test_clients_know_the_features_of_tables(stubs: tuple[Stubs, MetaClient]) -> None:
    raw, client = stubs
    table_id = client.create_table(catalog_pb2.Table(name="on", columns=[ID])).table_id
    client.alter_table(table_id, common_pb2.Alteration(add_features=["delete_sets", "row_ids"]))
    append(client, table_id)
    with pytest.raises(grpc.RpcError) as refused:
        raw.begin(table_id)
    assert (reason_of(refused.value), facts_of(refused.value)["lacks"]) == ("CLIENT_TOO_OLD", "delete_sets, row_ids")


def test_properties_of_delta_lake_mean_what_they_are_here(stubs: tuple[Stubs, MetaClient]) -> None:
    _, client = stubs
    said = {"delta.isolationLevel": "Serializable", "delta.columnMapping.mode": "name", "user.a": "b"}
    made = client.create_table(catalog_pb2.Table(name="of_delta", columns=[ID], properties=said))
    assert (made.profile, dict(made.properties), list(made.features)) == ("delta_serializable", {"user.a": "b"}, [])

    def altered(properties: dict[str, str], profile: str | None = None) -> catalog_pb2.Table:
        change = common_pb2.Alteration(set_properties=properties, profile=profile)
        return client.alter_table(made.table_id, change).table

    assert altered({"DELTA.isolationlevel": "writeSerializable"}).profile == "delta_write_serializable"
    assert list(altered({"delta.enableDeletionVectors": "true"}).features) == ["delete_sets"]
    assert altered({"delta.columnMapping.mode": "id"}).profile == "delta_write_serializable"
    for name, value, reason in (
        ("delta.isolationLevel", "SnapshotIsolation", "PROPERTY_INVALID"),
        ("delta.enableDeletionVectors", "false", "PROPERTY_INVALID"),
        ("delta.columnMapping.mode", "none", "PROPERTY_INVALID"),
        ("delta.logRetentionDuration", "interval 30 days", "PROPERTY_UNKNOWN"),
        ("delta.minReaderVersion", "3", "PROPERTY_UNKNOWN"),
    ):
        with pytest.raises(InvalidError, match=reason) as told:
            altered({name: value})
        assert len(told.value.message) > 40, "it says what to do"
    with pytest.raises(InvalidError, match="ALTERATION_INVALID"):
        altered({"delta.isolationLevel": "Serializable"}, profile="row_level")
    with pytest.raises(InvalidError, match="PROPERTY_UNKNOWN"):
        client.alter_table(made.table_id, common_pb2.Alteration(remove_properties=["delta.isolationLevel"]))
