"""Key indexes: which files of a bucket number, in all partitions, have an image of a key.

A file never changes, so what it holds of keys is known once and for all. An index is some layers, each of which covers
the files that it names: for every image in them the hash of its key, the file, and whether it is a tombstone, sorted
by hash. Files that no layer covers are read. So a layer that is missing, damaged or older than the table costs time
and changes no answer.

    <table>/_keys/<facts>/<bucket>-<name>.keys
    magic, 8 bytes | length of the head, 4 bytes
    head as JSON: facts, bucket, images, files, their partitions (each once), of each file the place of its partition
    the first hash of each block, 8 bytes each | the xxHash64 of each block, 8 bytes each
    SHA-256 of all that
    blocks of 8,192 images: their hashes, 8 bytes each | their numbers, 2 or 4 bytes each

A number is the place of the file among the head's files, doubled, plus 1 for a tombstone. Numbers are little-endian.
The facts are a digest of the table, its key columns and its buckets, the name is a digest of the content. A hash is the
one that gives the row its bucket.
"""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sized
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from pyarrow import fs
from xxhash import xxh64_intdigest

from protos.laketx.v1 import catalog_pb2
from worker.files import key_coverage
from worker.files.key_coverage import Coverage
from worker.files.storage import put_whole, storage

FOLDER: Final = "_keys"  # below the table's folder
SUFFIX: Final = ".keys"
MAGIC: Final = b"LTXKEY02"
BLOCK_IMAGES: Final = 1 << 13
RUN_BLOCKS: Final = 1 << 7  # read at once
GAP_BLOCKS: Final = 2  # so many are read though no key needs them, rather than begin another request
SHORT_FILES: Final = 1 << 15  # so many fit into numbers of two bytes
HEADS_BYTES: Final = 32 << 20
BLOCKS_BYTES: Final = 32 << 20
FILES_MAX: Final = 100_000  # in remembered lists
FILE_BYTES: Final = 200  # of a remembered head, for each file
_DIGEST_BYTES: Final = 32
_LENGTH: Final = struct.Struct("<I")

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Places = np.ndarray[Any, np.dtype[np.int64]]
V = TypeVar("V")


class DamagedIndexError(Exception):
    """A layer has not the content that was written."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images by the hash of their key, in the order of the hashes, with their numbers."""

    hashes: Hashes
    numbers: Places

    def by_file(self, files: int) -> Iterator[Images]:
        """Those of each of so many files, with 1 for a tombstone."""
        order = np.argsort(self.numbers >> 1, kind="stable")
        ends = np.searchsorted(self.numbers[order] >> 1, np.arange(files + 1))
        for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            own = order[begin:end]
            yield Images(self.hashes[own], self.numbers[own] & 1)


@dataclass(frozen=True, slots=True)
class Layer:
    """The head of a layer."""

    path: str  # below the table's folder
    bucket: int
    images: int
    files: tuple[str, ...]
    partitions: tuple[bytes, ...]  # of each file, as a message
    first_hashes: Hashes
    digests: Hashes
    begin: int  # of the blocks

    @property
    def blocks(self) -> int:
        return len(self.first_hashes)


def facts_of(meta: catalog_pb2.Table, table_id: str = "") -> str:
    """What the hashes follow from, as the name of a folder; also of another table with the same columns."""
    ids = {column.name: column.column_id for column in meta.columns}
    key = " ".join(str(ids[name]) for name in meta.primary_key)
    return hashlib.sha256(f"{table_id or meta.table_id}\n{key}\n{meta.buckets}".encode()).hexdigest()[:32]


def folder_of(meta: catalog_pb2.Table) -> str:
    """The folder of a table's layers, below the table's folder."""
    return f"{FOLDER}/{facts_of(meta)}"


# -- content -----------------------------------------------------------------------------------------------------------


def encode(facts: str, bucket: int, files: Mapping[str, bytes], images: Images) -> bytes:
    """The content of a layer of these files, which have their partitions."""
    partitions = {partition: at for at, partition in enumerate(dict.fromkeys(files.values()))}
    head = {
        "facts": facts,
        "bucket": bucket,
        "images": len(images.hashes),
        "files": list(files),
        "partitions": [b64encode(partition).decode() for partition in partitions],
        "of": [partitions[partition] for partition in files.values()],
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    kind = _number_type(files)
    begins = range(0, len(images.hashes), BLOCK_IMAGES)
    blocks = [
        images.hashes[begin : begin + BLOCK_IMAGES].astype("<u8").tobytes()
        + images.numbers[begin : begin + BLOCK_IMAGES].astype(kind).tobytes()
        for begin in begins
    ]
    firsts = images.hashes[::BLOCK_IMAGES].astype("<u8").tobytes()
    digests = np.array([xxh64_intdigest(block) for block in blocks], "<u8").tobytes()
    front = b"".join([MAGIC, _LENGTH.pack(len(text)), text, firsts, digests])
    return b"".join([front, hashlib.sha256(front).digest(), *blocks])


def _number_type(files: Sized) -> str:
    return "<u2" if len(files) <= SHORT_FILES else "<u4"


def _image_bytes(layer: Layer) -> int:
    return 8 + np.dtype(_number_type(layer.files)).itemsize


def decode_head(facts: str, path: str, stream: Any) -> Layer:
    """The head of the layer in a stream; DamagedIndexError if it is damaged, or another table's."""
    length_end = len(MAGIC) + _LENGTH.size
    start = stream.read(length_end)
    if len(start) < length_end or not start.startswith(MAGIC):
        raise DamagedIndexError(path)
    (length,) = _LENGTH.unpack_from(start, len(MAGIC))
    text = stream.read(length)
    try:
        head = json.loads(text)
        covered, partitions = tuple(head["files"]), [b64decode(partition) for partition in head["partitions"]]
        of_files = tuple(partitions[at] for at in head["of"])
        bucket, images, names_facts = int(head["bucket"]), int(head["images"]), head["facts"]
    except (ValueError, LookupError, TypeError) as error:
        raise DamagedIndexError(path) from error
    blocks = -(-images // BLOCK_IMAGES)
    arrays = stream.read(16 * blocks)
    front = b"".join([start, text, arrays])
    if hashlib.sha256(front).digest() != stream.read(_DIGEST_BYTES) or names_facts != facts:
        raise DamagedIndexError(path)
    numbers = np.frombuffer(arrays, "<u8")
    begin = len(front) + _DIGEST_BYTES
    return Layer(path, bucket, images, covered, of_files, numbers[:blocks], numbers[blocks:], begin)


def find_in(layer: Layer, read: Callable[[int, int], Images], hashes: Hashes) -> tuple[Places, Places]:
    """The images of these keys, whose hashes ascend: the place of each one's hash, and its number.

    `read` reads the images from one block up to another.
    """
    first = np.maximum(np.searchsorted(layer.first_hashes, hashes, "left") - 1, 0)
    last = np.searchsorted(layer.first_hashes, hashes, "right") - 1
    is_inside = last >= 0
    marks = np.zeros(layer.blocks + 1, np.int64)
    np.add.at(marks, first[is_inside], 1)
    np.add.at(marks, last[is_inside] + 1, -1)
    places: list[Places] = [np.empty(0, np.int64)]
    numbers: list[Places] = [np.empty(0, np.int64)]
    for begin, end in _runs(np.flatnonzero(np.cumsum(marks[:-1]))):
        images = read(begin, end)
        low = int(np.searchsorted(hashes, images.hashes[0]))
        high = int(np.searchsorted(hashes, images.hashes[-1], "right"))
        within = hashes[low:high]
        froms, tos = np.searchsorted(images.hashes, within), np.searchsorted(images.hashes, within, "right")
        counts = tos - froms
        ends = np.cumsum(counts)
        each = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts - froms, counts)
        places.append(np.repeat(np.arange(low, high), counts))
        numbers.append(images.numbers[each])
    return np.concatenate(places), np.concatenate(numbers)


def _runs(blocks: Places) -> Iterator[tuple[int, int]]:
    """Blocks that are read at once: the first one, and the one after the last."""
    at = 0
    while at < len(blocks):
        end = at + 1
        while end < len(blocks) and blocks[end] - blocks[end - 1] <= GAP_BLOCKS and end - at < RUN_BLOCKS:
            end += 1
        yield int(blocks[at]), int(blocks[end - 1]) + 1
        at = end


def read_blocks(layer: Layer, stream: Any, begin: int, end: int) -> Images:
    """The images in some blocks; DamagedIndexError if one is damaged."""
    width = _image_bytes(layer)
    total = min(end * BLOCK_IMAGES, layer.images) - begin * BLOCK_IMAGES
    stream.seek(layer.begin + begin * BLOCK_IMAGES * width)
    content = memoryview(stream.read(total * width))
    if len(content) != total * width:
        raise DamagedIndexError(layer.path)
    kind = np.dtype(_number_type(layer.files))
    hashes, numbers = np.empty(total, np.uint64), np.empty(total, np.int64)
    for block in range(begin, end):
        at = (block - begin) * BLOCK_IMAGES
        count = min(BLOCK_IMAGES, total - at)
        part = content[at * width : (at + count) * width]
        if xxh64_intdigest(part) != int(layer.digests[block]):
            raise DamagedIndexError(layer.path)
        hashes[at : at + count] = np.frombuffer(part[: count * 8], "<u8")
        numbers[at : at + count] = np.frombuffer(part[count * 8 :], kind)
    return Images(hashes, numbers)


# -- storage -----------------------------------------------------------------------------------------------------------


def _head_size(layer: Layer) -> int:
    return layer.first_hashes.nbytes + layer.digests.nbytes + FILE_BYTES * len(layer.files)


def _block_size(images: Images) -> int:
    return images.hashes.nbytes + images.numbers.nbytes


def _coverage_size(coverage: Coverage) -> int:
    return 1 + sum(map(len, (*coverage.layers.values(), *coverage.others.values())))


class Memory(Generic[V]):
    """What this process read of an index. Threads share it."""

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
    """As if another process had read it all."""
    for memory in (HEADS, BLOCKS, COVERAGES, LISTS):
        memory.clear()


class KeyIndex:
    """The layers that storage has of a table, by bucket number; of some buckets, or all. Damaged ones are left out.

    A fork has files of the table that it left, so that table's layers are of use to it, too, with `others`. A list of
    the layers that is `remembered` may be old: `forget` it if one of them can't be read, or they cover too little.
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
        self.damaged: list[str] = []
        self.coverages: list[str] = []
        self.layers: dict[int, list[Layer]] = defaultdict(list)
        chosen = None if buckets is None else set(buckets)
        self._add(self._facts, chosen)
        if others and meta.folder_id and meta.folder_id != meta.table_id:
            self._add(facts_of(meta, meta.folder_id), chosen)
        for layers in self.layers.values():
            layers.sort(key=lambda layer: -layer.images)

    def _add(self, facts: str, chosen: set[int] | None) -> None:
        for path in self._listed(f"{FOLDER}/{facts}"):
            if path.endswith(key_coverage.SUFFIX):
                if facts == self._facts:
                    self.coverages.append(path)
                continue
            bucket = path.rpartition("/")[2].partition("-")[0]
            if bucket.isdecimal() and (chosen is None or int(bucket) in chosen):
                layer = self._head(facts, path)
                if layer is None or layer.bucket != int(bucket):
                    self.damaged.append(path)
                else:
                    self.layers[layer.bucket].append(layer)

    def _listed(self, folder: str) -> list[str]:
        """The paths of layers and coverages, below the table's folder."""
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
        """Forgets which layers there are."""
        LISTS.drop(f"{self._root}/{FOLDER}/{self._facts}")

    def coverage(self) -> Coverage | None:
        """What the layers cover, as of the newest version of which that is kept."""
        path = key_coverage.newest(self.coverages)
        if path is None:
            return None
        whole = f"{self._root}/{path}"
        coverage = COVERAGES.find(whole)
        if coverage is None:
            try:
                with self._files.open_input_file(whole) as stream:
                    coverage = key_coverage.decode(self._facts, stream.read())
            except (OSError, pa.ArrowException):
                return None
            if coverage is not None:
                COVERAGES.add(whole, coverage)
        return coverage

    def _head(self, facts: str, path: str) -> Layer | None:
        remembered = HEADS.find(f"{self._root}/{path}")
        if remembered is not None:
            return remembered
        try:
            with self._files.open_input_file(f"{self._root}/{path}") as stream:
                layer = decode_head(facts, path, stream)
        except (OSError, pa.ArrowException, DamagedIndexError):
            return None
        HEADS.add(f"{self._root}/{path}", layer)
        return layer

    def find(self, layer: Layer, hashes: Hashes) -> tuple[Places, Places] | None:
        """`find_in` a layer; None if it can't be read. Blocks that are read alone are remembered."""
        whole = f"{self._root}/{layer.path}"
        with ExitStack() as opened:
            streams: list[Any] = []

            def read(begin: int, end: int) -> Images:
                images = BLOCKS.find((whole, begin)) if end == begin + 1 else None
                if images is None:
                    if not streams:
                        streams.append(opened.enter_context(self._files.open_input_file(whole)))
                    images = read_blocks(layer, streams[0], begin, end)
                    if end == begin + 1:
                        BLOCKS.add((whole, begin), images)
                return images

            try:
                return find_in(layer, read, hashes)
            except (OSError, pa.ArrowException, DamagedIndexError):
                return None

    def images(self, layer: Layer) -> Images | None:
        """All images of a layer; None if it can't be read."""
        try:
            with self._files.open_input_file(f"{self._root}/{layer.path}") as stream:
                return read_blocks(layer, stream, 0, layer.blocks)
        except (OSError, pa.ArrowException, DamagedIndexError):
            return None

    def write(self, bucket: int, files: Mapping[str, bytes], images: Images) -> str:
        """Keeps a layer of these files, which have their partitions; returns its path."""
        content = encode(self._facts, bucket, files, images)
        name = hashlib.sha256(content).hexdigest()[:32]
        path = f"{FOLDER}/{self._facts}/{bucket:05d}-{name}{SUFFIX}"
        put_whole(self._files, f"{self._root}/{path}", content)
        return path

    def write_coverage(self, coverage: Coverage) -> str:
        """Keeps what layers cover; returns its path."""
        content = key_coverage.encode(self._facts, coverage)
        path = f"{FOLDER}/{self._facts}/{key_coverage.name_of(coverage, content)}"
        put_whole(self._files, f"{self._root}/{path}", content)
        self.forget()
        return path

    def delete(self, path: str) -> None:
        """Deletes a layer. Who is reading it reads the files instead."""
        try:
            self._files.delete_file(f"{self._root}/{path}")
        except (OSError, pa.ArrowException):
            return
