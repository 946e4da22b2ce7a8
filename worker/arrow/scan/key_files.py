"""Which files of a table may have some keys, by its key index alone: then a plan is of these and of newer files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from protos.laketx.v1 import common_pb2, read_pb2
from worker.arrow.scan.plans import VersionPlan
from worker.connection.table_view import TableView
from worker.files.key_coverage import Coverage
from worker.files.key_index import DamagedIndexError, Hashes, KeyIndex, Places

FILES_MAX: Final = common_pb2.LIMIT_KEY_FILES
NEW_FILES_MAX: Final = 8  # which are read, whatever is in them
COMMITS_MAX: Final = 16  # behind the newest version a coverage is old: is there a newer one?


def key_files_of(table: TableView, hashes: Places) -> read_pb2.KeyFiles | None:
    """The files that may have a key with one of these hashes at the version that the index covers; None: no such."""
    different = np.unique(hashes.view(np.uint64))
    buckets = different.view(np.int64) % np.int64(table.meta.buckets)
    numbers = np.unique(buckets).tolist()
    index = KeyIndex(table.folder, table.meta, numbers, remembered=True)
    coverage = index.coverage()
    try:
        if coverage is None:
            raise DamagedIndexError(table.folder)
        files = {
            file.path: file
            for bucket in numbers
            for file in _in_bucket(index, coverage, bucket, different[buckets == bucket])
        }
    except DamagedIndexError:
        index.forget()
        return None
    if len(files) > FILES_MAX:
        return None
    return read_pb2.KeyFiles(
        history_epoch=coverage.history, version=coverage.version, buckets=numbers, files=files.values()
    )


def _in_bucket(index: KeyIndex, coverage: Coverage, bucket: int, hashes: Hashes) -> Iterator[common_pb2.FileRef]:
    layers = {layer.path: layer for layer in index.layers.get(bucket, ())}
    for path in coverage.layers.get(bucket, ()):
        images = index.find(layers[path], hashes) if path in layers else None
        if images is None:
            raise DamagedIndexError(path)
        layer = layers[path]
        for number in np.unique(images[1] >> 1).tolist():
            yield _ref(bucket, layer.files[number], layer.partitions[number])
    for path, partition in coverage.others.get(bucket, ()):
        yield _ref(bucket, path, partition)


def _ref(bucket: int, path: str, partition: bytes) -> common_pb2.FileRef:
    return common_pb2.FileRef(path=path, bucket=bucket, partition=common_pb2.Partition.FromString(partition))


def is_narrow(planned: VersionPlan, key_files: read_pb2.KeyFiles) -> bool:
    """Whether a plan has few files but those that were named; else layers may know more of them."""
    paths = {file.path for file in key_files.files}
    return sum(entry.file.path not in paths for entry in planned.entries) <= NEW_FILES_MAX


def forget_old(table: TableView, planned: VersionPlan, key_files: read_pb2.KeyFiles) -> None:
    """Looks for a newer coverage the next time, if that is old."""
    if planned.version - key_files.version > COMMITS_MAX:
        KeyIndex(table.folder, table.meta, (), remembered=True).forget()
