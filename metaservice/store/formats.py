"""The formats of a store. A release writes a higher one only when it first uses what lower ones don't have.

So a folder can go back to the release before as long as nothing new was used.

1  everything that no other line names
2  the rows of inlined files (n, i), views (v), default values of columns
3  branches and clones (b, d, f, z, m, a, h), keys that are unique across partitions, periodic tasks (j, l), images
   that set single columns
4  the log in another bucket; such a store begins with it
"""

from __future__ import annotations

import struct
from typing import Final

from metaservice.store.port import FORMAT_TOO_NEW, STORE_DAMAGED, StoreUnusable

FORMAT_KEY: Final = b"\x00format"
COPYING_KEY: Final = b"\x00copying"  # while a copy is made
FIRST: Final = 1
LOG_ELSEWHERE: Final = 4
NEWEST: Final = 4
NEEDED: Final = {
    "inlined_rows": 2,
    "column_defaults": 2,
    "views": 2,
    "branches": 3,
    "key_lookups": 3,
    "periodic_tasks": 3,
    "partial_images": 3,
}
FORMAT_BYTES: Final = 4


def encode_format(number: int) -> bytes:
    return struct.pack(">I", number)


def decode_format(raw: bytes | None) -> int:
    """A store without a number, in memory, is of the first format."""
    return FIRST if raw is None else int(struct.unpack(">I", raw)[0])


def refuse_other_formats(raw: bytes, path: str) -> None:
    """Refuses a number that is none, and formats of later releases."""
    if len(raw) != FORMAT_BYTES:
        raise StoreUnusable(STORE_DAMAGED, path=path, found="a format number of another length")
    number = decode_format(raw)
    if number > NEWEST:
        raise StoreUnusable(FORMAT_TOO_NEW, path=path, found=number, supported=NEWEST)
