"""Keeps the key indexes of tables whose key spans partitions, so that writers of some keys read few files.

New files of a bucket number become a layer as soon as they are many, with the smaller layers that are there. Compacted
files leave a layer when half of it is theirs. Nothing depends on it: see `worker/files/key_index.py`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from metaservice.client import key_spans_partitions
from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.file_rows import input_file, read_tables
from worker.arrow.scan.key_places import key_hashes
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas
from worker.base.schema import OP, TOMBSTONE
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.files import key_coverage
from worker.files.arrow_types import arrow_schema
from worker.files.key_index import UNREADABLE, KeyIndex
from worker.files.key_layer import Hashes, Images, Layer, Places
from worker.services.keepers import IDLE_S, Keeper

ROWS_AT_LEAST: Final = 10_000  # of files without a layer; fewer are read as fast
FILES_AT_LEAST: Final = 8
IMAGES_MAX: Final = 1 << 23  # of a layer, unless a file has more
COVERAGE_COMMITS: Final = 32  # after so many a coverage is written anew
GROWTH: Final = 4  # a layer is this many times as large as all that are newer


@dataclass(frozen=True, slots=True)
class Work:
    """What a bucket number needs: layers that are replaced, and the files that the new layers cover anew."""

    replaced: list[Layer]
    files: list[str]


def work_of(
    layers: Sequence[Layer],
    rows: Mapping[str, int],
    rows_at_least: int = ROWS_AT_LEAST,
    files_at_least: int = FILES_AT_LEAST,
) -> Work:
    """What is to do for the live files of a bucket number, with these numbers of rows."""
    live: dict[str, int] = {}
    covered: set[str] = set()
    for layer in sorted(layers, key=lambda layer: -layer.images):
        fresh = [path for path in layer.files if path in rows and path not in covered]
        live[layer.path] = sum(rows[path] for path in fresh)
        covered |= set(fresh)
    replaced = [layer for layer in layers if 2 * live[layer.path] <= layer.images]
    files = [path for path in rows if path not in covered]
    count = sum(rows[path] for path in files)
    if count < rows_at_least and len(files) < files_at_least:
        files, count = [], 0
    size = count + sum(live[layer.path] for layer in replaced)
    for layer in sorted(layers, key=lambda layer: live[layer.path]):
        if layer not in replaced and size and live[layer.path] < GROWTH * size <= GROWTH * IMAGES_MAX:
            if size + live[layer.path] > IMAGES_MAX:
                break
            replaced.append(layer)
            size += live[layer.path]
    return Work(replaced, files)


class KeyIndexKeeper(Keeper):
    """Keeps the key indexes of the newest versions."""

    WHAT = "key index"
    THREAD = "laketx-key-index"

    def __init__(
        self,
        lake: Connection,
        *,
        idle_s: float = IDLE_S,
        now_s: Callable[[], float] = time.monotonic,
        rows_at_least: int = ROWS_AT_LEAST,
        files_at_least: int = FILES_AT_LEAST,
    ) -> None:
        super().__init__(lake, idle_s=idle_s, now_s=now_s)
        self._at_least = rows_at_least, files_at_least
        self._history = ""  # of the service, before any of its versions was looked at

    def run_once(self) -> int:
        self._history = self._lake.client.get_warehouse().history_epoch
        return super().run_once()

    def wants(self, meta: catalog_pb2.Table) -> bool:
        return key_spans_partitions(meta)

    def keep(self, then: TableView, version: int, files: list[ScannedFile]) -> int:
        buckets: dict[int, dict[str, ScannedFile]] = defaultdict(dict)
        for scanned in files:
            if not (scanned.file.inlined or scanned.file.external):
                buckets[scanned.file.bucket][scanned.file.path] = scanned
        index, written, kept = KeyIndex(then.folder, then.meta), WrittenSchemas(then), 0
        gone = list(index.damaged)
        covers = {bucket: {layer.path: layer.files for layer in layers} for bucket, layers in index.layers.items()}
        for bucket in sorted({*buckets, *index.layers}):
            if self.is_stopping:
                break
            live = buckets.get(bucket, {})
            rows = {path: scanned.file.rows for path, scanned in live.items()}
            work = work_of(index.layers.get(bucket, []), rows, *self._at_least)
            if work.replaced or work.files:
                stay = {path for layer in index.layers[bucket] if layer not in work.replaced for path in layer.files}
                taken_over = [
                    path for layer in work.replaced for path in layer.files if path in rows and path not in stay
                ]
                for group in _groups({path: rows[path] for path in dict.fromkeys([*taken_over, *work.files])}):
                    anew = {path: live[path] for path in group}
                    partitions = {path: scanned.file.partition.SerializeToString() for path, scanned in anew.items()}
                    path = index.write(bucket, partitions, _images(then, written, index, work.replaced, anew))
                    covers.setdefault(bucket, {})[path] = tuple(group)
                for layer in work.replaced:
                    del covers[bucket][layer.path]
                    gone.append(layer.path)
                kept += 1
        _cover(index, self._history, version, files, covers, changed=kept > 0)
        for path in gone:
            index.delete(path)
        return kept

    def forget(self) -> None:
        """The layers say themselves what they cover."""


def _cover(
    index: KeyIndex,
    history: str,
    version: int,
    files: Sequence[ScannedFile],
    covers: Mapping[int, Mapping[str, Sequence[str]]],
    *,
    changed: bool,
) -> None:
    """Keeps what the layers cover of a version, if they changed or the last such version is old."""
    old = index.coverage()
    if not changed and old is not None and old.history == history and version - old.version < COVERAGE_COMMITS:
        return
    covered = {path for layers in covers.values() for paths in layers.values() for path in paths}
    others: dict[int, list[key_coverage.File]] = defaultdict(list)
    for scanned in files:
        file = scanned.file
        if file.inlined or file.external or file.path not in covered:
            others[file.bucket].append((file.path, file.partition.SerializeToString()))
    layers = {bucket: list(paths) for bucket, paths in covers.items() if paths}
    written = ""
    if layers and sum(map(len, others.values())) <= key_coverage.OTHERS_MAX:
        written = index.write_coverage(key_coverage.Coverage(history, version, layers, others))
    for path in index.coverages:
        if path != written:
            index.delete(path)


def _groups(rows: Mapping[str, int]) -> Iterator[list[str]]:
    """The files of each new layer, by their numbers of rows."""
    group: list[str] = []
    images = 0
    for path, count in rows.items():
        if group and images + count > IMAGES_MAX:
            yield group
            group, images = [], 0
        group.append(path)
        images += count
    if group:
        yield group


def _images(
    then: TableView,
    written: WrittenSchemas,
    index: KeyIndex,
    replaced: Sequence[Layer],
    files: Mapping[str, ScannedFile],
) -> Images:
    """The images of these files by hash, from replaced layers where they have them. In memory they are there twice."""
    count = sum(scanned.file.rows for scanned in files.values())
    images = Images(np.empty(count, np.uint64), np.empty(count, np.uint32))
    places = {path: place for place, path in enumerate(files)}
    at = 0
    for layer in replaced:
        paths = [path for path in layer.files if path in places]
        end = at + sum(files[path].file.rows for path in paths)
        if paths and _take(index, layer, places, images[at:end]):
            at = end
            for path in paths:
                del places[path]
    for path, place in places.items():
        own = images_of(then, written, files[path])
        images[at : at + len(own)].fill(own.hashes, own.numbers + 2 * place)
        at += len(own)
    return images.by_hash()


def _take(index: KeyIndex, layer: Layer, places: Mapping[str, int], taken: Images) -> bool:
    """Whether a layer has just these images of the files at these places."""
    new = np.array([places.get(path, -1) for path in layer.files], np.int64)
    at = 0
    try:
        for part in index.parts(layer):
            number = new[part.numbers >> 1]
            is_wanted = number >= 0
            chosen = 2 * number[is_wanted] + (part.numbers[is_wanted] & 1)
            if at + len(chosen) > len(taken):
                return False
            taken[at : at + len(chosen)].fill(part.hashes[is_wanted], chosen)
            at += len(chosen)
    except UNREADABLE:
        return False
    return at == len(taken)


def images_of(then: TableView, written: WrittenSchemas, scanned: ScannedFile) -> Images:
    """The images in a file, in its order, with 1 for a tombstone."""
    schema = arrow_schema(then.meta, with_op=True)
    columns = pa.schema([schema.field(name) for name in [*dict.fromkeys(then.meta.primary_key), OP]])
    hashes: list[Hashes] = [np.empty(0, np.uint64)]
    flags: list[Places] = [np.empty(0, np.int64)]
    for _, rows in read_tables(input_file(then, written, scanned.file, scanned.data_version, None), columns):
        hashes.append(key_hashes(rows, then.meta).view(np.uint64))
        flags.append((rows.column(OP).to_numpy() == TOMBSTONE).astype(np.int64))
    return Images(np.concatenate(hashes), np.concatenate(flags))
