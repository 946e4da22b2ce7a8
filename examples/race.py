"""A late writer meets an overwrite: `python -m examples.race TABLE`, in the folder that LAKETX_FOLDER names.

The table has columns day (date) and amount (decimal) and is partitioned by day. No data file is written.
"""

from __future__ import annotations

import os
import sys
from datetime import date

from metaservice.client import ConflictError, MetaClient, Transaction
from metaservice.client.folder_service import open_folder
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

EPOCH = date(1970, 1, 1)


def partition(day: str) -> common_pb2.Partition:
    value = common_pb2.Value(date=(date.fromisoformat(day) - EPOCH).days)
    return common_pb2.Partition(values=[common_pb2.PartitionValue(column="day", value=value)])


def stage(txn: Transaction, table: catalog_pb2.Table, day: str, *amounts: tuple[str, str]) -> None:
    """A file for each pair: its smallest and largest amount."""
    (column_id,) = [column.column_id for column in table.columns if column.name == "amount"]
    files = []
    for letter, (low, high) in zip("abc", amounts, strict=False):
        path = f"{txn.txn_id}/{day[-2:]}{letter}.parquet"
        file = common_pb2.DataFile(path=path, partition=partition(day), rows=1_000, bytes=1 << 20)
        bounds = common_pb2.Value(decimal=low), common_pb2.Value(decimal=high)
        file.stats.add(column_id=column_id, min=bounds[0], max=bounds[1], nulls=0)
        files.append(file)
    txn.register(table.table_id, files)


def begin(client: MetaClient, table: catalog_pb2.Table, operation: str, message: str) -> Transaction:
    kind = common_pb2.Operation.Value(f"OPERATION_{operation}")
    return client.begin([transaction_pb2.TableIntent(table_id=table.table_id, operation=kind)], commit_message=message)


def run(ana: MetaClient, bo: MetaClient, name: str) -> None:
    table = ana.get_table(name)
    change = common_pb2.Change(table_id=table.table_id)
    with begin(ana, table, "INSERT", "november") as load:
        for day in ("2026-11-20", "2026-11-21"):
            stage(load, table, day, ("1", "99"), ("100", "900"))
        load.commit([change])
    with begin(ana, table, "INSERT", "late orders") as late, begin(ana, table, "INSERT", "a new day") as other:
        stage(late, table, "2026-11-21", ("5", "7"))
        stage(other, table, "2026-11-22", ("1", "250"))
        with begin(bo, table, "OVERWRITE", "rebuild of a day") as rebuild:
            stage(rebuild, table, "2026-11-21", ("1", "500"))
            rebuilt = common_pb2.Change(table_id=table.table_id)
            rebuilt.scope.named.partitions.append(partition("2026-11-21"))
            rebuild.commit([rebuilt])
        other.commit([change])
        try:
            late.commit([change])
        except ConflictError:
            print(f"lost: {late.txn_id}")


def main() -> None:
    folder = os.environ["LAKETX_FOLDER"]
    with open_folder(folder, principal="ana") as ana, open_folder(folder, principal="bo") as bo:
        run(ana, bo, sys.argv[1])


if __name__ == "__main__":
    main()
