"""A small lake that has something on every page: a race, a compaction, a branch, holders of old versions, tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from laketx import ConflictError, Lake, Table, connect
from protos.laketx.v1 import common_pb2, transaction_pb2

DAYS: Final = ("2026-11-24", "2026-11-25", "2026-11-26")


@dataclass(frozen=True, slots=True)
class Filled:
    """Ids of what the pages show."""

    orders: str
    items: str
    lost: str  # a transaction that lost a race
    open: str  # one that is open


def rows(first: int, count: int, day: str) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "amount": [each % 97 + 0.5 for each in ids], "day": [day] * count}
    )


def fill(folder: Path) -> Filled:
    with connect(folder) as lake:
        return fill_lake(lake)


def fill_lake(lake: Lake, commits: int = 12) -> Filled:
    client = lake.client
    client.create_namespace("shop")
    orders = lake.create_table(
        "shop.orders",
        "id bigint, amount double, day string",
        partition_by=["day"],
        comment="Orders of the shop, by day",
    )
    items = lake.create_table("shop.items", "id bigint, name string")
    lake.create_table("shop.prices", "id bigint")
    for at in range(commits):
        orders.append(rows(at * 2_000, 2_000, DAYS[at % 3]), message=f"load {at} of the nightly job")
    orders.delete("id < 40", message="forget the first customers")
    orders.compact("minor")
    for at in range(3):
        items.append(pa.table({"id": pa.array([at], pa.int64()), "name": [f"item {at}"]}))
    lost = lose_race(orders)
    client.create_tag(orders.table_id, "month-end", version=5, comment="closed books")
    client.create_cursor(orders.table_id, "billing", version=8)
    branch = lake.branch("etl", comment="tries another price")
    branch.table("shop.prices").append(pa.table({"id": pa.array([7], pa.int64())}))
    client.request_tasks(items.table_id, common_pb2.OPERATION_MAJOR_COMPACT)
    intent = transaction_pb2.TableIntent(table_id=orders.table_id, operation=common_pb2.OPERATION_INSERT)
    waiting = client.begin([intent], commit_message="waits for its files")
    return Filled(orders.table_id, items.table_id, lost, waiting.txn_id)


def lose_race(orders: Table) -> str:
    """An INSERT and an UPDATE that begin before another INSERT of their partition, and commit after it."""
    client, table_id = orders.lake.client, orders.table_id
    begun = {
        operation: client.begin(
            [transaction_pb2.TableIntent(table_id=table_id, operation=operation)], commit_message="comes too late"
        )
        for operation in (common_pb2.OPERATION_UPDATE, common_pb2.OPERATION_INSERT)
    }
    orders.append(rows(90_000, 1_500, DAYS[2]), message="late arrivals")
    value = common_pb2.PartitionValue(column="day", value=common_pb2.Value(text=DAYS[2]))
    partition = common_pb2.Partition(values=[value])
    for operation, txn in begun.items():
        file = common_pb2.DataFile(path=f"{txn.txn_id}/late.parquet", partition=partition, rows=1, bytes=1)
        read = [common_pb2.Read(partitions=[partition])] if operation == common_pb2.OPERATION_UPDATE else []
        try:
            txn.commit([common_pb2.Change(table_id=table_id, files=[file], reads=read)])
        except ConflictError:
            continue
        raise AssertionError("it has to lose")
    return begun[common_pb2.OPERATION_INSERT].txn_id
