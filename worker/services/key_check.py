"""Whether a key that is unique across partitions is there twice: the promise that its writers and the decider keep.

Their key index is checked, too: a writer believes what a whole layer says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from metaservice.client import MetaClient, key_scope, key_spans_partitions
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.key_places import key_hashes
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas, entries_of
from worker.arrow.scan.version_rows import FileToRead, VersionRows
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.files.key_index import KeyIndex
from worker.files.key_layer import Images, Places
from worker.services.key_indexes import images_of


@dataclass(frozen=True, slots=True)
class Twice:
    """A key that stands in several partitions of a version."""

    key: str
    partitions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key} in {' and '.join(self.partitions)}"


def promised_keys_twice(client: MetaClient, warehouse: str, table: catalog_pb2.Table, version: int) -> Iterator[Twice]:
    """The keys that have several rows at a version that promises to have none."""
    then = TableView(Connection(client, warehouse, None), table).at(version)
    if key_spans_partitions(then.meta) and key_scope(then.meta) == "table":
        yield from keys_twice(then, entries_of(then, version), range(then.meta.buckets))


def all_keys_twice(client: MetaClient, warehouse: str, table: catalog_pb2.Table, version: int) -> Iterator[Twice]:
    """The same of any table with a key: of one unique within a partition, the keys that have several rows in one."""
    then = TableView(Connection(client, warehouse, None), table).at(version)
    if then.meta.primary_key:
        is_promised = key_spans_partitions(then.meta) and key_scope(then.meta) == "table"
        entries, buckets = entries_of(then, version), range(then.meta.buckets)
        yield from keys_twice(then, entries, buckets, by_partition=not is_promised)


def keys_twice(
    then: TableView,
    entries: Iterable[common_pb2.LiveEntry],
    buckets: Iterable[int],
    *,
    by_partition: bool = False,
) -> Iterator[Twice]:
    """Yield the keys of these bucket numbers that have several rows in a version's entries; `then` is of that version.

    In memory are the key hashes of one bucket number, then the keys whose hash occurs several times.
    `by_partition`: several rows in one partition.
    """
    meta, of_bucket = then.meta, defaultdict(list)
    for entry in entries:
        if entry.HasField("file"):
            of_bucket[entry.file.bucket].append(entry)
    keys, places = list(meta.primary_key), [name for name in meta.partition_columns if name not in meta.primary_key]
    names, reader = [*keys, *places], VersionRows(then, meta.head_version)  # no plan is asked for
    for bucket in buckets:
        several = _of_several_rows(reader, of_bucket[bucket], meta)
        if not len(several):
            continue
        empty = reader.empty(names)
        rows = pa.concat_tables([empty, *_rows_with(reader, of_bucket[bucket], several, names, empty.schema)])
        frame = pl.from_arrow(rows)
        assert isinstance(frame, pl.DataFrame)
        twice = frame.filter(frame.select(names if by_partition else keys).is_duplicated()).sort(names)
        for key, rows_of_key in twice.group_by(keys, maintain_order=True):
            yield Twice(_shown(keys, key), tuple(_shown(places, row) for row in rows_of_key.select(places).iter_rows()))


def _of_several_rows(reader: VersionRows, entries: Sequence[common_pb2.LiveEntry], meta: catalog_pb2.Table) -> Places:
    """Return the hashes that several rows of a bucket number have."""

    def read(file: FileToRead) -> Iterator[Places]:
        return (key_hashes(part, meta) for part in reader.visible(file, list(meta.primary_key), None, float("inf")))

    hashes, count = np.empty(sum(entry.file.rows for entry in entries), np.int64), 0
    for part in reader.visit(entries, read, None):
        hashes[count : count + len(part)] = part
        count += len(part)
    hashes = hashes[:count]
    hashes.sort()
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _rows_with(
    reader: VersionRows, entries: Sequence[common_pb2.LiveEntry], hashes: Places, names: list[str], schema: pa.Schema
) -> Iterator[pa.Table]:
    """Yield the rows whose keys have one of these hashes."""

    def read(file: FileToRead) -> Iterator[pa.Table]:
        for part in reader.visible(file, names, None, float("inf")):
            is_one = np.isin(key_hashes(part, reader.table.meta), hashes)
            yield part.filter(pa.array(is_one)).select(names).cast(schema)

    return reader.visit(entries, read, None)


def _shown(names: Sequence[str], values: Sequence[Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


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
