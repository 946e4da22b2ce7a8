"""Positions of hidden rows in other formats: in Parquet files, and as deletion vectors.

Iceberg's Puffin files and Delta's files of vectors share one form:
length, 4 bytes big-endian | magic, 4 bytes little-endian | portable 64-bit roaring bitmap | CRC-32 of the last two
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from pyroaring import BitMap64

from worker.base.errors import InputError

MAGIC: Final = struct.pack("<I", 1681511377)
BATCH_ROWS: Final = 1 << 18


def read_vector(blob: bytes, place: str) -> BitMap64:
    """Return the positions in a blob with length and checksum."""
    body = blob[4:-4]
    is_whole = len(blob) > 12 and struct.unpack(">I", blob[:4])[0] == len(body)
    if not is_whole or struct.unpack(">I", blob[-4:])[0] != zlib.crc32(body):
        raise unreadable(place)
    return read_bitmap(body, place)


def read_bitmap(body: bytes, place: str) -> BitMap64:
    """Return the positions in a blob without length and checksum."""
    if not body.startswith(MAGIC):
        raise unreadable(place)
    try:
        return BitMap64.deserialize(body[len(MAGIC) :])
    except Exception as error:  # the library raises whatever it meets in foreign bytes
        raise unreadable(place) from error


def read_positions(stream: Any) -> Iterator[tuple[str, BitMap64]]:
    """Yield the data files that a Parquet file of positions names, with the positions of each.

    The file is read batch by batch: a small file can have many rows.
    """
    by_path: dict[str, BitMap64] = {}
    file = pq.ParquetFile(stream, read_dictionary=["file_path"])
    for rows in file.iter_batches(BATCH_ROWS, columns=["file_path", "pos"]):
        if not len(rows):
            continue
        paths = rows.column("file_path")
        numbers = paths.indices.to_numpy()
        places = rows.column("pos").to_numpy().astype(np.uint64)
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        for part in np.split(order, cuts):
            path = str(paths.dictionary[int(numbers[part[0]])].as_py())
            earlier = by_path.get(path)
            new = BitMap64(places[part])
            by_path[path] = new if earlier is None else earlier | new
    yield from by_path.items()


def unreadable(place: str) -> InputError:
    return InputError("FILE_UNREADABLE", f"{place} has no whole deletion vector where the table says: repair the table")
