"""Kept deletion vectors: positions of the hidden rows of a bucket of a primary-key table, shared by all readers.

Newer files of a bucket hide rows of older ones by their keys. A file never changes, so neither do the rows that
given newer files hide in it. The vectors of a bucket are one file below the table's folder, named by a digest of their
inputs: the table, its key, and the newer files with their data versions. If the file is missing or damaged, a reader
reads the keys instead. So the file can be deleted at any time, and it can't make a version of the table wrong.

    <table>/_vectors/<name>.dv
    magic, 8 bytes | digest of the name's facts, 32 bytes | number of vectors, 4 bytes
    for each: data version, 8 bytes | length, 4 bytes | path | length, 4 bytes | portable 32-bit roaring bitmap
    SHA-256 of all that

Numbers are little-endian. The name is the digest in hexadecimal.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.values import partition_key
from worker.files.position_blocks import Positions
from worker.files.storage import put_whole, storage

FOLDER: Final = "_vectors"  # below the table's folder
SUFFIX: Final = ".dv"
MAGIC: Final = b"LTXVEC01"
BYTES_MAX: Final = 64 << 20  # of a bucket; what is larger isn't kept
ROWS_MAX: Final = 1 << 31  # of a file; Spark's positions are 32-bit numbers
_DIGEST_BYTES: Final = 32
_COUNT: Final = struct.Struct("<I")
_VERSION: Final = struct.Struct("<q")

FileId = tuple[int, str]  # a file of a bucket: its data version and its path


def name_of(meta: catalog_pb2.Table, files: Iterable[FileId]) -> str:
    """Return the name of the vectors of a bucket with these files; empty if no file can hide rows of another.

    The files of the lowest data version are not part of it: they hide nothing, and a plan may have left some of them
    out.
    """
    listed = list(files)
    lowest = min((version for version, _ in listed), default=0)
    newer = sorted((-version, path.encode()) for version, path in listed if version > lowest)
    if not newer:
        return ""
    ids = {column.name: column.column_id for column in meta.columns}
    key = " ".join(str(ids[name]) for name in meta.primary_key)
    facts = [f"{meta.table_id}\n{key}\n".encode(), *(b"%d %s\n" % (-minus, path) for minus, path in newer)]
    return hashlib.sha256(b"".join(facts)).hexdigest()


def names_of(meta: catalog_pb2.Table, entries: Iterable[common_pb2.LiveEntry]) -> set[str]:
    """Return the names of the vectors that a version with these entries can use."""
    if not meta.primary_key:
        return set()
    buckets: dict[object, list[FileId]] = {}
    for entry in entries:
        if entry.HasField("file"):
            bucket = partition_key(entry.file.partition), entry.file.bucket
            buckets.setdefault(bucket, []).append((entry.data_version, entry.file.path))
    return {name for files in buckets.values() if (name := name_of(meta, files))}


def encode(name: str, vectors: Mapping[FileId, Positions]) -> bytes:
    """Return the content of a file of vectors."""
    parts = [MAGIC, bytes.fromhex(name), _COUNT.pack(len(vectors))]
    for (version, path), positions in vectors.items():
        numbers = array("I")
        numbers.frombytes(positions.astype(np.uint32).tobytes())
        bitmap = BitMap(numbers)
        bitmap.run_optimize()
        parts.append(_VERSION.pack(version))
        for part in (path.encode(), bitmap.serialize()):
            parts += [_COUNT.pack(len(part)), part]
    body = b"".join(parts)
    return body + hashlib.sha256(body).digest()


def decode(name: str, content: bytes) -> dict[FileId, Positions]:
    """Return the vectors in a file. Raises ValueError if it is damaged, or has another name."""
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("its digest is wrong")
    begin = len(MAGIC) + _DIGEST_BYTES
    if body[:begin] != MAGIC + bytes.fromhex(name):
        raise ValueError("it has another name")
    try:
        return dict(_vectors(body, begin))
    except struct.error as error:
        raise ValueError("it is cut off") from error


def _vectors(body: bytes, at: int) -> Iterable[tuple[FileId, Positions]]:
    (count,) = _COUNT.unpack_from(body, at)
    at += _COUNT.size
    for _ in range(count):
        (version,) = _VERSION.unpack_from(body, at)
        path, at = _part(body, at + _VERSION.size)
        bitmap, at = _part(body, at)
        numbers = np.frombuffer(BitMap.deserialize(bitmap).to_array(), np.uint32)
        yield (version, path.decode()), numbers.astype(np.uint64)


def _part(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _COUNT.unpack_from(body, at)
    begin = at + _COUNT.size
    return body[begin : begin + length], begin + length


def read(table_folder: str, name: str) -> dict[FileId, Positions] | None:
    """Return the kept vectors of a name; None if there are none, or they can't be used."""
    files, path = storage(f"{table_folder}/{FOLDER}/{name}{SUFFIX}")
    try:
        with files.open_input_stream(path) as stream:
            return decode(name, bytes(stream.read()))
    except (OSError, ValueError, pa.ArrowException):
        return None


def write(table_folder: str, name: str, vectors: Mapping[FileId, Positions]) -> bool:
    """Keep vectors for later readers. Return whether they are small enough."""
    if any(len(positions) and positions[-1] >= ROWS_MAX for positions in vectors.values()):
        return False
    content = encode(name, vectors)
    if len(content) > BYTES_MAX:
        return False
    files, path = storage(f"{table_folder}/{FOLDER}/{name}{SUFFIX}")
    put_whole(files, path, content)
    return True
