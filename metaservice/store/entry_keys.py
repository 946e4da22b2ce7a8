"""Keys of the entries of files: live, past, by the versions that held them, and of external files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

from metaservice.store.keys import MASKS, decode_version

_Q = struct.Struct(">Q")


def live_prefix(table: bytes, partition: str | None = None, bucket: int | None = None) -> bytes:
    if partition is None:
        return b"I" + table
    start = b"I" + table + partition.encode() + b"\x00"
    return start if bucket is None else start + struct.pack(">I", bucket)


@lru_cache(maxsize=1_024)  # neighbours often share it
def bucket_prefix(table: bytes, partition: str, bucket: int) -> bytes:
    """The prefix of the keys of a bucket's live entries; their paths follow."""
    return live_prefix(table, partition, bucket)


def live_key(table: bytes, partition: str, bucket: int, path: str) -> bytes:
    return bucket_prefix(table, partition, bucket) + path.encode()


def past_prefix(table: bytes) -> bytes:
    return b"P" + table


def past_from(table: bytes, removed: int) -> bytes:
    return b"P" + table + _Q.pack(removed)


def past_key(table: bytes, removed: int, partition: str, bucket: int, path: str) -> bytes:
    return past_from(table, removed) + partition.encode() + b"\x00" + struct.pack(">I", bucket) + path.encode()


def removed_of_past(key: bytes) -> int:
    """The version that removed the entry."""
    removed: int = _Q.unpack_from(key, 17)[0]
    return removed


def path_of_live(key: bytes) -> str:
    return key[key.index(b"\x00", 17) + 5 :].decode()


def path_of_past(key: bytes) -> str:
    return key[key.index(b"\x00", 25) + 5 :].decode()


def span_partition(table: bytes, partition: str) -> bytes:
    """All spans of a partition."""
    return b"Q" + table + partition.encode() + b"\x00"


def spans_prefix(table: bytes) -> bytes:
    return b"Q" + table


def span_key(table: bytes, added: int, removed: int, partition: str, bucket: int, path: str) -> bytes:
    """The key of an entry that the versions from added to removed - 1 held.

    It is filed at the fork of both ends: the smallest aligned block of 2**level versions that contains both. A version
    lies in one block of each level, so the entries that held it are found in a few seeks, whatever came before and
    after.
    """
    last = removed - 1
    level = (added ^ last).bit_length()
    node = span_partition(table, partition) + bytes([level]) + _Q.pack(last >> level)
    return node + _Q.pack(removed) + _Q.pack(added) + struct.pack(">I", bucket) + path.encode()


def span_ranges(table: bytes, partition: str, version: int, removed_max: int) -> Iterator[tuple[bytes, bytes]]:
    """The ranges of the spans that may hold a version; check when each entry found was added."""
    start = span_partition(table, partition)
    for level in range(max(1, removed_max.bit_length()) + 1):
        node = start + bytes([level]) + _Q.pack(version >> level)
        yield node + _Q.pack(version + 1), node + b"\xff" * 8


def decode_span(key: bytes, partition_bytes: int) -> tuple[int, int, bytes]:
    """Removed, added and the end of the key: bucket and path."""
    start = 1 + 16 + partition_bytes + 1 + 1 + 8
    removed, added = _Q.unpack_from(key, start)[0], _Q.unpack_from(key, start + 8)[0]
    return removed, added, key[start + 16 :]


def past_of_span(table: bytes, partition: str, removed: int, tail: bytes) -> bytes:
    return past_from(table, removed) + partition.encode() + b"\x00" + tail


def removed_of_span(key: bytes) -> int:
    """The version that took the entry out."""
    return int(_Q.unpack_from(key, key.index(b"\x00", 17) + 10)[0])


def partition_of(key: bytes) -> str:
    """The partition of a live entry's key or a span's."""
    return key[17 : key.index(b"\x00", 17)].decode()


def restored_prefix(table: bytes) -> bytes:
    return b"B" + table


def restored_key(table: bytes, partition: str, bucket: int, path: str) -> bytes:
    return b"B" + live_key(table, partition, bucket, path)[1:]


def mask_of_live(key: bytes) -> bytes:
    """The key of the mask of an entry, by the key that the entry has or would have while it is live."""
    return MASKS + key[1:]


def import_prefix(table: bytes, file: bytes = b"") -> bytes:
    """The prefix of a table's live external files, or of the entries of one of them; `file` is its digest."""
    return b"x" + table + file


def import_key(table: bytes, file: bytes, partition: str, bucket: int, path: str) -> bytes:
    return import_prefix(table, file) + live_key(table, partition, bucket, path)[17:]


def live_of_import(key: bytes) -> bytes:
    """The live entry's key."""
    return b"I" + key[1:17] + key[33:]


def named_prefix(table: bytes, path: str | None = None) -> bytes:
    """The prefix of external entries of any table that name a file of this table's folder."""
    start = b"e" + table
    return start if path is None else start + path.encode() + b"\x00"


def named_key(table: bytes, path: str, holder: bytes, entry: bytes, added: int) -> bytes:
    """The key of such an entry. `entry` is its live key; each of its lives ends separately, so each has a key."""
    return named_prefix(table, path) + holder + entry[17:] + _Q.pack(added)


def split_named(key: bytes) -> tuple[bytes, bytes, bytes, int]:
    """Path in the folder, holder, the end of the entry's live key, and the version that added it."""
    path, _, rest = key[17:].partition(b"\x00")
    return path, rest[:16], rest[16:-8], decode_version(rest[-8:])


def place_of(key: bytes) -> bytes:
    """The part of a live entry's key before the path."""
    return key[: key.index(b"\x00", 17) + 5]
