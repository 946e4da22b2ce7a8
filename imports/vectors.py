"""Deletion vectors: positions of hidden rows, in the one form that Iceberg's Puffin files and Delta's share.

length, 4 bytes big-endian | magic, 4 bytes little-endian | portable 64-bit roaring bitmap | CRC-32 of the last two
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from pyroaring import BitMap64

from worker.base.errors import InputError

MAGIC: Final = struct.pack("<I", 1681511377)


def read_vector(blob: bytes, place: str) -> BitMap64:
    """The positions in a blob with its frame."""
    body = blob[4:-4]
    is_whole = len(blob) > 12 and struct.unpack(">I", blob[:4])[0] == len(body)
    if not is_whole or struct.unpack(">I", blob[-4:])[0] != zlib.crc32(body):
        raise unreadable(place)
    return read_bitmap(body, place)


def read_bitmap(body: bytes, place: str) -> BitMap64:
    """The positions in a blob without length and checksum."""
    if not body.startswith(MAGIC):
        raise unreadable(place)
    try:
        return BitMap64.deserialize(body[len(MAGIC) :])
    except Exception as error:  # the library raises whatever it meets in foreign bytes
        raise unreadable(place) from error


def unreadable(place: str) -> InputError:
    return InputError("FILE_UNREADABLE", f"{place} has no whole deletion vector where the table says: repair the table")
