"""The only file that knows key bytes. Big-endian, so that byte order is version order.

F                          format number            (kept by the store itself)
C                          time ceiling
N name                     table id of a live name
T table version            metadata from that version on
D table                    dropped, and when
L table version            commit
K table version chunk      added entries of a large commit
W table time               version with that commit time
I table partition bucket path          live entry
P table removed partition bucket path  entry that a commit took out
Q table partition level node removed added bucket path  the same entry, found by a version that held it
V table version        commit without a time version -> the last one before it that has one
M name                 upkeep that was done to data of an earlier release
R table                    next row id
A table app                application version
X txn                      transaction
O txn                      the transaction is open
S txn table chunk          staged entries
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

CEILING = b"C"
NAMES = b"N"
TABLES = b"T"
TRANSACTIONS = b"X"
OPEN = b"O"

_Q = struct.Struct(">Q")


def uuid_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


def name_key(name: str) -> bytes:
    return NAMES + name.encode()


def table_prefix(table: bytes) -> bytes:
    return TABLES + table


def table_key(table: bytes, version: int) -> bytes:
    return TABLES + table + _Q.pack(version)


def dropped_key(table: bytes) -> bytes:
    return b"D" + table


def commits_prefix(table: bytes) -> bytes:
    return b"L" + table


def commit_key(table: bytes, version: int) -> bytes:
    return b"L" + table + _Q.pack(version)


def chunk_key(table: bytes, version: int, chunk: int) -> bytes:
    return b"K" + table + _Q.pack(version) + _Q.pack(chunk)


def times_prefix(table: bytes) -> bytes:
    return b"W" + table


def time_key(table: bytes, time_us: int) -> bytes:
    return b"W" + table + _Q.pack(time_us)


def encode_version(version: int) -> bytes:
    return _Q.pack(version)


def decode_version(raw: bytes) -> int:
    return int(_Q.unpack(raw)[0])


def live_prefix(table: bytes, partition: str | None = None, bucket: int | None = None) -> bytes:
    if partition is None:
        return b"I" + table
    start = b"I" + table + partition.encode() + b"\x00"
    return start if bucket is None else start + struct.pack(">I", bucket)


def live_key(table: bytes, partition: str, bucket: int, path: str) -> bytes:
    return live_prefix(table, partition, bucket) + path.encode()


def past_prefix(table: bytes) -> bytes:
    return b"P" + table


def past_from(table: bytes, removed: int) -> bytes:
    return b"P" + table + _Q.pack(removed)


def past_key(table: bytes, removed: int, partition: str, bucket: int, path: str) -> bytes:
    return past_from(table, removed) + partition.encode() + b"\x00" + struct.pack(">I", bucket) + path.encode()


def span_partition(table: bytes, partition: str) -> bytes:
    """All spans of a partition."""
    return b"Q" + table + partition.encode() + b"\x00"


def spans_prefix(table: bytes) -> bytes:
    return b"Q" + table


def span_key(table: bytes, added: int, removed: int, partition: str, bucket: int, path: str) -> bytes:
    """Of an entry that versions added to removed - 1 held.

    It is filed at the fork of both ends: the smallest aligned block of 2**level versions that has them both. A version
    lies in one block of each level, so what held it is found in a few seeks, whatever came and went before and after.
    """
    last = removed - 1
    level = (added ^ last).bit_length()
    node = span_partition(table, partition) + bytes([level]) + _Q.pack(last >> level)
    return node + _Q.pack(removed) + _Q.pack(added) + struct.pack(">I", bucket) + path.encode()


def span_ranges(table: bytes, partition: str, version: int, head: int) -> Iterator[tuple[bytes, bytes]]:
    """Where the spans lie that may hold a version; those found still have to be asked when they were added."""
    start = span_partition(table, partition)
    for level in range(max(1, head.bit_length()) + 1):
        node = start + bytes([level]) + _Q.pack(version >> level)
        yield node + _Q.pack(version + 1), node + b"\xff" * 8


def decode_span(key: bytes, partition_bytes: int) -> tuple[int, int, bytes]:
    """Removed, added and the end of the key: bucket and path."""
    start = 1 + 16 + partition_bytes + 1 + 1 + 8
    removed, added = _Q.unpack_from(key, start)[0], _Q.unpack_from(key, start + 8)[0]
    return removed, added, key[start + 16 :]


def past_of_span(table: bytes, partition: str, removed: int, tail: bytes) -> bytes:
    return past_from(table, removed) + partition.encode() + b"\x00" + tail


def partition_of(key: bytes) -> str:
    """Of a live entry's key or a span's."""
    return key[17 : key.index(b"\x00", 17)].decode()


def idle_key(table: bytes, version: int) -> bytes:
    return b"V" + table + _Q.pack(version)


def upkeep_key(name: str) -> bytes:
    return b"M" + name.encode()


def row_id_key(table: bytes) -> bytes:
    return b"R" + table


def app_key(table: bytes, app_id: str) -> bytes:
    return b"A" + table + app_id.encode()


def txn_key(txn: bytes) -> bytes:
    return TRANSACTIONS + txn


def open_key(txn: bytes) -> bytes:
    return OPEN + txn


def staged_prefix(txn: bytes, table: bytes | None = None) -> bytes:
    return b"S" + txn + (table or b"")


def staged_key(txn: bytes, table: bytes, chunk: int) -> bytes:
    return b"S" + txn + table + _Q.pack(chunk)
