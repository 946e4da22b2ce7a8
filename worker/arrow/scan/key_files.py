"""Which files of a table may have some keys, by its key index alone: then a plan is of these and of newer files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from protos.laketx.v1 import common_pb2, read_pb2
from worker.arrow.scan.plans import ScannedFile, VersionPlan
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView
from worker.files.key_coverage import Coverage
from worker.files.key_index import KeyIndex
from worker.files.key_layer import DamagedIndexError, Hashes, Places

FILES_MAX: Final = common_pb2.LIMIT_KEY_FILES
NEW_FILES_MAX: Final = 8  # which are read, whatever is in them
COMMITS_MAX: Final = 16  # behind the newest version a coverage is old: is there a newer one?


class IndexedImage(NamedTuple):
    """An image of a key in the index."""

    hash: int
    is_tombstone: bool


@dataclass(frozen=True, slots=True)
class IndexedFiles:
    """The files that may have some keys: as a plan is asked for them, and by path those whose images are known."""

    request: read_pb2.KeyFiles
    images: Mapping[str, Sequence[IndexedImage]]


def key_files_of(table: TableView, hashes: Places) -> IndexedFiles | None:
    """The files that may have a key with one of these hashes at the version that the index covers; None: no such."""
    different = np.unique(hashes.view(np.uint64))
    buckets = different.view(np.int64) % np.int64(table.meta.buckets)
    numbers = np.unique(buckets).tolist()
    index = KeyIndex(table.folder, table.meta, numbers, remembered=True)
    coverage = index.coverage()
    try:
        if coverage is None:
            raise DamagedIndexError(table.folder)
        files: dict[str, common_pb2.FileRef] = {}
        images: dict[str, list[IndexedImage]] = defaultdict(list)
        for bucket in numbers:
            for file, image in _in_bucket(index, coverage, bucket, different[buckets == bucket]):
                files[file.path] = file
                if image is not None:
                    images[file.path].append(image)
    except DamagedIndexError:
        index.forget()
        return None
    if len(files) > FILES_MAX:
        return None
    request = read_pb2.KeyFiles(
        history_epoch=coverage.history, version=coverage.version, buckets=numbers, files=files.values()
    )
    return IndexedFiles(request, images)


def _in_bucket(
    index: KeyIndex, coverage: Coverage, bucket: int, hashes: Hashes
) -> Iterator[tuple[common_pb2.FileRef, IndexedImage | None]]:
    layers = {layer.path: layer for layer in index.layers.get(bucket, ())}
    for path in coverage.layers.get(bucket, ()):
        images = index.find(layers[path], hashes) if path in layers else None
        if images is None:
            raise DamagedIndexError(path)
        layer = layers[path]
        for at, number in zip(images[0].tolist(), images[1].tolist(), strict=True):
            ref = _ref(bucket, layer.files[number >> 1], layer.partitions[number >> 1])
            yield ref, IndexedImage(int(hashes[at]), bool(number & 1))
    for path, partition in coverage.others.get(bucket, ()):
        yield _ref(bucket, path, partition), None


def _ref(bucket: int, path: str, partition: bytes) -> common_pb2.FileRef:
    return common_pb2.FileRef(path=path, bucket=bucket, partition=common_pb2.Partition.FromString(partition))


def is_narrow(planned: VersionPlan, indexed: IndexedFiles) -> bool:
    """Return whether a plan has few files beyond the named ones; else more layers of the index may help."""
    paths = {file.path for file in indexed.request.files}
    return sum(entry.file.path not in paths for entry in planned.entries) <= NEW_FILES_MAX


def files_with_rows(planned: VersionPlan, indexed: IndexedFiles, *, tells_keys: bool) -> list[ScannedFile] | None:
    """The files of a plan that have the rows of the keys, and maybe others; None: layers may know more of them.

    `tells_keys`: different keys have different hashes, and an image is all of a row.
    """
    if not is_narrow(planned, indexed):
        return None
    living = living_files(planned, indexed) if tells_keys else None
    return [
        ScannedFile(entry.file, entry.data_version)
        for entry in planned.entries
        if entry.HasField("file") and (living is None or entry.file.path in living)
    ]


def living_files(planned: VersionPlan, indexed: IndexedFiles) -> set[str] | None:
    """The files that have the rows of the keys, if different keys have different hashes; None: read all of the plan.

    The newest image of a key in a partition is what it has there. All of them are known if layers cover every file of
    the plan. A file that also has an older image of another key would show it, so then all files are read.
    """
    newest: dict[tuple[int, PartitionKey], tuple[int, str, bool]] = {}
    older = set()
    for entry in planned.entries:
        images = indexed.images.get(entry.file.path) if entry.HasField("file") else None
        if images is None:
            return None
        partition = partition_key(entry.file.partition)
        for image in images:
            this = entry.data_version, entry.file.path, image.is_tombstone
            best = newest.setdefault((image.hash, partition), this)
            if best is this:
                continue
            if best[0] == this[0]:
                return None
            newest[image.hash, partition] = max(best, this)
            older.add(min(best, this)[1])
    living = {path for _, path, is_tombstone in newest.values() if not is_tombstone}
    return None if living & older else living


def forget_old(table: TableView, planned: VersionPlan, indexed: IndexedFiles) -> None:
    """Forget an old coverage, so that the next read looks for a newer one."""
    if planned.version - indexed.request.version > COMMITS_MAX:
        KeyIndex(table.folder, table.meta, (), remembered=True).forget()
