"""Whether a key that is unique across partitions is there twice: the promise that its writers and the decider keep.

Their key index is checked, too: a writer believes what a whole layer says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas, entries_of
from worker.arrow.scan.version_rows import VersionRows
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.files.key_index import Images, KeyIndex
from worker.services.key_indexes import images_of


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


def index_problems(
    client: MetaClient, warehouse: str, table: catalog_pb2.Table, version: int
) -> Iterator[tuple[str, str]]:
    """The damaged layers of the key index; those that are wrong about a file of the version, and that file."""
    then = TableView(Connection(client, warehouse, None), table).at(version)
    index, written = KeyIndex(then.folder, then.meta), WrittenSchemas(then)
    files = {
        entry.file.path: ScannedFile(entry.file, entry.data_version)
        for entry in entries_of(then, version)
        if entry.HasField("file")
    }
    yield from ((path, "") for path in index.damaged)
    for layers in index.layers.values():
        for layer in layers:
            images = index.images(layer)
            if images is None:
                yield layer.path, ""
                continue
            parts = images.by_file(len(layer.files))
            wrong = [
                path
                for path, part in zip(layer.files, parts, strict=True)
                if path in files and not _same(part, images_of(then, written, files[path]))
            ]
            yield from ((layer.path, path) for path in wrong)


def _same(left: Images, right: Images) -> bool:
    """Whether both have the same images, in whatever order."""
    pairs = [np.sort(np.rec.fromarrays([images.hashes, images.numbers & 1])) for images in (left, right)]
    return bool(np.array_equal(pairs[0], pairs[1]))
