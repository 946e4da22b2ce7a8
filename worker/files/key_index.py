"""Key indexes: the files of a bucket number, in all partitions, that have an image of a key.

A file never changes, so its keys never change. An index is some layers, each of which covers the files that it names:
for every image in them the hash of its key, the file, and whether it is a tombstone, sorted by hash. Files that no
layer covers are read. So a layer that is missing, damaged or older than the table costs time and changes no answer.

    <table>/_keys/<facts>/<bucket>-<name>.keys    see `worker/files/key_layer.py`

The facts are a digest of the table, its key columns and its buckets, the name is a digest of the content. A hash is the
one that gives the row its bucket.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
from cachetools import LRUCache
from pyarrow import fs

from protos.laketx.v1 import catalog_pb2
from worker.files import key_coverage
from worker.files.key_coverage import Coverage
from worker.files.key_layer import (
    RUN_BLOCKS,
    DamagedIndexError,
    Hashes,
    Images,
    Layer,
    Places,
    decode_head,
    encode,
    find_in,
    read_blocks,
)
from worker.files.storage import WHOLE_BYTES_MAX, is_local, open_to_read, put_whole, storage

FOLDER: Final = "_keys"  # below the table's folder
SUFFIX: Final = ".keys"
READ_THREADS: Final = 8
HEADS_BYTES: Final = 32 << 20
BLOCKS_BYTES: Final = 32 << 20
FILES_MAX: Final = 100_000  # in remembered lists
FILE_BYTES: Final = 200  # of a remembered head, for each file
UNREADABLE: Final = (OSError, pa.ArrowException, DamagedIndexError)

V = TypeVar("V")


def facts_of(meta: catalog_pb2.Table, table_id: str = "") -> str:
    """What the hashes follow from, as the name of a folder; also of another table with the same columns."""
    ids = {column.name: column.column_id for column in meta.columns}
    key = " ".join(str(ids[name]) for name in meta.primary_key)
    return hashlib.sha256(f"{table_id or meta.table_id}\n{key}\n{meta.buckets}".encode()).hexdigest()[:32]


def folder_of(meta: catalog_pb2.Table) -> str:
    """Return the folder of a table's layers, below the table's folder."""
    return f"{FOLDER}/{facts_of(meta)}"


def _bucket_of(path: str) -> int:
    """Return the bucket number in the name of a layer; -1 for another file."""
    number = path.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else -1


def _head_size(layer: Layer) -> int:
    return layer.first_hashes.nbytes + layer.digests.nbytes + FILE_BYTES * len(layer.files)


def _block_size(images: Images) -> int:
    return images.hashes.nbytes + images.numbers.nbytes


def _coverage_size(coverage: Coverage) -> int:
    return 1 + sum(map(len, (*coverage.layers.values(), *coverage.others.values())))


class Memory(Generic[V]):
    """The parts of an index that this process has read. Threads share it."""

    def __init__(self, most: int, size: Callable[[V], int]) -> None:
        self._held: LRUCache[Hashable, V] = LRUCache(most, getsizeof=size)
        self._lock = Lock()

    def find(self, name: Hashable) -> V | None:
        with self._lock:
            return self._held.get(name)

    def add(self, name: Hashable, value: V) -> None:
        with self._lock, suppress(ValueError):  # larger than all the room
            self._held[name] = value

    def drop(self, name: Hashable) -> None:
        with self._lock:
            self._held.pop(name, None)

    def clear(self) -> None:
        with self._lock:
            self._held.clear()


HEADS: Final = Memory(HEADS_BYTES, _head_size)
BLOCKS: Final = Memory(BLOCKS_BYTES, _block_size)
COVERAGES: Final = Memory(FILES_MAX, _coverage_size)
LISTS: Final[Memory[list[str]]] = Memory(FILES_MAX, lambda paths: 1 + len(paths))  # of what is in folders


def forget_all() -> None:
    """Forget everything, as in a new process."""
    for memory in (HEADS, BLOCKS, COVERAGES, LISTS):
        memory.clear()


class KeyIndex:
    """The layers of a table in storage, by bucket number; of some buckets, or all. Damaged ones are left out.

    A fork has files of its original table, so that table's layers serve it, too, with `others`. A `remembered` list of
    the layers may be old: `forget` it if one of them can't be read, or they cover too little.
    """

    def __init__(
        self,
        table_folder: str,
        meta: catalog_pb2.Table,
        buckets: Iterable[int] | None = None,
        *,
        others: bool = False,
        remembered: bool = False,
    ) -> None:
        self._facts = facts_of(meta)
        self._files, self._root = storage(table_folder)
        self._is_remembered = remembered
        self._streams: dict[str, Any] = {}
        self.damaged: list[str] = []
        self.coverages: list[str] = []
        self.layers: dict[int, list[Layer]] = defaultdict(list)
        chosen = None if buckets is None else set(buckets)
        listed = list(self._find(self._facts, chosen))
        if others and meta.folder_id and meta.folder_id != meta.table_id:
            listed += self._find(facts_of(meta, meta.folder_id), chosen)
        if not is_local(self._files):
            self._read_at_once(listed)
        for facts, path in listed:
            self._add(facts, path)
        for layers in self.layers.values():
            layers.sort(key=lambda layer: -layer.images)

    def _find(self, facts: str, chosen: set[int] | None) -> Iterator[tuple[str, str]]:
        """Return the layers that have these facts; of some buckets, or all."""
        for path in self._listed(f"{FOLDER}/{facts}"):
            if path.endswith(key_coverage.SUFFIX):
                if facts == self._facts:
                    self.coverages.append(path)
            elif (bucket := _bucket_of(path)) >= 0 and (chosen is None or bucket in chosen):
                yield facts, path

    def _add(self, facts: str, path: str) -> None:
        layer = self._head(facts, path)
        if layer is None or layer.bucket != _bucket_of(path):
            self.damaged.append(path)
        else:
            self.layers[layer.bucket].append(layer)

    def _read_at_once(self, layers: Iterable[tuple[str, str]]) -> None:
        """Read the layers and the coverage that aren't remembered at once, so that no request waits for another."""
        heads = [partial(self._head, *each) for each in layers if HEADS.find(f"{self._root}/{each[1]}") is None]
        reads: list[Callable[[], object]] = [*heads, self.coverage] if self._is_remembered else [*heads]
        if len(reads) > 1:
            with ThreadPoolExecutor(READ_THREADS, thread_name_prefix="laketx-key-index") as pool:
                list(pool.map(lambda read: read(), reads))

    def _listed(self, folder: str) -> list[str]:
        """Return the paths of layers and coverages, below the table's folder."""
        remembered = LISTS.find(f"{self._root}/{folder}") if self._is_remembered else None
        if remembered is not None:
            return remembered
        try:
            listed = self._files.get_file_info(fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        except (OSError, pa.ArrowException):
            return []
        names = [info.base_name for info in listed if info.base_name.endswith((SUFFIX, key_coverage.SUFFIX))]
        paths = [f"{folder}/{name}" for name in names]
        if self._is_remembered:
            LISTS.add(f"{self._root}/{folder}", paths)
        return paths

    def forget(self) -> None:
        """Forget the list of layers."""
        LISTS.drop(f"{self._root}/{FOLDER}/{self._facts}")

    def coverage(self) -> Coverage | None:
        """Return the newest kept coverage of the layers."""
        path = key_coverage.newest(self.coverages)
        if path is None:
            return None
        whole = f"{self._root}/{path}"
        coverage = COVERAGES.find(whole)
        if coverage is None:
            try:
                with open_to_read(self._files, whole) as stream:
                    coverage = key_coverage.decode(self._facts, stream.read())
            except (OSError, pa.ArrowException):
                return None
            if coverage is not None:
                COVERAGES.add(whole, coverage)
        return coverage

    def _head(self, facts: str, path: str) -> Layer | None:
        """Return the head of a layer. A small layer in an object store is read whole, and its blocks are remembered."""
        whole = f"{self._root}/{path}"
        remembered = HEADS.find(whole)
        if remembered is not None:
            return remembered
        try:
            stream = self._stream(whole)
            is_small = not is_local(self._files) and stream.size() <= WHOLE_BYTES_MAX
            if is_small:
                stream = pa.BufferReader(stream.read())
            layer = decode_head(facts, path, stream)
            for block in range(layer.blocks if is_small else 0):
                BLOCKS.add((whole, block), read_blocks(layer, stream, block, block + 1))
        except UNREADABLE:
            return None
        HEADS.add(whole, layer)
        return layer

    def _stream(self, whole: str) -> Any:
        """Return a file that is opened once, because each open is a request to an object store."""
        if whole not in self._streams:
            self._streams[whole] = self._files.open_input_file(whole)
        return self._streams[whole]

    def find(self, layer: Layer, hashes: Hashes) -> tuple[Places, Places] | None:
        """Call `find_in` for a layer; None if it can't be read. Blocks that are read alone are remembered."""
        whole = f"{self._root}/{layer.path}"

        def read(begin: int, end: int) -> Images:
            images = BLOCKS.find((whole, begin)) if end == begin + 1 else None
            if images is None:
                images = read_blocks(layer, self._stream(whole), begin, end)
                if end == begin + 1:
                    BLOCKS.add((whole, begin), images)
            return images

        try:
            return find_in(layer, read, hashes)
        except UNREADABLE:
            return None

    def images(self, layer: Layer) -> Images | None:
        """Return all images of a layer; None if it can't be read."""
        try:
            return read_blocks(layer, self._stream(f"{self._root}/{layer.path}"), 0, layer.blocks)
        except UNREADABLE:
            return None

    def parts(self, layer: Layer) -> Iterator[Images]:
        """All images of a layer, in parts; UNREADABLE, perhaps after some of them, if it can't be read."""
        stream = self._stream(f"{self._root}/{layer.path}")
        for begin in range(0, layer.blocks, RUN_BLOCKS):
            yield read_blocks(layer, stream, begin, min(begin + RUN_BLOCKS, layer.blocks))

    def write(self, bucket: int, files: Mapping[str, bytes], images: Images) -> str:
        """Keep a layer of these files, which have their partitions. Return its path."""
        content = encode(self._facts, bucket, files, images)
        name = hashlib.sha256(content).hexdigest()[:32]
        path = f"{FOLDER}/{self._facts}/{bucket:05d}-{name}{SUFFIX}"
        put_whole(self._files, f"{self._root}/{path}", content)
        return path

    def write_coverage(self, coverage: Coverage) -> str:
        """Keep the coverage of layers. Return its path."""
        content = key_coverage.encode(self._facts, coverage)
        path = f"{FOLDER}/{self._facts}/{key_coverage.name_of(coverage, content)}"
        put_whole(self._files, f"{self._root}/{path}", content)
        self.forget()
        return path

    def delete(self, path: str) -> None:
        """Delete a layer. Its readers read the files instead."""
        try:
            self._files.delete_file(f"{self._root}/{path}")
        except (OSError, pa.ArrowException):
            return
