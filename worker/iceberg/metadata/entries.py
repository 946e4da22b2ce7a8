"""Entries of manifests in bytes: the fields of `entry_schema`, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from metaservice.shared.column_types import Atomic, Decimal, Type, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.iceberg.metadata.avro_bytes import NULL, SET, Encode, array, encoder, sized, whole
from worker.iceberg.metadata.delete_files import DeleteFile
from worker.iceberg.metadata.deletes import FILE_PATH_ID
from worker.iceberg.metadata.facts import ShownFile, sequence_of
from worker.iceberg.metadata.partitions import PartitionColumn
from worker.iceberg.metadata.sort_orders import SortOrders
from worker.iceberg.metadata.values import FLOATS, Bound, Plain, bound_of, plain_of

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES = 0, 1
PARQUET, PUFFIN = "PARQUET", "PUFFIN"
IS_DATA: Final = whole(DATA)
IS_DELETES: Final = whole(POSITION_DELETES)
IN_PARQUET: Final = sized(PARQUET.encode())
IN_PUFFIN: Final = sized(PUFFIN.encode())
PATH_KEY: Final = whole(FILE_PATH_ID)


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """The values of a partition's columns: as a sort key, as plain values, and in bytes."""

    order: tuple[tuple[bool, Any], ...]
    plain: Sequence[Any]
    raw: bytes


@dataclass(frozen=True, slots=True)
class Column:
    """A column with statistics: its type, its id in bytes, and the reader and writer of its bounds."""

    kind: Type
    key: bytes
    is_float: bool
    plain: Plain
    bound: Bound

    def ends(self, stats: common_pb2.ColumnStats, file: common_pb2.DataFile) -> tuple[Any, Any]:
        """Return the bounds for readers. Floats have no upper bound: some readers order NaN above all numbers."""
        least = self.plain(stats.min)
        if not self.is_float:
            return least, self.plain(stats.max)
        if least is None or file.external or least != least:
            return None, None
        return -0.0 if least == 0 else least, None


class Entries:
    """Writes the entries of files under one version of the schema."""

    def __init__(
        self,
        partitions: Sequence[PartitionColumn],
        columns: Sequence[catalog_pb2.Column],
        form: int,
        orders: SortOrders | None = None,
    ) -> None:
        self._partitions: Sequence[tuple[str, Plain, Encode]] = [
            (partition.name, plain_of(partition.kind), encoder(partition.kind)) for partition in partitions
        ]
        self._columns = measured(columns)
        self._orders = orders or SortOrders()
        self._has_row_ids = form >= 3
        self._partition_values: dict[bytes, PartitionValues] = {}

    def partition(self, shown: ShownFile) -> PartitionValues:
        message = shown.entry.file.partition
        key = message.SerializeToString()
        cached = self._partition_values.get(key)
        if cached is None:
            values = {partition_value.column: partition_value.value for partition_value in message.values}
            plain = [read(values[name]) for name, read, _ in self._partitions]
            raw = [
                NULL if value is None else SET + encode(value)
                for value, (_, _, encode) in zip(plain, self._partitions, strict=True)
            ]
            order = tuple((value is not None, value) for value in plain)
            cached = self._partition_values[key] = PartitionValues(order, plain, b"".join(raw))
        return cached

    def head(self, shown: ShownFile, newest: int) -> bytes:
        """Return the fields before a data file: status, snapshot, sequence numbers. `newest`: the manifest's commit."""
        added = shown.entry.added_version
        return _head(ADDED if added == newest else EXISTING, sequence_of(added), shown.sequence, sequence_of(added))

    def head_of_deletes(self, shown: ShownFile, newest: int) -> bytes:
        """Return the same for its delete file, from which writers see the rows that were hidden since they read."""
        at = shown.hidden_at
        return _head(ADDED if at == newest else EXISTING, sequence_of(at), shown.sequence_of_deletes, sequence_of(at))

    def head_of_removed(self, shown: ShownFile, removed_at: int) -> bytes:
        """Return the same for a data file that a version no longer has."""
        return _head(DELETED, sequence_of(removed_at), shown.sequence, sequence_of(shown.entry.added_version))

    def head_of_removed_deletes(self, shown: ShownFile, removed_at: int) -> bytes:
        """Return the same for a delete file that a version no longer has."""
        return _head(DELETED, sequence_of(removed_at), shown.sequence_of_deletes, sequence_of(shown.hidden_at))

    def data_file(self, shown: ShownFile) -> bytes:
        file = shown.entry.file
        rows = whole(file.rows)
        order = self._orders.of(file)
        ids = b""
        if self._has_row_ids:
            ids = (SET + whole(file.first_row_id) if file.HasField("first_row_id") else NULL) + NULL + NULL
        return b"".join(
            (
                IS_DATA,
                sized(shown.path.encode()),
                IN_PARQUET,
                self.partition(shown).raw,
                rows,
                whole(file.bytes),
                self._statistics(file, rows),
                NULL if order is None else SET + whole(order.order_id),
                NULL,
                ids,
            )
        )

    def _statistics(self, file: common_pb2.DataFile, rows: bytes) -> bytes:
        counts, nulls, lower, upper = [], [], [], []
        for stats in file.stats:
            column = self._columns.get(stats.column_id)
            if column is None:
                continue
            key = column.key
            counts.append(key + rows)
            if stats.HasField("nulls"):
                nulls.append(key + whole(stats.nulls))
            least, most = column.ends(stats, file)
            if least is not None:
                lower.append(key + sized(column.bound(least)))
            if most is not None:
                upper.append(key + sized(column.bound(most)))
        return b"".join((SET, array(counts), SET, array(nulls), SET, array(lower), SET, array(upper)))

    def delete_file(self, shown: ShownFile, written: DeleteFile) -> bytes:
        """Return the entry of a delete file."""
        place = written.place
        path = sized(shown.path.encode())
        bounds, ids = NULL, b""
        if place is None:
            bounds = SET + array([PATH_KEY + path])
        if self._has_row_ids:
            ids = NULL + (NULL + NULL if place is None else SET + whole(place.offset) + SET + whole(place.length))
        return b"".join(
            (
                IS_DELETES,
                sized(written.path.encode()),
                IN_PARQUET if place is None else IN_PUFFIN,
                self.partition(shown).raw,
                whole(len(shown.hidden)),
                whole(written.size),
                NULL,
                NULL,
                bounds,
                bounds,
                NULL,
                SET,
                path,
                ids,
            )
        )


def measured(columns: Iterable[catalog_pb2.Column]) -> dict[int, Column]:
    """Return the columns that have bounds, by id."""
    kinds = [(column.column_id, read_type(column.type)) for column in columns]
    return {
        number: Column(
            kind, whole(number), isinstance(kind, Atomic) and kind.name in FLOATS, plain_of(kind), bound_of(kind)
        )
        for number, kind in kinds
        if isinstance(kind, Atomic | Decimal)
    }


@lru_cache(1 << 12)
def _head(status: int, snapshot: int, sequence: int, file_sequence: int) -> bytes:
    return b"".join((whole(status), SET, whole(snapshot), SET, whole(sequence), SET, whole(file_sequence)))
