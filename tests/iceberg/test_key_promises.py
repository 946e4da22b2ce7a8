"""No door at which properties are set takes the promise that a table's keys are unique across partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from laketx import Lake, Table
from metaservice.cli import command_line
from metaservice.client import BlockedError, keys_checked
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.iceberg.servers import Server

NAME: Final = "shop.promised"
FAKE: Final = {"key.scope.checked": "1:4"}
COLUMNS: Final = "id bigint, day string"


def made(lake: Lake, name: str, **properties: str) -> Table:
    return lake.create_table(
        name,
        COLUMNS,
        primary_key=["id"],
        partition_by=["day"],
        buckets=4,
        key_scope="partition",
        properties=properties,
    )


def committed(lake: Lake, table: Table, alteration: common_pb2.Alteration) -> None:
    """An ALTER in a transaction."""
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_ALTER)
    with lake.client.begin([intent]) as txn:
        txn.commit([common_pb2.Change(table_id=table.table_id, alteration=alteration)])


def replaced(lake: Lake, name: str) -> None:
    wanted = lake.table(NAME).meta
    wanted = type(wanted)(
        name=name,
        columns=wanted.columns,
        partition_columns=["day"],
        primary_key=["id"],
        buckets=4,
        properties={"key.scope": "partition", **FAKE},
    )
    lake.client.create_table(wanted, or_replace=True)


SET: Final = common_pb2.Alteration(set_properties=FAKE)
UNSET: Final = common_pb2.Alteration(remove_properties=list(FAKE))
BOTH: Final = common_pb2.Alteration(set_properties={"key.scope": "table", **FAKE})
DOORS: Final[dict[str, Callable[[Lake, Table], Any]]] = {
    "create in Python": lambda lake, _: made(lake, "shop.faked", **FAKE),
    "create or replace a new one": lambda lake, _: replaced(lake, "shop.faked"),
    "create or replace": lambda lake, _: replaced(lake, NAME),
    "alter in Python": lambda _, table: table.set_properties(**FAKE),
    "alter": lambda lake, table: lake.client.alter_table(table.table_id, SET),
    "alter, dry": lambda lake, table: lake.client.alter_table(table.table_id, SET, validate_only=True),
    "alter with the scope": lambda lake, table: lake.client.alter_table(table.table_id, BOTH),
    "remove": lambda lake, table: lake.client.alter_table(table.table_id, UNSET),
    "alter in a transaction": lambda lake, table: committed(lake, table, SET),
    "remove in a transaction": lambda lake, table: committed(lake, table, UNSET),
    "alter on a branch": lambda lake, _: lake.client.alter_table(lake.table(f"{NAME}@dev").table_id, SET),
}


def test_no_door_takes_how_far_a_check_is(
    lake: Lake, server: Server, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = made(lake, NAME)
    table.upsert([{"id": 1, "day": "a"}, {"id": 1, "day": "b"}])
    lake.branch("dev")
    lake.client.alter_table(table.table_id, common_pb2.Alteration(set_properties={"key.scope": "table"}))
    before = table.refresh().meta
    for door, enter in DOORS.items():
        with pytest.raises(BlockedError, match="PROPERTY_FIXED"):
            enter(lake, table)
        assert table.refresh().meta == before, door
    for words in (("--set", "key.scope.checked=1:4"), ("--unset", "key.scope.checked")):
        capfd.readouterr()
        assert command_line.run(("--folder", str(folder), "table", "alter", NAME, *words), {}) != 0
        assert "PROPERTY_FIXED" in capfd.readouterr().err
    for update in ({"action": "set-properties", "updates": FAKE}, {"action": "remove-properties", "removals": [*FAKE]}):
        body = {"requirements": [], "updates": [update]}
        server.post(f"/v1/v2/namespaces/shop/tables/{NAME.partition('.')[2]}", body)  # kept among the client's own
        assert keys_checked(table.refresh().meta) == (1, 0)
    assert "key.scope.checked" not in lake.clone_table(NAME, "shop.cloned", version=1).meta.properties
    assert keys_checked(lake.clone_table(NAME, "shop.cloned_now").meta) == (1, 0)
    assert "shop.faked" not in [one.name for one in lake.client.list_tables()]
    assert "checking" not in table.refresh().ddl()
