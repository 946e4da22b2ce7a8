"""Sums of a table's files that are carried from version to version are those of a new count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from laketx import Table, connect
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.console.table_contents import CARRIED_MAX, Contents, Part, carry, contents_of


def rows(first: int, count: int, day: str) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "day": [day] * count})


def sums(contents: Contents) -> tuple[Part, list[Part]]:
    return contents.whole, contents.partitions


def newest(table: Table) -> catalog_pb2.Table:
    return table.lake.client.get_table(table_id=table.table_id)


def counted(table: Table) -> Contents:
    facts = newest(table)
    return contents_of(facts, table.lake.client.list_files(table.table_id, version=facts.head_version))


def test_contents_are_carried_over_every_kind_of_commit(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("shop.orders", "id bigint, day string", partition_by=["day"])
        for at in range(6):
            table.append(rows(at * 100, 100, f"2026-11-2{at % 2}"))
        client, kept = lake.client, counted(table)
        changes: list[Callable[[], object]] = [
            lambda: table.append(rows(900, 1, "2026-11-29")),
            lambda: table.delete("id < 150"),
            lambda: table.compact("minor"),
            lambda: table.append(rows(700, 50, "2026-11-20")),
            lambda: table.compact("major"),
            lambda: table.delete("day = '2026-11-29'"),
            lambda: table.restore(version=3),
        ]
        for change in changes:
            before = newest(table).head_version
            change()
            carried = carry(client, newest(table), kept)
            assert newest(table).head_version > before
            assert carried is not None, "it is not counted anew"
            assert sums(carried) == sums(counted(table))
            kept = carried
        assert kept.whole.rows == 300
        wrong = counted(table)
        table.append(rows(0, 1, "2026-11-20"))
        wrong.time_us += 1
        assert carry(client, newest(table), wrong) is None, "of a history before a restore of the store"
        wrong.time_us -= 1
        wrong.version -= CARRIED_MAX
        assert carry(client, newest(table), wrong) is None, "too far"
        properties = {"write.file_bytes_target": "1000000"}
        client.alter_table(table.table_id, common_pb2.Alteration(set_properties=properties))
        assert carry(client, newest(table), kept) is None, "what is small is something else now"
