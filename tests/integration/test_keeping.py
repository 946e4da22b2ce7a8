"""Pins, the horizon and the purge list over the wire."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from metaservice.client import MetaClient, uuid7
from protos.laketx.v1 import admin_pb2, maintenance_pb2, read_pb2
from protos.laketx.v1.admin_pb2_grpc import AdminServiceStub
from protos.laketx.v1.maintenance_pb2_grpc import MaintenanceServiceStub
from protos.laketx.v1.read_pb2_grpc import ReadServiceStub
from tests.integration.keeping import FLAGS, new_table, overwrite
from tests.integration.service import TIMEOUT_S, Service, Stubs, code_of, reason_of, service, wait_until

CODE = grpc.StatusCode


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs]]:
    with service(tmp_path_factory.mktemp("keeping") / "db", *FLAGS) as found:
        yield found


@pytest.fixture
def client(running: tuple[Service, Stubs]) -> Iterator[MetaClient]:
    with MetaClient(running[0].address, principal="ann", client_name="tests") as found:
        yield found


def head_of(table_id: str) -> read_pb2.TableVersion:
    return read_pb2.TableVersion(table_id=table_id)


def is_gone(call: Callable[[], object]) -> bool:
    try:
        call()
    except grpc.RpcError as error:
        return (code_of(error), reason_of(error)) == (CODE.OUT_OF_RANGE, "VERSION_RETIRED")
    return False


def test_from_a_pin_to_a_confirmed_purge(running: tuple[Service, Stubs], client: MetaClient, tmp_path: Path) -> None:
    server, stubs = running
    table_id, other = new_table(client, "life", "0"), new_table(client, "other", "0")
    paths = [overwrite(client, table_id)]
    pin = client.pin([head_of(table_id), head_of(other)], lease_ms=600_000)
    assert [(one.table_id, one.version) for one in pin.tables] == [(table_id, 1), (other, 0)]
    paths += [overwrite(client, table_id) for _ in range(3)]
    wait_until(lambda: set(client.list_purgeable(table_id)) == set(paths[1:3]))
    assert [one.file.path for one in stubs.list_files(table_id, 1)] == paths[:1]
    assert is_gone(lambda: stubs.list_files(table_id, 2))
    held = [(one.table_id, one.version, one.principal.name) for one in client.list_pins(page_size=1)]
    assert held == [(table_id, 1, "ann"), (other, 0, "ann")]

    server.kill()
    server.start()
    assert client.renew_pin(pin.pin_id) == 600_000
    assert set(client.list_purgeable(table_id)) == set(paths[1:3])
    client.confirm_purged(table_id, paths[1:3])
    client.confirm_purged(table_id, paths[1:3])
    assert list(client.list_purgeable(table_id)) == []
    client.unpin(pin.pin_id)
    client.unpin(pin.pin_id)
    wait_until(lambda: list(client.list_purgeable(table_id)) == paths[:1])
    assert table_id in list(client.list_purgeable_tables(page_size=1))
    assert [one.file.path for one in stubs.list_files(table_id)] == paths[3:]
    assert [one.version for one in client.list_versions(table_id)] == [4]


def test_a_dropped_tables_files_are_listed(client: MetaClient) -> None:
    table_id = new_table(client, "dropped", "0")
    path = overwrite(client, table_id)
    client.drop_table(table_id)
    wait_until(lambda: list(client.list_purgeable(table_id)) == [path])
    assert table_id in list(client.list_purgeable_tables())


def check_refused(call: Callable[[], object], code: grpc.StatusCode, reason: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert (code_of(caught.value), reason_of(caught.value)) == (code, reason)


def test_bad_pins_are_refused(running: tuple[Service, Stubs], client: MetaClient) -> None:
    table_id = new_table(client, "pinned", "24")
    reads = ReadServiceStub(running[1].channel)
    at = read_pb2.TableVersion
    cases = [
        ("x", [head_of(table_id)], 0, CODE.INVALID_ARGUMENT, "PIN_ID_INVALID"),
        (uuid7(), [], 0, CODE.INVALID_ARGUMENT, "TABLES_INVALID"),
        (uuid7(), [head_of(table_id)] * 65, 0, CODE.INVALID_ARGUMENT, "TABLES_INVALID"),
        (uuid7(), [head_of(table_id)] * 2, 0, CODE.INVALID_ARGUMENT, "TABLE_TWICE"),
        (uuid7(), [head_of("nope")], 0, CODE.INVALID_ARGUMENT, "TABLE_ID_INVALID"),
        (uuid7(), [head_of(uuid7())], 0, CODE.NOT_FOUND, "TABLE_UNKNOWN"),
        (uuid7(), [at(table_id=table_id, version=-1)], 0, CODE.INVALID_ARGUMENT, "VERSION_INVALID"),
        (uuid7(), [at(table_id=table_id, version=9)], 0, CODE.INVALID_ARGUMENT, "VERSION_IN_FUTURE"),
        (uuid7(), [head_of(table_id)], -1, CODE.INVALID_ARGUMENT, "COUNT_OUT_OF_RANGE"),
    ]
    for pin_id, tables, lease_ms, code, reason in cases:
        asked = read_pb2.PinVersionsRequest(pin_id=pin_id, tables=tables, lease_ms=lease_ms)
        check_refused(partial(reads.PinVersions, asked, timeout=TIMEOUT_S), code, reason)
    renew, unpin = read_pb2.RenewPinRequest(pin_id=uuid7()), read_pb2.UnpinRequest(pin_id="x")
    check_refused(lambda: reads.RenewPin(renew, timeout=TIMEOUT_S), CODE.NOT_FOUND, "PIN_UNKNOWN")
    check_refused(lambda: reads.Unpin(unpin, timeout=TIMEOUT_S), CODE.INVALID_ARGUMENT, "PIN_ID_INVALID")
    assert all(pin.table_id != table_id for pin in client.list_pins())


def test_leases_are_granted_within_bounds(client: MetaClient) -> None:
    table_id = new_table(client, "leased", "24")
    for asked_ms, granted_ms in ((1, 1_000), (0, 60_000), (10**12, 3_600_000)):
        pin = client.pin([head_of(table_id)], lease_ms=asked_ms)
        assert pin.lease_ms == granted_ms
        assert client.renew_pin(pin.pin_id) == granted_ms
        client.unpin(pin.pin_id)


def test_bad_lists_are_refused(running: tuple[Service, Stubs], client: MetaClient) -> None:
    admin, purge = AdminServiceStub(running[1].channel), MaintenanceServiceStub(running[1].channel)
    table_id = new_table(client, "listed", "24")
    bad = CODE.INVALID_ARGUMENT
    for token in ("eA==", "eDo="):
        pins = admin_pb2.ListPinsRequest(page_token=token)
        check_refused(partial(admin.ListPins, pins, timeout=TIMEOUT_S), bad, "PAGE_TOKEN_INVALID")
    for size in (-1, 1_001):
        pins = admin_pb2.ListPinsRequest(page_size=size)
        check_refused(partial(admin.ListPins, pins, timeout=TIMEOUT_S), bad, "PAGE_SIZE_INVALID")
        paths = maintenance_pb2.ListPurgeableRequest(table_id=table_id, page_size=size)
        check_refused(partial(purge.ListPurgeable, paths, timeout=TIMEOUT_S), bad, "PAGE_SIZE_INVALID")
    many = maintenance_pb2.ConfirmPurgedRequest(table_id=table_id, paths=["a/b"] * 1_001)
    check_refused(lambda: purge.ConfirmPurged(many, timeout=TIMEOUT_S), bad, "TOO_MANY_PATHS")
    empty = maintenance_pb2.ConfirmPurgedRequest(table_id=table_id, paths=[""])
    check_refused(lambda: purge.ConfirmPurged(empty, timeout=TIMEOUT_S), bad, "PATH_INVALID")


def test_a_retention_that_is_no_number_is_refused(client: MetaClient) -> None:
    for hours in ("-1", "soon", "1e3", "99999999"):
        with pytest.raises(Exception, match="PROPERTY_INVALID"):
            new_table(client, "never", hours)
