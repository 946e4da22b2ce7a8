"""Reads the payloads of stored entries, which are the wire's own messages, for judging by rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

from pyroaring import BitMap64

from metaservice.core.table.pruning import Row
from metaservice.core.table.rows import ColumnType, Range
from metaservice.rpc.convert.plans import BoundsReader
from metaservice.rpc.convert.wire_entries import schema_mark
from protos.laketx.v1 import common_pb2


class Bitmap:
    """The ids of a delete set."""

    def __init__(self, raw: bytes) -> None:
        self._ids = BitMap64.deserialize(raw)

    def common(self, other: Bitmap, most: int) -> tuple[int, ...]:
        return tuple(islice(self._ids & other._ids, most))

    def meets(self, span: Range) -> bool:
        first, last = span
        return bool(self._ids.range_cardinality(first, last + 1))


class WirePayloads:
    """The payloads DataFile and DeleteSet."""

    def bounds(self, payload: bytes, columns: Sequence[ColumnType]) -> Row:
        return _reader(tuple(columns)).read(payload)

    def only_tombstones(self, payload: bytes) -> bool:
        file = common_pb2.DataFile.FromString(payload)
        return 0 < file.rows == file.tombstones

    def set_columns(self, payload: bytes) -> frozenset[int]:
        return frozenset(common_pb2.DataFile.FromString(payload).set_columns)

    def no_new_rows(self, payload: bytes) -> bool:
        return common_pb2.DataFile.FromString(payload).no_new_rows

    def schema_version(self, payload: bytes) -> int:
        return common_pb2.DataFile.FromString(payload).schema_version

    def under_schema(self, payload: bytes, version: int) -> bytes:
        return payload + schema_mark(version)

    def row_ids(self, payload: bytes) -> Bitmap | None:
        raw = common_pb2.DeleteSet.FromString(payload).bitmap
        return Bitmap(raw) if raw else None

    def ranges(self, payload: bytes) -> tuple[Range, ...]:
        return tuple((span.first, span.last) for span in common_pb2.DeleteSet.FromString(payload).ranges)


@lru_cache(1_024)
def _reader(columns: tuple[ColumnType, ...]) -> BoundsReader:
    return BoundsReader(columns)
