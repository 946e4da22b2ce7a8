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
R table                    next row id
A table app                application version
X txn                      transaction
O txn                      the transaction is open
S txn table chunk          staged entries
H table                    oldest version that is kept
G table                    the purge of a dropped table has begun
!epoch                     the history that this store tells
!purge_hold                why nothing may be purged; absent: it may
"""

from __future__ import annotations

import struct

CEILING = b"C"
NAMES = b"N"
TABLES = b"T"
COMMITS = b"L"
TRANSACTIONS = b"X"
OPEN = b"O"
STAGED = b"S"
EPOCH = b"!epoch"
PURGE_HOLD = b"!purge_hold"

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


def row_id_key(table: bytes) -> bytes:
    return b"R" + table


def oldest_key(table: bytes) -> bytes:
    return b"H" + table


def drop_begun_key(table: bytes) -> bytes:
    return b"G" + table


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


def chunks_prefix(table: bytes) -> bytes:
    return b"K" + table


def split_versioned(key: bytes) -> tuple[bytes, int]:
    """Table and version, or time, of a key that ends in it: T, L, W."""
    return key[1:17], decode_version(key[17:25])


def split_chunk(key: bytes) -> tuple[int, int]:
    """Version and chunk of a key of added entries."""
    return decode_version(key[17:25]), decode_version(key[25:33])


def split_staged(key: bytes) -> tuple[bytes, bytes, int]:
    """Transaction, table and chunk."""
    return key[1:17], key[17:33], decode_version(key[33:41])
