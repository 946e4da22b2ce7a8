"""PlanScan as the only call of a read: with a pin, metadata and inlined rows, of several tables at one instant."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from metaservice.client import InvalidError, MetaClient, NotFoundError, add_column
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from tests.integration.service import Service, Stubs, service, wait_until
from worker.arrow.scan.inlined_rows import content_of, rows_in


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Stubs, MetaClient]]:
    folder = tmp_path_factory.mktemp("one_call")
    audit = folder / "audit.jsonl"
    with (
        service(folder / "db", "--audit-file", str(audit)) as (server, stubs),
        MetaClient(server.address, principal="ann") as client,
    ):
        yield server, stubs, client


@pytest.fixture
def client(served: tuple[Service, Stubs, MetaClient]) -> MetaClient:
    return served[2]


def made(client: MetaClient, name: str) -> str:
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="string")]
    return client.create_table(catalog_pb2.Table(name=name, columns=columns, partition_columns=["day"])).table_id


def inlined(txn_id: str, number: int, day: str = "1") -> common_pb2.DataFile:
    content = content_of(pa.table({"id": [number], "day": [day]}))
    value = common_pb2.Value(text=day)
    return common_pb2.DataFile(
        path=f"{txn_id}/{number}",
        partition=common_pb2.Partition(values=[common_pb2.PartitionValue(column="day", value=value)]),
        kind=common_pb2.FILE_KIND_INLINED,
        rows=1,
        bytes=len(content),
        content=content,
    )


def append(client: MetaClient, table_id: str, *numbers: int) -> None:
    txn_id = uuid7()
    client.append(table_id, [inlined(txn_id, number, str(number % 2)) for number in numbers], txn_id=txn_id)


def ids_in(parts: list[read_pb2.PlanScanResponse]) -> list[int]:
    files = [entry.file for part in parts for entry in part.entries]
    assert all(file.inlined and file.content for file in files)
    return sorted(one for file in files for one in rows_in(file.content).column("id").to_pylist())


def equal(column: str, value: common_pb2.Value) -> common_pb2.Predicate:
    compare = common_pb2.Compare(column=column, comparison=common_pb2.COMPARISON_EQUAL, value=value)
    return common_pb2.Predicate(compare=compare)


def pins_of(client: MetaClient, table_id: str) -> dict[str, int]:
    return {one.pin_id: one.version for one in client.list_pins() if one.table_id == table_id}


@pytest.mark.parametrize("without_stats", [False, True])
def test_a_plan_brings_metadata_rows_and_a_pin(client: MetaClient, without_stats: bool) -> None:
    table_id = made(client, f"whole_{without_stats}")
    append(client, table_id, 1, 2, 3)
    pin_id = uuid7()

    def plan() -> list[read_pb2.PlanScanResponse]:
        on_one = equal("day", common_pb2.Value(text="1"))
        whole = client.plan_scan(
            table_id, predicate=on_one, pin_id=pin_id, with_tables=True, with_rows=True, without_stats=without_stats
        )
        return list(whole)

    first, *rest = plan()
    assert first.table == client.get_table(table_id=table_id)
    assert (first.version, first.table_id, ids_in([first, *rest])) == (1, "", [1, 3])
    assert first.lease_ms > 0
    assert pins_of(client, table_id) == {pin_id: 1}
    append(client, table_id, 5)
    client.alter_columns(table_id, add_column("note", "string"))
    again = plan()
    assert (again[0].version, ids_in(again), again[0].lease_ms) == (1, [1, 3], first.lease_ms), "the pin was renewed"
    assert [one.name for one in again[0].table.columns] == ["id", "day"]
    assert client.renew_pin(pin_id) == first.lease_ms
    client.unpin(pin_id)
    with pytest.raises(NotFoundError, match="PIN_UNKNOWN"):
        client.renew_pin(pin_id)


def test_a_plain_plan_has_nothing_of_this(client: MetaClient) -> None:
    table_id = made(client, "plain")
    append(client, table_id, 1)
    (part,) = client.plan_scan(table_id)
    assert not part.HasField("table")
    assert (part.lease_ms, part.table_id, part.entries[0].file.content) == (0, "", b"")


def test_tables_are_planned_at_one_instant(client: MetaClient) -> None:
    ids = [made(client, name) for name in ("left", "right")]
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            intents = [transaction_pb2.TableIntent(table_id=one, operation=common_pb2.OPERATION_INSERT) for one in ids]
            with client.begin(intents) as txn:
                changes = [common_pb2.Change(table_id=one, files=[inlined(f"{txn.txn_id}", number)]) for one in ids]
                txn.commit(changes)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for at in range(20):
            pin_id = uuid7() if at % 2 else ""
            more = [read_pb2.TableScan(table_id=ids[1], predicate=equal("day", common_pb2.Value(text="1")))]
            parts = list(client.plan_scan(ids[0], pin_id=pin_id, with_rows=True, with_tables=True, more=more))
            by_table = {one: [part for part in parts if part.table_id == one] for one in ids}
            left, right = (ids_in(by_table[one]) for one in ids)
            assert left == right
            assert [by_table[one][0].table.name for one in ids] == ["left", "right"]
            assert [part.lease_ms > 0 for part in parts] == [bool(pin_id), *([False] * (len(parts) - 1))]
            if pin_id:
                client.unpin(pin_id)
    finally:
        stop.set()
        writer.join()


def test_a_refused_plan_leaves_no_pin(client: MetaClient) -> None:
    table_id = made(client, "refused")
    pin_id = uuid7()
    with pytest.raises(InvalidError, match="COLUMN_UNKNOWN"):
        list(client.plan_scan(table_id, predicate=equal("nope", common_pb2.Value(integer=1)), pin_id=pin_id))
    assert pins_of(client, table_id) == {}
    list(client.plan_scan(table_id, pin_id=pin_id))
    with pytest.raises(InvalidError, match="COLUMN_UNKNOWN"):
        list(client.plan_scan(table_id, predicate=equal("nope", common_pb2.Value(integer=1)), pin_id=pin_id))
    assert pins_of(client, table_id) == {pin_id: 0}, "it was there before"
    for named in (read_pb2.TableScan(table_id=table_id), read_pb2.TableScan(table_id=table_id, version=9)):
        with pytest.raises(InvalidError, match=r"TABLE_TWICE|VERSION_IN_FUTURE"):
            list(client.plan_scan(table_id, pin_id=uuid7(), more=[named]))


def test_a_plan_that_pins_is_a_change_in_the_audit(
    served: tuple[Service, Stubs, MetaClient], client: MetaClient
) -> None:
    table_id = made(client, "audited")
    pin_id = uuid7()
    list(client.plan_scan(table_id))
    list(client.plan_scan(table_id, pin_id=pin_id))
    client.unpin(pin_id)  # the audit keeps the order
    path = served[0].folder.parent / "audit.jsonl"
    wait_until(lambda: '"ReadService/Unpin"' in path.read_text(encoding="utf-8").rpartition(pin_id)[0])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    mine = [one for one in lines if {"id": table_id, "name": "audited"} in one.get("tables", [])]
    assert [(one["method"], one["name"], one["declared"]) for one in mine if one["method"].startswith("Read")] == [
        ("ReadService/PinVersions", pin_id, "ann")
    ]
