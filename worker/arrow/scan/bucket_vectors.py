"""The hidden rows of the files of a bucket of a primary-key table: remembered, kept in storage, or found by their keys.

Only who may write to the table keeps vectors in storage: a reader remembers what it found in its own process.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby, islice
from threading import Lock
from typing import Final

import numpy as np
from cachetools import LRUCache

from metaservice.shared.arrow_streams import head_of
from protos.laketx.v1 import common_pb2
from worker.arrow.scan.inlined_rows import joined
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas
from worker.base.errors import InputError
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView
from worker.files import kept_vectors
from worker.files.kept_vectors import FileId
from worker.files.position_blocks import Positions

REMEMBERED_BYTES: Final = 64 << 20
FILE_BYTES: Final = 300  # of a remembered vector, without its positions
INLINED_AT_ONCE: Final = 1_000
Vectors = dict[FileId, Positions]

_log = logging.getLogger("laketx.worker")


def _size(vectors: Vectors) -> int:
    return sum(positions.nbytes + FILE_BYTES for positions in vectors.values())


class VectorMemory:
    """Vectors that this process computed or read. Threads share the memory."""

    def __init__(self, bytes_max: int = REMEMBERED_BYTES) -> None:
        self._vectors: LRUCache[str, Vectors] = LRUCache(bytes_max, getsizeof=_size)
        self._lock = Lock()

    def find(self, name: str) -> Vectors:
        with self._lock:
            return self._vectors.get(name, {})

    def add(self, name: str, vectors: Vectors) -> None:
        with self._lock:
            whole = self._vectors.get(name, {}) | vectors
            if _size(whole) <= self._vectors.maxsize:
                self._vectors[name] = whole

    def clear(self) -> None:
        with self._lock:
            self._vectors.clear()


MEMORY: Final = VectorMemory()


def by_bucket(files: Iterable[ScannedFile]) -> tuple[list[ScannedFile], list[list[ScannedFile]]]:
    """Return the files in which no key hides another, and the buckets in which a key may."""
    buckets: dict[tuple[PartitionKey, int], list[ScannedFile]] = defaultdict(list)
    for scanned in files:
        buckets[partition_key(scanned.file.partition), scanned.file.bucket].append(scanned)
    clean: list[ScannedFile] = []
    dirty: list[list[ScannedFile]] = []
    for bucket in buckets.values():
        if len({scanned.data_version for scanned in bucket}) == 1:
            clean += bucket  # within one version no key comes twice
        else:
            dirty.append(bucket)
    return clean, dirty


def hidden_rows(
    table: TableView, written: WrittenSchemas, files: Sequence[ScannedFile], *, keep: bool = False
) -> list[Positions]:
    """Return the positions of the hidden rows of each file of a bucket.

    With `keep` the files must be all of the bucket, and their vectors are in storage afterwards, if they can be.
    """
    if any(scanned.file.set_columns for scanned in files):
        raise InputError(
            "PARTIAL_IMAGES",
            f"images of {table.name} set single columns, so none hides another: compact it (major) first",
        )
    name = kept_vectors.name_of(table.meta, map(_id, files))
    if not name:
        return _by_keys(table, written, files)
    remembered = _of_files(files, MEMORY.find(name))
    if remembered is not None and not keep:
        return remembered
    kept = kept_vectors.read(table.folder, name) or {}
    hidden = _of_files(files, kept)
    if hidden is not None:
        MEMORY.add(name, kept)
        return hidden
    hidden = remembered or _by_keys(table, written, files)
    vectors = dict(zip(map(_id, files), hidden, strict=True))
    MEMORY.add(name, vectors)
    if keep:
        _keep(table, name, vectors)
    return hidden


def _keep(table: TableView, name: str, vectors: Vectors) -> None:
    try:
        kept_vectors.write(table.folder, name, vectors)
    except OSError as error:
        _log.info("deletion vectors are not kept: %s", error, extra={"table_id": table.table_id})


def _id(scanned: ScannedFile) -> FileId:
    return scanned.data_version, scanned.file.path


def _of_files(files: Sequence[ScannedFile], vectors: Vectors) -> list[Positions] | None:
    """Return the files' vectors; None unless all are present, each for a file with as many rows."""
    hidden: list[Positions] = []
    for scanned in files:
        positions = vectors.get(_id(scanned))
        if positions is None or (len(positions) and positions[-1] >= scanned.file.rows):
            return None
        hidden.append(positions)
    return hidden


# -- by their keys


def _by_keys(table: TableView, written: WrittenSchemas, files: Sequence[ScannedFile]) -> list[Positions]:
    from worker.arrow.scan.key_merge import bucket_to_merge, hidden_in  # noqa: PLC0415 - polars is loaded where needed

    runs = inlined_runs(files)
    wholes = [as_one(run) for run in runs]
    numbers = {id(scanned): at for at, scanned in enumerate(wholes)}
    bucket = bucket_to_merge(table, written, wholes, lambda run: numbers[id(run)])
    hidden: dict[int, Positions] = {}
    for at, positions in hidden_in(bucket):
        begin = 0
        for scanned in runs[at]:
            low, high = np.searchsorted(positions, np.array([begin, begin + scanned.file.rows], np.uint64))
            hidden[id(scanned)] = positions[low:high] - np.uint64(begin) if len(runs[at]) > 1 else positions
            begin += scanned.file.rows
    return [hidden[id(scanned)] for scanned in files]


def inlined_runs(files: Sequence[ScannedFile]) -> list[list[ScannedFile]]:
    """Return the files of a bucket, newest first, in runs that can be read as one file: consecutive inlined files.

    The oldest stay as they are: all others can hide their rows, and they hide none.
    """
    oldest = min(scanned.data_version for scanned in files)
    newer = [scanned for scanned in files if scanned.data_version > oldest]
    newer.sort(key=lambda scanned: -scanned.data_version)
    runs = []
    for kind, run in groupby(newer, _alike):
        while group := list(islice(run, 1 if kind is None else INLINED_AT_ONCE)):
            runs.append(group)
    return runs + [[scanned] for scanned in files if scanned.data_version == oldest]


def runs_together(files: Iterable[ScannedFile]) -> list[list[ScannedFile]]:
    """Return the files in runs that can be read as one file: inlined files, also of several buckets, in no order."""
    alone: list[list[ScannedFile]] = []
    groups: dict[Hashable, list[ScannedFile]] = defaultdict(list)
    for scanned in files:
        kind = _alike(scanned)
        if kind is None:
            alone.append([scanned])
        else:
            groups[kind].append(scanned)
    return alone + [
        group[begin : begin + INLINED_AT_ONCE]
        for group in groups.values()
        for begin in range(0, len(group), INLINED_AT_ONCE)
    ]


def _alike(scanned: ScannedFile) -> Hashable:
    """Return a value that is equal for inlined files that can be read as one; None for other files."""
    file = scanned.file
    return (file.kind, file.schema_version, file.carries_row_ids, head_of(file.content)) if file.content else None


def as_one(run: Sequence[ScannedFile]) -> ScannedFile:
    """Return a run as one file, with its newest rows first and the data version of its first file."""
    if len(run) == 1:
        return run[0]
    first = run[0].file
    content = joined([scanned.file.content for scanned in run])
    whole = common_pb2.DataFile(
        path=first.path,
        partition=first.partition,
        bucket=first.bucket,
        kind=first.kind,
        schema_version=first.schema_version,
        carries_row_ids=first.carries_row_ids,
        inlined=True,
        rows=sum(scanned.file.rows for scanned in run),
        bytes=len(content),
        content=content,
    )
    return ScannedFile(whole, run[0].data_version)
