"""Entries of manifests in bytes: the fields of `entry_schema`, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from iceberg.metadata.avro_bytes import NULL, SET, Encode, array, encoder, sized, whole
from iceberg.metadata.deletes import FILE_PATH_ID, Place
from iceberg.metadata.facts import ShownFile, sequence_of
from iceberg.metadata.partitions import PartitionColumn
from iceberg.metadata.values import FLOATS, Bound, Plain, bound_of, plain_of
from metaservice.column_types import Atomic, Decimal, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2

EXISTING, ADDED = 0, 1
DATA, POSITION_DELETES = 0, 1
PARQUET, PUFFIN = "PARQUET", "PUFFIN"
IS_DATA: Final = whole(DATA)
IS_DELETES: Final = whole(POSITION_DELETES)
IN_PARQUET: Final = sized(PARQUET.encode())
IN_PUFFIN: Final = sized(PUFFIN.encode())
PATH_KEY: Final = whole(FILE_PATH_ID)


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """The values of a partition's columns, as they sort, as they are, and in bytes."""

    order: tuple[tuple[bool, Any], ...]
    plain: Sequence[Any]
    raw: bytes


@dataclass(frozen=True, slots=True)
class _Column:
    """What its statistics need: its id in bytes, and how bounds are read and written."""

    key: bytes
    is_float: bool
    plain: Plain
    bound: Bound


class Entries:
    """Writes the entries of files under one version of the schema."""

    def __init__(self, partitions: Sequence[PartitionColumn], columns: Sequence[catalog_pb2.Column], form: int) -> None:
        self._partitions: Sequence[tuple[str, Plain, Encode]] = [
            (one.name, plain_of(one.kind), encoder(one.kind)) for one in partitions
        ]
        kinds = [(one.column_id, read_type(one.type)) for one in columns]
        self._columns = {
            number: _Column(
                whole(number), isinstance(kind, Atomic) and kind.name in FLOATS, plain_of(kind), bound_of(kind)
            )
            for number, kind in kinds
            if isinstance(kind, Atomic | Decimal)
        }
        self._has_row_ids = form >= 3
        self._known: dict[bytes, PartitionValues] = {}

    def partition(self, one: ShownFile) -> PartitionValues:
        message = one.entry.file.partition
        key = message.SerializeToString()
        known = self._known.get(key)
        if known is None:
            values = {each.column: each.value for each in message.values}
            plain = [read(values[name]) for name, read, _ in self._partitions]
            raw = [
                NULL if value is None else SET + encode(value)
                for value, (_, _, encode) in zip(plain, self._partitions, strict=True)
            ]
            order = tuple((value is not None, value) for value in plain)
            known = self._known[key] = PartitionValues(order, plain, b"".join(raw))
        return known

    def head(self, one: ShownFile, newest: int) -> bytes:
        """What stands before the file: status, snapshot and sequence numbers; the manifest is of the newest commit."""
        added = one.entry.added_version
        return _head(ADDED if added == newest else EXISTING, sequence_of(added), one.sequence)

    def data_file(self, one: ShownFile) -> bytes:
        file = one.entry.file
        rows = whole(file.rows)
        ids = b""
        if self._has_row_ids:
            ids = (SET + whole(file.first_row_id) if file.HasField("first_row_id") else NULL) + NULL + NULL
        return b"".join(
            (
                IS_DATA,
                sized(one.path.encode()),
                IN_PARQUET,
                self.partition(one).raw,
                rows,
                whole(file.bytes),
                self._statistics(file, rows),
                NULL,
                ids,
            )
        )

    def _statistics(self, file: common_pb2.DataFile, rows: bytes) -> bytes:
        """Counts and bounds. Floats have no upper bound: NaN may be among them, which some readers put above all."""
        counts, nulls, lower, upper = [], [], [], []
        for one in file.stats:
            column = self._columns.get(one.column_id)
            if column is None:
                continue
            key, plain, bound, is_float = column.key, column.plain, column.bound, column.is_float
            counts.append(key + rows)
            if one.HasField("nulls"):
                nulls.append(key + whole(one.nulls))
            least = plain(one.min)
            if least is not None and not (is_float and (file.external or least != least)):
                lower.append(key + sized(bound(-0.0 if is_float and least == 0 else least)))
            if not is_float and (most := plain(one.max)) is not None:
                upper.append(key + sized(bound(most)))
        return b"".join((SET, array(counts), SET, array(nulls), SET, array(lower), SET, array(upper)))

    def vector(self, one: ShownFile, path: str, size: int, place: Place) -> bytes:
        """The deletion vector of a data file, in a Puffin file of this size."""
        return self._deletes(one, path, size, IN_PUFFIN, NULL) + b"".join(
            (NULL, SET, whole(place.offset), SET, whole(place.length))
        )

    def positions(self, one: ShownFile, path: str, size: int) -> bytes:
        """The positions of a data file's hidden rows, in a Parquet file of their own."""
        return self._deletes(one, path, size, IN_PARQUET, SET + array([PATH_KEY + sized(one.path.encode())]))

    def _deletes(self, one: ShownFile, path: str, size: int, form: bytes, bounds: bytes) -> bytes:
        return b"".join(
            (
                IS_DELETES,
                sized(path.encode()),
                form,
                self.partition(one).raw,
                whole(len(one.hidden)),
                whole(size),
                NULL,
                NULL,
                bounds,
                bounds,
                SET,
                sized(one.path.encode()),
            )
        )


@lru_cache(1 << 12)
def _head(status: int, snapshot: int, sequence: int) -> bytes:
    return b"".join((whole(status), SET, whole(snapshot), SET, whole(sequence), SET, whole(snapshot)))
