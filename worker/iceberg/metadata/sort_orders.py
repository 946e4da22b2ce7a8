"""The orders of rows in files, as Iceberg's sort orders. Iceberg has no form for Z-orders."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from metaservice.shared.column_types import Atomic, Decimal, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.iceberg.metadata.values import FLOATS

UNSORTED: Final[dict[str, Any]] = {"order-id": 0, "fields": []}
SORT: Final = re.compile(r"sort\((.*)\)")
NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^,`]+)")


@dataclass(frozen=True, slots=True)
class SortOrder:
    """An order by columns, ascending, NULL first, as Spark sorts."""

    columns: tuple[int, ...]  # their ids

    @property
    def order_id(self) -> int:
        """Return the order's id, which is the same in every version of a table."""
        return zlib.crc32(repr(self.columns).encode()) >> 1 or 1

    def shown(self) -> dict[str, Any]:
        fields = [
            {"transform": "identity", "source-id": column_id, "direction": "asc", "null-order": "nulls-first"}
            for column_id in self.columns
        ]
        return {"order-id": self.order_id, "fields": fields}


class SortOrders:
    """The orders of a table's files."""

    def __init__(self, schemas: Iterable[catalog_pb2.SchemaVersion] = ()) -> None:
        listed = sorted(schemas, key=lambda schema: schema.schema_version)
        self._columns = {schema.schema_version: schema.columns for schema in listed}
        if listed:
            self._columns.setdefault(0, listed[0].columns)  # as files say of the first
        self._orders: dict[tuple[int, str], SortOrder | None] = {}

    def of(self, file: common_pb2.DataFile) -> SortOrder | None:
        if not file.row_order:
            return None
        key = file.schema_version, file.row_order
        if key not in self._orders:
            self._orders[key] = self._read(*key)
        return self._orders[key]

    def _read(self, schema_version: int, text: str) -> SortOrder | None:
        """Return the order in a text of a file, which has the columns' names when the file was written."""
        matched = SORT.fullmatch(text)
        if matched is None:
            return None
        columns = {column.name: column for column in self._columns.get(schema_version, ())}
        names = [(odd.replace("``", "`") or plain.strip()) for odd, plain in NAME.findall(matched[1])]
        ids = [columns[name].column_id for name in takewhile(lambda each: _sorts(columns.get(each)), names)]
        return SortOrder(tuple(ids)) if ids else None


def _sorts(column: catalog_pb2.Column | None) -> bool:
    """Return whether Iceberg sorts a column as Spark does. To Spark, 0.0 and -0.0 are equal."""
    if column is None:
        return False
    kind = read_type(column.type)
    return isinstance(kind, Decimal) or (isinstance(kind, Atomic) and kind.name not in FLOATS)


def sort_orders(orders: Iterable[SortOrder], columns: Iterable[catalog_pb2.Column]) -> list[dict[str, Any]]:
    """Return the orders in a table's metadata: those of files, if the table still has their columns."""
    column_ids = {column.column_id for column in columns}
    listed = sorted(
        {order for order in orders if column_ids.issuperset(order.columns)}, key=lambda order: order.columns
    )
    return [UNSORTED, *(order.shown() for order in listed)]
