"""Whether a key that is unique across partitions is there twice: the promise that its writers and the decider keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.version_rows import VersionRows
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView


def keys_twice(
    client: MetaClient, warehouse: str, table: catalog_pb2.Table, version: int, most: int
) -> Iterator[tuple[dict[str, Any], int]]:
    """Up to so many keys that have several rows at the version, and how many rows. All keys are in memory."""
    then = TableView(Connection(client, warehouse, None), table).at(version)
    reader, names = VersionRows(then, version), list(then.meta.primary_key)
    rows = pa.concat_tables([reader.empty(names), *reader.tables(names, None, float("inf"))])
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    counted = frame.group_by(names).len("rows").filter(pl.col("rows") > 1).sort(names).head(most)
    for row in counted.iter_rows():
        yield dict(zip(names, row[:-1], strict=True)), row[-1]
