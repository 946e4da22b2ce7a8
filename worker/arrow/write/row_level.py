"""The keys that a write declares to MetaService, so that it can be judged by rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow.parquet as pq

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.inlined_rows import rows_in
from worker.base.values import PartitionKey, partition_key
from worker.connection.write_rules import write_rules
from worker.files.arrow_types import column_field
from worker.files.bucket_hash import row_hashes
from worker.files.storage import storage

KEYS_MAX: Final = common_pb2.LIMIT_KEYS_NAMED  # more are judged by bucket


def key_sets(
    meta: catalog_pb2.Table, table_folder: str, files: Sequence[common_pb2.DataFile]
) -> list[common_pb2.KeySet]:
    """The keys in files that were just written; empty if the table wants none, or if there are too many."""
    if not write_rules(meta).wants_keys or not files or sum(file.rows for file in files) > KEYS_MAX:
        return []
    kinds = {column.name: column_field(column).type for column in meta.columns}
    found: dict[tuple[PartitionKey, int], common_pb2.KeySet] = {}
    for file in files:
        if file.content:
            keys = rows_in(file.content)
        else:
            lake, path = storage(f"{table_folder}/{file.path}")
            keys = pq.ParquetFile(path, filesystem=lake).read(list(meta.primary_key))
        hashes = row_hashes([keys.column(name).cast(kinds[name]) for name in meta.primary_key])
        place = (partition_key(file.partition), file.bucket)
        one = found.setdefault(place, common_pb2.KeySet(partition=file.partition, bucket=file.bucket))
        one.hashes.extend(hashes.tolist())
    return list(found.values())
