"""Layers of a key index: their file format, and the search for keys in them.

    magic, 8 bytes | length of the head, 4 bytes
    head as JSON: facts, bucket, images, files, their partitions (each once), of each file the place of its partition
    the first hash of each block, 8 bytes each | the xxHash64 of each block, 8 bytes each
    SHA-256 of all that
    blocks of 8,192 images: their hashes, 8 bytes each | their numbers, 2 or 4 bytes each

A number is the place of the file among the head's files, doubled, plus 1 for a tombstone. Numbers are little-endian.
The facts are a digest of the table, its key columns and its buckets.
"""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from xxhash import xxh64_intdigest

MAGIC: Final = b"LTXKEY02"
BLOCK_IMAGES: Final = 1 << 13
RUN_BLOCKS: Final = 1 << 7  # read at once
GAP_BLOCKS: Final = 2  # so many are read though no key needs them, rather than begin another request
SHORT_FILES: Final = 1 << 15  # so many fit into numbers of two bytes
FRONT_BYTES: Final = 1 << 18  # of a head, read at once
_DIGEST_BYTES: Final = 32
_LENGTH: Final = struct.Struct("<I")

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Places = np.ndarray[Any, np.dtype[np.int64]]
Numbers = np.ndarray[Any, np.dtype[np.uint32]]  # of images that are many


class DamagedIndexError(Exception):
    """A layer whose content is not what was written."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images by the hash of their key, in the order of the hashes, with their numbers."""

    hashes: Hashes
    numbers: Places | Numbers

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, part: slice) -> Images:
        return Images(self.hashes[part], self.numbers[part])

    def fill(self, hashes: Hashes, numbers: Places | Numbers) -> None:
        """Copy other images into the same memory."""
        self.hashes[:] = hashes
        self.numbers[:] = numbers

    def by_hash(self) -> Images:
        """Return the images in the order of their hashes."""
        order = np.argsort(self.hashes, kind="stable")
        return Images(self.hashes[order], self.numbers[order])

    def by_file(self, files: int) -> Iterator[Images]:
        """Return the images of each file, with 1 for a tombstone."""
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


def encode(facts: str, bucket: int, files: Mapping[str, bytes], images: Images) -> bytearray:
    """Return the content of a layer of these files, which have their partitions."""
    partitions = {partition: at for at, partition in enumerate(dict.fromkeys(files.values()))}
    head = {
        "facts": facts,
        "bucket": bucket,
        "images": len(images),
        "files": list(files),
        "partitions": [b64encode(partition).decode() for partition in partitions],
        "of": [partitions[partition] for partition in files.values()],
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    firsts = images.hashes[::BLOCK_IMAGES].astype("<u8")
    front = b"".join([MAGIC, _LENGTH.pack(len(text)), text, firsts.tobytes()])
    kind, digests = np.dtype(_number_type(files)), np.empty(len(firsts), "<u8")
    begin = at = len(front) + digests.nbytes + _DIGEST_BYTES
    content = bytearray(begin + len(images) * (8 + kind.itemsize))
    for block in range(len(firsts)):
        part = images[block * BLOCK_IMAGES : (block + 1) * BLOCK_IMAGES]
        raw = part.hashes.astype("<u8").tobytes() + part.numbers.astype(kind).tobytes()
        content[at : at + len(raw)] = raw
        digests[block] = xxh64_intdigest(raw)
        at += len(raw)
    front += digests.tobytes()
    content[:begin] = front + hashlib.sha256(front).digest()
    return content


def _number_type(files: Sized) -> str:
    return "<u2" if len(files) <= SHORT_FILES else "<u4"


def _image_bytes(layer: Layer) -> int:
    return 8 + np.dtype(_number_type(layer.files)).itemsize


def decode_head(facts: str, path: str, stream: Any) -> Layer:
    """Return the head of the layer in a stream. Raises DamagedIndexError if it is damaged, or another table's."""
    front = b""

    def part(begin: int, end: int) -> bytes:
        nonlocal front
        if end > len(front):
            front += stream.read(max(end - len(front), FRONT_BYTES))
        return front[begin:end]

    text_begin = len(MAGIC) + _LENGTH.size
    start = part(0, text_begin)
    if len(start) < text_begin or not start.startswith(MAGIC):
        raise DamagedIndexError(path)
    text_end = text_begin + _LENGTH.unpack_from(start, len(MAGIC))[0]
    text = part(text_begin, text_end)
    try:
        head = json.loads(text)
        covered, partitions = tuple(head["files"]), [b64decode(partition) for partition in head["partitions"]]
        of_files = tuple(partitions[at] for at in head["of"])
        bucket, images, names_facts = int(head["bucket"]), int(head["images"]), head["facts"]
    except (ValueError, LookupError, TypeError) as error:
        raise DamagedIndexError(path) from error
    blocks = -(-images // BLOCK_IMAGES)
    end = text_end + 16 * blocks
    arrays = part(text_end, end)
    if part(end, end + _DIGEST_BYTES) != hashlib.sha256(front[:end]).digest() or names_facts != facts:
        raise DamagedIndexError(path)
    numbers = np.frombuffer(arrays, "<u8")
    return Layer(path, bucket, images, covered, of_files, numbers[:blocks], numbers[blocks:], end + _DIGEST_BYTES)


def find_in(layer: Layer, read: Callable[[int, int], Images], hashes: Hashes) -> tuple[Places, Places]:
    """Return the images of these keys, whose hashes ascend: the place of each hash, and the image's number.

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
    """Yield the ranges of blocks that are read at once: the first one, and the one after the last."""
    at = 0
    while at < len(blocks):
        end = at + 1
        while end < len(blocks) and blocks[end] - blocks[end - 1] <= GAP_BLOCKS and end - at < RUN_BLOCKS:
            end += 1
        yield int(blocks[at]), int(blocks[end - 1]) + 1
        at = end


def read_blocks(layer: Layer, stream: Any, begin: int, end: int) -> Images:
    """Return the images in some blocks. Raises DamagedIndexError if one is damaged."""
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
