"""Files that are registered where they lie."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laketx import Table
from protos.laketx.v1 import common_pb2, transaction_pb2


def import_file(table: Table, path: Path, rows: pa.Table, *, row_order: str = "", **partition: int) -> None:
    """Registers a file where it lies."""
    pq.write_table(rows, path)
    values = [
        common_pb2.PartitionValue(column=name, value=common_pb2.Value(integer=value))
        for name, value in partition.items()
    ]
    file = common_pb2.DataFile(path=str(path), rows=len(rows), bytes=path.stat().st_size, external=True)
    file.row_order = row_order
    file.partition.values.extend(values)
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_INSERT)
    with table.view.client.begin([intent]) as txn:
        txn.commit([common_pb2.Change(table_id=table.table_id, files=[file])])
