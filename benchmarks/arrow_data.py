"""The rows that `benchmarks/arrow.py` writes and its peers read, made by numpy. Needs nothing but numpy and pyarrow.

The row of an id is always the same: about 80 bytes, half of them a text that hardly compresses. Rows come in the order
of their ids; `ts` rises with them, all other columns jump. Another edition has other values per id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

SCHEMA: Final = "id bigint, amount double, cust string, day string, ts timestamp, pad string"
ARROW: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("cust", pa.string()),
        ("day", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("pad", pa.string()),
    ]
)
CUSTOMERS: Final = 100_000
DAYS: Final = 30
BATCH_ROWS: Final = 1 << 17
_FIRST_SECOND: Final = 1_760_000_000
_CUSTOMERS: Final = pa.array([f"cust-{number:06}" for number in range(CUSTOMERS)])
_DAYS: Final = pa.array([f"2026-01-{day + 1:02}" for day in range(DAYS)])
_HEX: Final = np.array([f"{byte:02x}".encode() for byte in range(256)], "S2")
_END: Final = np.frombuffer(b"-pad", np.uint8)


def rows(ids: Any, edition: int = 0) -> pa.RecordBatch:
    """The rows of these ids, which are an array of numpy."""
    words = _mixed(ids.astype(np.uint64) ^ np.uint64(edition << 48))
    columns = [
        pa.array(ids, pa.int64()),
        pa.array((words % np.uint64(1_000_000)).astype(np.float64) / 100),
        _CUSTOMERS.take(pa.array(_mixed(words) % np.uint64(CUSTOMERS))),
        _DAYS.take(pa.array((words >> np.uint64(20)) % np.uint64(DAYS))),
        pa.array((_FIRST_SECOND + edition + ids) * 1_000_000).cast(ARROW.field("ts").type),
        _pads(words),
    ]
    return pa.record_batch(columns, schema=ARROW)


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """So many rows, from id 0 on."""
    for start in range(0, count, BATCH_ROWS):
        yield rows(np.arange(start, min(start + BATCH_ROWS, count)))


def stream(count: int) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(ARROW, batches(count))


def is_hundredth(number: int) -> Any:
    """Chooses a hundredth of the ids, spread over all of them; no two numbers choose the same."""
    return lambda ids: _mixed(ids.astype(np.uint64)) % np.uint64(100) == np.uint64(number)


def _mixed(words: Any) -> Any:
    """Splitmix64: numbers that follow each other become words that don't."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _pads(words: Any) -> pa.Array:
    """32 hex digits and an end."""
    both = np.stack([words, _mixed(words ^ np.uint64(1))], axis=1).view(np.uint8)
    text = np.empty((len(words), 36), np.uint8)
    text[:, :32] = _HEX[both].view(np.uint8).reshape(len(words), 32)
    text[:, 32:] = _END
    offsets = np.arange(0, 36 * (len(words) + 1), 36, dtype=np.int32)
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(offsets), pa.py_buffer(text))
