"""The files of a version that have images of keys, by the table's key index.

The index may cover all of the files, some or none; the others are for the caller to read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.plans import ScannedFile
from worker.connection.table_view import TableView
from worker.files.arrow_types import column_field
from worker.files.bucket_hash import row_hashes
from worker.files.key_index import KeyIndex
from worker.files.key_layer import Places

LONG_DECIMAL: Final = 19  # of so many digits: its hash is that of its bytes


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Images of keys: which key, and which of the covered files; the files with the buckets of keys, covered or not."""

    keys: Places
    files: Places
    are_tombstones: np.ndarray[Any, np.dtype[np.bool_]]
    covered: list[ScannedFile]
    others: list[ScannedFile]

    def files_with_keys(self) -> list[ScannedFile]:
        """Return all files that may have an image of one of the keys."""
        return [self.covered[at] for at in np.unique(self.files).tolist()] + self.others


def key_hashes(keys: pa.Table, meta: catalog_pb2.Table) -> Places:
    """Return the hash of each row's key."""
    columns = {column.name: column for column in meta.columns}
    return row_hashes([keys.column(name).cast(column_field(columns[name]).type) for name in meta.primary_key])


def are_hashes_exact(meta: catalog_pb2.Table) -> bool:
    """Return whether different keys always have different hashes: the hash of a 64-bit number is reversible."""
    if len(meta.primary_key) > 1:
        return False
    [kind] = [column_field(column).type for column in meta.columns if column.name == meta.primary_key[0]]
    if pa.types.is_decimal(kind):
        return bool(kind.precision < LONG_DECIMAL)
    return not (pa.types.is_string(kind) or pa.types.is_binary(kind))


def key_places(table: TableView, files: Sequence[ScannedFile], hashes: Places) -> KeyPlaces:
    """Return the images of the keys with these hashes among the files."""
    different, places = np.unique(hashes.view(np.uint64), return_inverse=True)
    buckets = different.view(np.int64) % np.int64(table.meta.buckets)
    by_bucket: dict[int, dict[str, ScannedFile]] = defaultdict(dict)
    for scanned in files:
        by_bucket[scanned.file.bucket][scanned.file.path] = scanned
    numbers = set(np.unique(buckets).tolist()) & by_bucket.keys()
    index = KeyIndex(table.folder, table.meta, numbers, others=True)
    gathered = _Gathered()
    for bucket in sorted(numbers):
        live, at = by_bucket[bucket], np.flatnonzero(buckets == bucket)
        left = {path for path, scanned in live.items() if not (scanned.file.inlined or scanned.file.external)}
        for layer in index.layers.get(bucket, ()):
            fresh = [path in left for path in layer.files]
            if not any(fresh):
                continue
            images = index.find(layer, different[at])
            if images is not None:
                gathered.add(at[images[0]], images[1], [live[path] if path in left else None for path in layer.files])
                left.difference_update(layer.files)
        gathered.others += [
            scanned for path, scanned in live.items() if path in left or scanned.file.inlined or scanned.file.external
        ]
    return gathered.of(places)


class _Gathered:
    """The images in the layers that were read so far."""

    def __init__(self) -> None:
        self.covered: list[ScannedFile] = []
        self.others: list[ScannedFile] = []
        self._parts: list[tuple[Places, Places, Any]] = []

    def add(self, hashes: Places, numbers: Places, files: list[ScannedFile | None]) -> None:
        """Add images of a layer: the places of their hashes, their numbers, and the layer's files that count."""
        numbering = np.full(len(files), -1, np.int64)
        for number, scanned in enumerate(files):
            if scanned is not None:
                numbering[number] = len(self.covered)
                self.covered.append(scanned)
        at = numbering[numbers >> 1]
        counts = at >= 0
        self._parts.append((hashes[counts], at[counts], (numbers[counts] & 1).astype(bool)))

    def of(self, places: Places) -> KeyPlaces:
        """For the keys as they were given: each has the place of its hash."""
        hashes = np.concatenate([np.empty(0, np.int64), *(part[0] for part in self._parts)])
        files = np.concatenate([np.empty(0, np.int64), *(part[1] for part in self._parts)])
        flags = np.concatenate([np.empty(0, bool), *(part[2] for part in self._parts)])
        order = np.argsort(hashes, kind="stable")
        begins, ends = (np.searchsorted(hashes[order], places, side) for side in ("left", "right"))
        counts = ends - begins
        each = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - begins, counts)
        keys, taken = np.repeat(np.arange(len(places)), counts), order[each]
        return KeyPlaces(keys, files[taken], flags[taken], self.covered, self.others)
