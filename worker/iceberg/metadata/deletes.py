"""Hidden rows as Iceberg stores them: deletion vectors in a Puffin file (v3), or a file of positions each (v2)."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from worker.iceberg.metadata.facts import ShownFile

PUFFIN: Final = b"PFA1"
VECTOR: Final = struct.pack("<I", 1681511377)
FILE_PATH_ID: Final = 2147483546
POS_ID: Final = 2147483545


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a deletion vector in its file."""

    offset: int
    length: int


def vector(positions: BitMap64) -> bytes:
    """Return a blob `deletion-vector-v1`: length, magic and bitmap, and their checksum."""
    body = VECTOR + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def puffin(files: Sequence[ShownFile]) -> tuple[bytes, list[Place]]:
    """Return a Puffin file with the deletion vector of each data file, and the vectors' places."""
    content, blobs, places = bytearray(PUFFIN), [], []
    for file in files:
        blob = vector(file.hidden)
        places.append(Place(len(content), len(blob)))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [FILE_PATH_ID],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": {"referenced-data-file": file.path, "cardinality": str(len(file.hidden))},
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    content += PUFFIN + footer + struct.pack("<II", len(footer), 0) + PUFFIN
    return bytes(content), places


def position_deletes(file: ShownFile) -> bytes:
    """Return a Parquet file of the positions of one data file: readers treat several in one file differently."""
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(FILE_PATH_ID)}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POS_ID)}),
        ]
    )
    positions = np.fromiter(file.hidden, np.int64, len(file.hidden))
    sink = io.BytesIO()
    pq.write_table(pa.table([pa.repeat(file.path, len(positions)), positions], schema=schema), sink)
    return sink.getvalue()
